"""What a consumer misses is told to its user: topics, a coordinator, or the group itself, which is read elsewhere. It
would wait for them in silence."""

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
"""A member that held nothing for so long looks whether a coordinator serves. One that is told to start sooner need not,
and a failover, after the old node is gone, is over sooner."""


class CoordinatorCheck:
    """Watches the coordinator's node, but only for a member that holds nothing: a failover wakes nobody who reads."""

    def __init__(self, group: str, events: Events) -> None:
        self._group, self._events = group, events
        self._told = False  # that nobody is elected
        self._forget()

    def _forget(self) -> None:
        self._path = ""  # of the coordinator's node, while it is watched
        self._absent_since_ms: int | None = None  # nobody serves, or nobody has looked yet
        self._seen: bool | None = None  # the node, as read last; None: not read yet

    def begin(self) -> None:
        """A session begins: nothing is known, and nothing watched."""
        self._forget()

    def member(self, tracker: Tracker, layout: Layout, now_ms: int, *, idle: bool) -> None:
        """It is a member, and holds something or not: now and then, at least each sixth of the session timeout."""
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
        if self._seen and not node.exists:
            self._absent_since_ms = None  # from now on
        self._seen = node.exists

    def _serves(self, serves: bool) -> None:
        if serves and self._told:
            self._events("coordinator_elected", {"group": self._group, "level": "notice"})
        elif not serves and not self._told:
            why = "no coordinator is elected, so nothing is given to this consumer: start one; waiting for it"
            self._events("no_coordinator", {"group": self._group, "why": why, "level": "warning"})
        self._told = not serves


class Absences:
    """All checks of one consumer."""

    def __init__(self, group: str, topics: Sequence[str], wildcard: Wildcard | None, events: Events) -> None:
        self._topics = TopicCheck(group, topics, wildcard, events)
        self._coordinator = CoordinatorCheck(group, events)
        self._place = PlaceCheck(group, events)
        self._idle = True  # when it was last asked

    def begin(self) -> None:
        """A session begins."""
        self._idle = True
        self._coordinator.begin()
        self._place.begin()

    def join(self, tracker: Tracker, layout: Layout) -> None:
        """It is about to register in a tree of this layout: have the topics looked for."""
        self._topics.begin(tracker, layout)
        self._place.join(layout)

    def member(self, tracker: Tracker, layout: Layout, now_ms: int, *, idle: bool) -> None:
        """It is a member, and holds something or not. Asked at each step: one that goes on holding misses nothing."""
        if not idle and not self._idle:
            return
        self._idle = idle
        self._topics.member(tracker, now_ms, idle=idle)
        if not self._place.member(tracker, layout, now_ms, idle=idle):  # else a coordinator would give it nothing
            self._coordinator.member(tracker, layout, now_ms, idle=idle)

    @property
    def elsewhere(self) -> str | None:
        """Where the group is read, and who must act, as its record was read last; None: here, or it was not read."""
        return self._place.where

    def take_record(self, node: Node) -> None:
        """Take in an answer that is somebody else's, if it is the group's record."""
        self._place.take(node)

    def take(self, node: Node, tracker: Tracker) -> None:
        """Take in an answer."""
        self._topics.take(node, tracker)
        self._coordinator.take(node)
        self._place.take(node)
