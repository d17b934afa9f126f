"""Turns owner nodes into owners, in each layout: it folds the nodes that were read. `tree.ownership` knows the nodes'
format.

A persistent node names the partition's owner. Where owners are claims, some partitions have an owner without a node.
First, a start reserves its partitions for its receiver until it is obeyed, while the receiver's registration exists.
Second, the partitions in an evicted consumer's mark count as its own until its grace is over
(`core.ownership.available`). These owners have the version -1: there is no node.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import START, Channel, GroupView, Member, Owner
from zkcoord.tree.copied import now, own
from zkcoord.tree.ownership import UNREADABLE_OWNER, is_draft_stop, owner_of
from zkcoord.tree.paths import Address
from zkcoord.tree.problems import Problems
from zkcoord.tree.snapshot import Node

NO_NODE = -1

Claims = Mapping[TopicPartition, Owner]


class OwnersFold(Protocol):
    """Takes in one batch of answers about owner nodes."""

    def take(self, address: Address, node: Node) -> None:
        """Take in an owner's node."""

    def take_list(self, address: Address, node: Node) -> None:
        """Take in the list of a topic's owners."""

    def unmarked(self, topic: str) -> None:
        """Take in that the topic's mark was removed."""

    def result(self, view: GroupView) -> GroupView:
        """Return the view with the owners after the batch."""

    @property
    def claims(self) -> Claims:
        """The claims that exist after the batch; empty where owners are persistent."""


def owners_fold(view: GroupView, claims: Claims, problems: Problems) -> OwnersFold:
    """Return the object that takes in a batch about this group's owners. `claims` are those that existed before."""
    return ClaimsFold(claims) if view.claims else PersistentFold(view, problems)


class PersistentFold:
    """Owner nodes below the marks of their topics. The mapping of all owners is copied once, and only if it changes."""

    def __init__(self, view: GroupView, problems: Problems) -> None:
        self._view, self._problems = view, problems
        self.claims: Claims = {}
        self._owners = view.owners  # the owners with the changes so far
        self._changed: dict[TopicPartition, Owner] | None = None  # the copy
        self._draft_stops: Set[TopicPartition] = view.draft_stops
        self._changed_stops: set[TopicPartition] | None = None
        self._dropped: set[str] = set()  # topics whose owners went with their mark, and are still to be taken out

    def take(self, address: Address, node: Node) -> None:
        """Take in an owner node."""
        partition = address.partition
        if partition is None:
            return
        if partition.topic in self._dropped:
            self._drop()
        known, stopped = self._owners.get(partition), is_draft_stop(node.data)
        if (stopped or self._draft_stops) and stopped is not (partition in self._draft_stops):  # usually there are none
            stops = self._own_stops()
            (stops.discard if partition in stops else stops.add)(partition)
        owner = None if node.stat is None else owner_of(node.data, node.stat.version)
        if owner is None and known is not None:
            del self._own_owners()[partition]
        if owner is None:
            return
        if owner != known:  # most are read again without a change, for which the mapping of all owners is not copied
            self._own_owners()[partition] = owner
        if owner.thread == UNREADABLE_OWNER:
            wrong = f"{node.data[:80]!r} is no thread id"
            act = f"an operator must set it empty, then run `zkcoord group rebalance {self._view.group}`"
            self._problems.note(node.path, f"{wrong}: {act}")
        elif self._problems.known:
            self._problems.note(node.path, None)

    def take_list(self, address: Address, node: Node) -> None:
        """Does nothing: the mark tells of the topic, and its partitions are known."""

    def unmarked(self, topic: str) -> None:
        """The mark was removed with everything below it."""
        self._dropped.add(topic)

    def result(self, view: GroupView) -> GroupView:
        """Return the view with the owners, and with the partitions whose draft-only owners were told to stop."""
        self._drop()
        if self._changed is not None:
            view = fast_replace(view, owners=self._changed)
        if self._changed_stops is not None:
            view = fast_replace(view, draft_stops=frozenset(self._changed_stops))
        return view

    def _drop(self) -> None:
        """Take out the owners of the dropped topics: once for all topics, since there may be thousands."""
        if not self._dropped:
            return
        owners = self._own_owners()
        for partition in [p for p in owners if p.topic in self._dropped]:
            del owners[partition]
        stops = [p for p in self._draft_stops if p.topic in self._dropped]
        if stops:
            self._own_stops().difference_update(stops)
        self._dropped.clear()

    def _own_owners(self) -> dict[TopicPartition, Owner]:
        if self._changed is None:
            self._owners = self._changed = dict(self._owners)
        return self._changed

    def _own_stops(self) -> set[TopicPartition]:
        if self._changed_stops is None:
            self._draft_stops = self._changed_stops = set(self._draft_stops)
        return self._changed_stops


class ClaimsFold:
    """Claims of consumers. The view's owners follow from the claims and from the channels (`effective_owners`)."""

    def __init__(self, before: Claims) -> None:
        self._before = before
        self._changed: dict[TopicPartition, Owner] | None = None  # the copy

    @property
    def claims(self) -> Claims:
        """The claims that exist after the batch. It is the earlier mapping if nothing has changed."""
        return now(self._changed, self._before)

    def take(self, address: Address, node: Node) -> None:
        """Take in a claim's node."""
        partition = address.partition
        if partition is None:
            return
        if node.stat is not None:
            self._changed = own(self._changed, self._before)
            self._changed[partition] = owner_of(node.data, node.stat.version)
        elif partition in self.claims:
            self._changed = own(self._changed, self._before)
            del self._changed[partition]

    def take_list(self, address: Address, node: Node) -> None:
        """Take in the list of a topic's claims. A partition that is not in it has no claim."""
        names, known = frozenset(node.children), self.claims
        gone = {p for p in known if p.topic == address.name and str(p.partition) not in names}
        if gone:
            self._changed = {p: owner for p, owner in known.items() if p not in gone}

    def unmarked(self, topic: str) -> None:
        """Does nothing: claims are not below marks, and go with their sessions."""

    def result(self, view: GroupView) -> GroupView:
        """Return the view unchanged."""
        return view


def inputs_of_owners(view: GroupView, claims: Claims) -> tuple[object, ...]:
    """The inputs from which the view's owners follow, in addition to their nodes. While these are the same objects, the
    owners are unchanged. Empty where the nodes alone decide."""
    return (claims, view.members, view.channels) if view.claims else ()


def effective_owners(
    claims: Claims, members: Mapping[str, Member], channels: Mapping[str, Channel]
) -> dict[TopicPartition, Owner]:
    """The owners of a group's view in a layout with claims. A claim counts most, an evicted consumer's mark least."""
    owners: dict[TopicPartition, Owner] = {}
    for consumer_id in sorted(channels):
        marked = channels[consumer_id].evicted_owned
        owners.update(dict.fromkeys(sorted(marked), Owner(f"{consumer_id}-0", NO_NODE)) if marked else {})
    for consumer_id in sorted(channels.keys() & members.keys()):
        for command in channels[consumer_id].commands:
            for partition, thread in (command.threads or {}).items() if command.option == START else ():
                owners[partition] = Owner(thread, NO_NODE)
    owners.update(claims)
    return owners
