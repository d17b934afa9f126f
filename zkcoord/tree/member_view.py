"""Turns znodes into a member's view of itself. The member's role adds everything that is no node.

A command or an offset that cannot be parsed never stops the fold. It becomes a command with an error, or a position
with a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.member.view import NOBODY, NOWHERE, MemberView, Position, Received
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.errors import CorruptError
from zkcoord.tree.command import decode_command, is_refused
from zkcoord.tree.copied import now, own
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import EVICTED_MARK, REFUSED_MARK, Place, is_sequence
from zkcoord.tree.snapshot import Kind, Node, Stat


@dataclass(frozen=True, kw_only=True)
class MemberNodes:
    """One member as it was read: the view, and the values that only reads and writes need."""

    paths: MemberPaths
    view: MemberView = field(default_factory=MemberView)
    commands: Mapping[str, Node] = field(default_factory=dict)  # by sequence, as they were read
    made: int = 0  # how many commands were ever created in the channel; it is the number of the next one
    ahead: Node | None = None  # the next command, if it was read before the list showed it; its data does not change
    parents: Mapping[str, bool] = field(default_factory=dict)  # nodes above offsets and claims -> whether each exists
    sent: tuple[bytes, MemberStatus] | None = None  # the status that was sent last

    def missing_parents(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The parents of these partitions' offset nodes that do not exist, outermost first."""
        return self.missing(self.paths.above_offsets(partitions))

    def missing(self, parents: Iterable[str]) -> list[str]:
        """Those of these parents that do not exist."""
        return [path for path in parents if not self.parents.get(path, True)]


def unread(paths: MemberPaths) -> MemberNodes:
    """A member of which nothing has been read."""
    return MemberNodes(paths=paths, view=MemberView(claims=paths.layout.ownership.claimed))


class Places(NamedTuple):
    """Path -> partition, for the followed owner and offset nodes: so their paths need not be parsed."""

    owners: Mapping[str, TopicPartition]
    offsets: Mapping[str, TopicPartition]


NO_PLACES = Places({}, {})


def fold(before: MemberNodes, nodes: Iterable[Node], places: Places = NO_PLACES) -> MemberNodes:
    """The member after these answers, which came together. The list is taken in last, since a command may have come
    together with it."""
    folder = _Folder(before)
    offsets = places.offsets
    for node in nodes:
        partition = offsets.get(node.path)
        if partition is not None:  # there are many
            folder.offset(partition, node)
        elif (partition := places.owners.get(node.path)) is not None:
            folder.owner(partition, node)
        else:
            folder.take(node)
    return folder.result()


def follow(before: MemberNodes, known: Mapping[TopicPartition, Owner]) -> MemberNodes:
    """Return the member with these owners, as a start told them."""
    return fast_replace(before, view=fast_replace(before.view, owners={**before.view.owners, **known}))


def let_go(before: MemberNodes, partitions: Iterable[TopicPartition]) -> MemberNodes:
    """Return the member without the nodes of these partitions."""
    view = before.view
    owners, positions = dict(view.owners), dict(view.positions)
    for partition in partitions:
        owners.pop(partition, None)
        positions.pop(partition, None)
    view = fast_replace(view, owners=owners, positions=positions, fresh=view.fresh.difference(partitions))
    return fast_replace(before, view=view)


_PARENTS = frozenset({Place.OFFSETS, Place.OWNERS, Place.CLAIMS})


class _Folder:
    """Collects the changes of one batch. Each mapping is copied once, and only if it changes."""

    # copies of the earlier mappings; None: that mapping has not changed
    _commands: dict[str, Received | None] | None = None
    _owners: dict[TopicPartition, Owner] | None = None
    _positions: dict[TopicPartition, Position] | None = None
    _command_nodes: dict[str, Node] | None = None
    _parents: dict[str, bool] | None = None

    def __init__(self, before: MemberNodes) -> None:
        self._before, self._paths, self._known = before, before.paths, before.view
        self._view, self._made, self._ahead = before.view, before.made, before.ahead  # the view without those mappings
        self._fresh: list[TopicPartition] = []
        self._listed: Node | None = None
        self._channel = f"{before.paths.channel}/"

    def result(self) -> MemberNodes:
        """The member after the batch."""
        if self._listed is not None:
            self._list(self._listed)
        view, before = self._view, self._before
        if self._fresh:
            owners, positions = now(self._owners, view.owners), now(self._positions, view.positions)
            view = fast_replace(view, owners=owners, positions=positions, fresh=view.fresh.union(self._fresh))
        if self._commands is not None:
            view = fast_replace(view, commands=self._commands)
        if self._command_nodes is not None or self._made != before.made or self._ahead is not before.ahead:
            commands = now(self._command_nodes, before.commands)
            before = fast_replace(before, commands=commands, made=self._made, ahead=self._ahead)
        if self._parents is not None:
            before = fast_replace(before, parents=self._parents)
        return before if view is self._known else fast_replace(before, view=view)

    def take(self, node: Node) -> None:
        """Take in one answer."""
        path, paths = node.path, self._paths
        if path == paths.registration:
            self._missing(node)
        elif path == paths.channel:
            if node.kind is Kind.CHILDREN:
                self._listed = node
            else:
                self._status(node)
        elif path.startswith(self._channel):
            self._command(path[len(self._channel) :], node)
        else:
            self._partition(node)

    def _missing(self, node: Node) -> None:
        missing = self._view.missing
        if node.exists is (node.path in missing):
            missing = missing - {node.path} if node.exists else missing | {node.path}
            self._view = fast_replace(self._view, missing=missing)

    def _status(self, node: Node) -> None:
        sent = self._before.sent
        status = sent[1] if sent is not None and node.data == sent[0] else None
        self._view = fast_replace(self._view, status_version=node.stat.version if node.stat else 0, status=status)

    def _partition(self, node: Node) -> None:
        found = self._paths.layout.partition_at(node.path)
        if found is None:
            address = self._paths.layout.parse(node.path)
            if address is not None and address.place in _PARENTS:
                self._parents = own(self._parents, self._before.parents)
                self._parents[node.path] = node.exists
            return
        place, partition = found
        (self.owner if place is Place.OWNER else self.offset)(partition, node)

    def owner(self, partition: TopicPartition, node: Node) -> None:
        """Take in an owner node."""
        if self._owners is None:
            self._owners = dict(self._known.owners)
        self._owners[partition] = _owner(node)
        self._fresh.append(partition)

    def offset(self, partition: TopicPartition, node: Node) -> None:
        """Take in an offset node."""
        if self._positions is None:
            self._positions = dict(self._known.positions)
        self._positions[partition] = NOWHERE if node.stat is None else _position(node, node.stat)
        self._fresh.append(partition)

    def _command(self, sequence: str, node: Node) -> None:
        if sequence in now(self._commands, self._known.commands):
            self._read(sequence, node)
        elif node.exists and int(sequence) == self._before.made:
            self._ahead = node

    def _read(self, sequence: str, node: Node) -> None:
        commands = self._commands = own(self._commands, self._known.commands)
        nodes = self._command_nodes = own(self._command_nodes, self._before.commands)
        if node.stat is None:
            commands.pop(sequence, None)
            nodes.pop(sequence, None)
            return
        commands[sequence] = _received(sequence, node, node.stat)
        nodes[sequence] = node

    def _list(self, node: Node) -> None:
        """Take in the list. Its names show which commands exist. The server numbers commands one by one, so the next
        one's name is known."""
        self._missing(node)
        names = frozenset(node.children)
        evicted, refused_mark = EVICTED_MARK in names, REFUSED_MARK in names
        if (evicted, refused_mark) != (self._view.evicted, self._view.refused_mark):
            self._view = fast_replace(self._view, evicted=evicted, refused_mark=refused_mark)
        sequences = {name for name in names if is_sequence(name)}
        before, ahead = self._before, self._ahead
        known = now(self._commands, self._known.commands)
        for gone in known.keys() - sequences:
            commands = self._commands = own(self._commands, self._known.commands)
            nodes = self._command_nodes = own(self._command_nodes, before.commands)
            commands.pop(gone)
            nodes.pop(gone, None)
        for new in sorted(sequences - known.keys()):
            commands = self._commands = own(self._commands, self._known.commands)
            commands[new] = None
            if ahead is not None and int(new) == before.made:
                self._read(new, ahead)
        # the number of commands ever created here
        made = (node.stat.child_changes + len(node.children)) // 2 if node.stat else 0
        if made != before.made:
            self._made, self._ahead = made, None


def _owner(node: Node) -> Owner:
    return NOBODY if node.stat is None else Owner(node.data.decode("utf-8", "replace"), node.stat.version)


def _position(node: Node, stat: Stat) -> Position:
    try:
        return Position(decode_offset(node.data), stat.version, None, stat.mzxid)
    except CorruptError as error:
        problem = f"{node.path}: {error}: an operator must set the offset"
        return Position(None, stat.version, problem, stat.mzxid)


def _received(sequence: str, node: Node, stat: Stat) -> Received:
    command, error = None, ""
    try:
        command = decode_command(node.data)
    except CorruptError as wrong:
        error = "" if is_refused(node.data) else str(wrong)
    size = len(node.data)
    return Received(
        sequence=sequence, version=stat.version, command=command, error=error, size=size, made_ms=stat.mtime_ms
    )
