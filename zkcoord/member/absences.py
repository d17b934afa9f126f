"""Tells a consumer's user why the consumer is given nothing: topics are missing, no coordinator serves, or the group is
read elsewhere. Without these reports the consumer would wait in silence."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.view import Wildcard
from zkcoord.member.place_check import PlaceCheck
from zkcoord.member.topic_check import TopicCheck
from zkcoord.shell.role import Events
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Node

SCOPE = "coordinator"

IDLE_MS = 5_000
"""ms that a member must have held nothing before it looks for a coordinator. Most members are given partitions sooner,
and need not look. A failover is over sooner, too, once the old coordinator's node is gone."""


class CoordinatorCheck:
    """Watches the coordinator's node, but only for a member that holds nothing: so a failover does not wake the members
    that read."""

    def __init__(self, group: str, events: Events) -> None:
        self._group, self._events = group, events
        self._told = False  # True once the user was told that nobody is elected
        self._forget()

    def _forget(self) -> None:
        self._path = ""  # of the coordinator's node, while it is watched
        self._absent_since_ms: int | None = None
        # since when this member holds nothing and knows of no coordinator; None: not counted
        self._seen: bool | None = None  # the node, as read last; None: not read yet

    def begin(self) -> None:
        """A session begins: nothing is known, and nothing watched."""
        self._forget()

    def member(self, tracker: Tracker, layout: Layout, now_ms: int, *, idle: bool) -> None:
        """Look for a coordinator if the member holds nothing (`idle`). This is called at least every sixth of the
        session timeout."""
        if not idle:
            if self._path:
                tracker.unwant(self._path)
            self._forget()
            self._serves(True)
        elif self._seen:
            self._serves(True)
        elif self._absent_since_ms is None:
            self._absent_since_ms = now_ms
        elif now_ms >= self._absent_since_ms + IDLE_MS:
            if not self._path:
                self._path = layout.coordinator
                tracker.want(self._path, watch=True, scope=SCOPE)
            elif self._seen is not None:
                self._serves(False)

    def take(self, node: Node) -> None:
        """Take in an answer, if it is about the coordinator's node."""
        if node.path != self._path:
            return
        if self._seen:
            self._absent_since_ms = None  # an absence that begins now counts from the next call of `member`
        self._seen = node.exists

    def _serves(self, serves: bool) -> None:
        if serves and self._told:
            self._events("coordinator_elected", {"group": self._group, "level": "notice"})
        elif not serves and not self._told:
            why = "no coordinator is elected, so nothing is given to this consumer: start one; waiting for it"
            self._events("no_coordinator", {"group": self._group, "why": why, "level": "warning"})
        self._told = not serves


class Absences:
    """All checks for one consumer."""

    def __init__(self, group: str, topics: Sequence[str], wildcard: Wildcard | None, events: Events) -> None:
        self._topics = TopicCheck(group, topics, wildcard, events)
        self._coordinator = CoordinatorCheck(group, events)
        self._place = PlaceCheck(group, events)
        self._idle = True  # `idle` of the last call of `member`

    def begin(self) -> None:
        """A session begins."""
        self._idle = True
        self._coordinator.begin()
        self._place.begin()

    def join(self, tracker: Tracker, layout: Layout) -> None:
        """The consumer is about to register in a tree of this layout: have its topics looked up."""
        self._topics.begin(tracker, layout)
        self._place.join(layout)

    def member(self, tracker: Tracker, layout: Layout, now_ms: int, *, idle: bool) -> None:
        """Run the checks for a member. Called at each step; it does nothing for a member that goes on holding
        partitions."""
        if not idle and not self._idle:
            return
        self._idle = idle
        self._topics.member(tracker, now_ms, idle=idle)
        if not self._place.member(tracker, layout, now_ms, idle=idle):  # else a coordinator would give nothing anyway
            self._coordinator.member(tracker, layout, now_ms, idle=idle)

    @property
    def elsewhere(self) -> str | None:
        """Where the group is read and who must act, by the record that was read last. None: it is read here, or the
        record was not read."""
        return self._place.where

    def take_record(self, node: Node) -> None:
        """Take in a node that was read for another part of the role, if it is the group's record."""
        self._place.take(node)

    def take(self, node: Node, tracker: Tracker) -> None:
        """Take in a node that was read."""
        self._topics.take(node, tracker)
        self._coordinator.take(node)
        self._place.take(node)
