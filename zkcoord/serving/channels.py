"""Follows the nodes below a group's channels, and reads owners and statuses again after an acknowledgement.

Owners and statuses are not watched. So this remembers which partitions the coordinator's own commands named, and which
nodes were read after a channel's list in the same request. It looks up a consumer's partitions in the owners that were
read.

When the list of a channel that holds a command changes, the command was acknowledged, as a rule. The nodes with its
result are read in the same request, after the list: the status, and for a stop also the owners, for which a grant
waits. A member that releases only a part of a stop creates and deletes a child in that multi. Then the list changed
more often than its children show, and the nodes with the results of the stops that are still in it are read, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from zkcoord.core.command import Option
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import Owner
from zkcoord.serving.changes import more_than_shown
from zkcoord.serving.group_wants import GroupWants
from zkcoord.serving.owners import OwnerWatch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import REFUSED_MARK, Address, Layout, Place
from zkcoord.tree.snapshot import LIST, Kind, Node, Want
from zkcoord.tree.view import GroupNodes


@dataclass(slots=True)
class Channels:
    """The channels of one group. `before` and `after` are the group's nodes before and after a batch of answers."""

    group: str
    layout: Layout
    tracker: Tracker
    wants: GroupWants
    owners: OwnerWatch
    started: set[str] = field(default_factory=set)  # consumers that acknowledged starts; `OwnerRounds` clears it
    ended: dict[str, str] = field(default_factory=dict)
    # path of an owner that is read to learn whether its consumer, which is gone, has released everything -> that
    # consumer
    _owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)  # the owners from which `_owned` was made
    _owned: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    # consumer -> its partitions, sorted; invariant: made from `_owners`
    _sent: dict[str, set[TopicPartition]] = field(default_factory=dict)
    # consumer -> partitions that own commands named, while these were not seen in its channel: they may be obeyed
    # already
    _controls: set[tuple[str, str]] = field(default_factory=set)
    # (consumer, option) of own commands without partitions, likewise
    _read_at: dict[str, int] = field(default_factory=dict)
    # path -> place of its data in this batch, if the batch has a channel's list
    _place: int = 0  # the place of the node that is being followed
    _last: dict[str, str] = field(default_factory=dict)  # consumer -> path of its last command in this batch
    _last_read: dict[str, str] = field(default_factory=dict)  # the same, only of commands that were read
    _lists: dict[str, Node] = field(default_factory=dict)  # consumer -> its channel's list as last read

    # a batch of answers

    def begin(self, nodes: Sequence[tuple[Address, Node]]) -> None:
        """Begin a batch: these nodes are followed next, in this order."""
        others = [(address, node) for address, node in nodes if address.place is not Place.OWNER]  # usually few
        if any(address.place is Place.CHANNEL and node.kind is Kind.CHILDREN for address, node in others):
            self._read_at = {node.path: place for place, (_, node) in enumerate(nodes) if node.kind is Kind.DATA}
        for address, node in others:
            if address.place is Place.COMMAND and node.stat is not None:
                self._last[address.name] = node.path
                if node.stat.czxid:  # it was read, and not taken from the reply to an own write
                    self._last_read[address.name] = node.path

    def at(self, place: int) -> None:
        """Note the place of the node that is followed next: the nodes at later places were read after it."""
        self._place = place

    def end(self) -> None:
        """End the batch."""
        for known in (self._read_at, self._last, self._last_read):
            known.clear()

    def follow_list(self, before: GroupNodes, node: Node) -> None:
        """Take in the list of channels."""
        for consumer_id in before.view.channels.keys() - set(node.children):
            self._lists.pop(consumer_id, None)

    def follow_channel(self, before: GroupNodes, after: GroupNodes, consumer_id: str, node: Node) -> None:
        """Take in the list of one channel. A command that is no longer in it was acknowledged."""
        channel = before.view.channels.get(consumer_id)
        commands = {command.sequence: command for command in channel.commands} if channel else {}
        names = set(node.children)
        if REFUSED_MARK in names and (channel is None or not channel.refused_mark):
            # an own command may be known only since this batch, from the reply to its write
            now = after.view.channels.get(consumer_id)
            for command in now.commands if now is not None else ():
                self.tracker.touch(f"{node.path}/{command.sequence}", Kind.DATA)
        for sequence, command in commands.items():
            if sequence in names:
                continue
            self._touch_status(consumer_id)
            if command.option == Option.START_FETCHER.value and command.error is None:
                # the owners are known: its grant set them, or the list of claims told them
                self.started.add(consumer_id)
            elif command.threads is None:
                self._touch_owners_of(consumer_id, after)
            else:
                self._touch_owners(command.threads)
        results = self._read_beside(after, consumer_id)
        if more_than_shown(self._lists.get(consumer_id), node):
            self._touch_all(results)
        if node.exists:
            self._lists[consumer_id] = node
        else:
            self._lists.pop(consumer_id, None)

    def _read_beside(self, after: GroupNodes, consumer_id: str) -> list[str]:
        """Read the nodes that hold the results of the channel's commands together with its list. Returns the nodes in
        which a partial release leaves results."""
        channel, path = after.view.channels.get(consumer_id), self.layout.channel(self.group, consumer_id)
        commands = channel.commands if channel is not None else ()
        stops = [command.threads or {} for command in commands if command.option == Option.STOP_FETCHER.value]
        named = [partition for threads in stops for partition in threads]
        results = [path, *self.owners.nodes_of(named)]
        self.tracker.read_beside(path, Kind.CHILDREN, results if commands else ())
        return results if stops or self.layout.adopts else []  # members that follow a plan release without a command

    def follow_command(self, after: GroupNodes, address: Address, node: Node) -> None:
        """Take in a command."""
        if not node.exists:  # acknowledged before it was read: it may have been about any partition
            self._touch_status(address.name)
            self._touch_owners_of(address.name, after)
            return
        listed = LIST + self.layout.channel(self.group, address.name)
        if listed in self.wants:  # else the channel has gone meanwhile
            self.wants.listed(listed, (address.item,), lambda _: (Want(node.path),), all_of_it=False)
        last_read = node.path == self._last_read.get(address.name)
        if last_read or node.path == self._last[address.name]:  # only once in a batch, which may hold thousands
            results = self._read_beside(after, address.name)
            if last_read:
                self._touch_all(results)
        channel, sent = after.view.channels.get(address.name), self._sent.get(address.name)
        for command in channel.commands if channel is not None and sent else ():
            if command.sequence == address.item and sent:
                sent.difference_update(command.threads or ())

    def follow_status(self, before: GroupNodes, after: GroupNodes, consumer_id: str, node: Node) -> None:
        """Take in a status. The multi that writes a refusal also empties owners; the status tells which owners to
        read."""
        channel, known = after.view.channels.get(consumer_id), before.view.channels.get(consumer_id)
        # it is being deleted, which its list will tell, or it was created again since
        if channel is not None and not node.exists:
            self.tracker.touch(node.path, Kind.DATA)
        elif self.layout.channel(self.group, consumer_id) in after.problems:
            self._touch_owners_of(consumer_id, after)
        elif channel is not None:
            refusals = known.refusals if known is not None else {}
            self._touch_owners(p for p, refusal in channel.refusals.items() if refusals.get(p) != refusal)

    def follow_end(self, after: GroupNodes, consumers: Set[str]) -> None:
        """Read the last writes of these consumers, which are no longer members."""
        for consumer_id in sorted(consumers):
            self._touch_status(consumer_id)
            ends = self.owners.left_by_end(self._owned_by(consumer_id, after))
            self.ended |= dict.fromkeys(ends, consumer_id)
            self._touch_all(ends)

    def follow_owner(self, before: GroupNodes, after: GroupNodes, address: Address, node: Node) -> None:
        """Take in an owner of `ended`. If its consumer released it, the consumer has left, and released everything."""
        consumer_id, partition = self.ended.pop(node.path), address.partition
        if partition is not None and before.view.owners.get(partition) != after.view.owners.get(partition):
            self._touch_owners_of(consumer_id, after)

    # own commands

    def sent(self, consumer_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that an own command about these partitions was sent to this consumer."""
        self._sent.setdefault(consumer_id, set()).update(partitions)

    def sent_control(self, consumer_id: str, option: str) -> None:
        """Note that an own command with this option, without partitions, was sent."""
        self._controls.add((consumer_id, option))

    def look_again(self, nodes: GroupNodes) -> None:
        """Read the owners of partitions in own commands that were obeyed before their channel was read, if they are
        still followed.

        Called when everything is clean. A partition that no command in the channel names was acknowledged.
        """
        self.ended.clear()
        sent, self._sent = self._sent, {}
        controls, self._controls = self._controls, set()
        for consumer_id, option in sorted(controls):
            channel = nodes.view.channels.get(consumer_id)
            if channel is not None and not channel.outstanding(option):  # obeyed before its channel was read
                self._touch_status(consumer_id)
        for consumer_id, partitions in sent.items():
            channel = nodes.view.channels.get(consumer_id)
            unseen = [p for p in partitions if channel is None or not channel.names(p)]
            if unseen:
                self.started.add(consumer_id)
                self._touch_owners(unseen)
                self._touch_status(consumer_id)

    # nodes that become dirty

    def _touch_status(self, consumer_id: str) -> None:
        self._touch_all([self.layout.channel(self.group, consumer_id)])

    def _touch_owners(self, partitions: Iterable[TopicPartition]) -> None:
        self._touch_all(self.owners.nodes_of(partitions))

    def _touch_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self._read_at.get(path, -1) <= self._place:
                self.tracker.touch(path)

    def _touch_owners_of(self, consumer_id: str, nodes: GroupNodes) -> None:
        self._touch_owners(self._owned_by(consumer_id, nodes))

    def _owned_by(self, consumer_id: str, nodes: GroupNodes) -> Sequence[TopicPartition]:
        owners = nodes.view.owners
        if self._owners is not owners:  # made only when asked for, since owners change much more often
            self._owners, self._owned = owners, _by_consumer(owners)
        return self._owned.get(consumer_id, ())


def _by_consumer(owners: Mapping[TopicPartition, Owner]) -> dict[str, list[TopicPartition]]:
    threads: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, (thread, _) in owners.items():
        threads[thread].append(partition)
    consumers: dict[str, list[TopicPartition]] = defaultdict(list)
    for thread, partitions in threads.items():
        consumers[consumer_of(thread)] += partitions
    return {consumer_id: sorted(partitions) for consumer_id, partitions in consumers.items()}
