"""Restores a backup: it creates missing nodes, and sets offsets. It never sets an offset back unless that is requested.

Restored are, for each group, what people decided, what coordinators remember, the topics' marks, and offsets.
Registrations, owners, channels and commands are not restored: consumers create them when they join again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import PAUSE
from zkcoord.core.tenure import Rule
from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.offsets.backup_file import Saved
from zkcoord.offsets.ports import OffsetTree
from zkcoord.offsets.reading import Kept, kept_by
from zkcoord.offsets.writing import (
    ATTEMPTS_MAX,
    NAMED_MAX,
    Change,
    Readers,
    by_tenure,
    changes,
    readers_of,
    write_offsets,
)
from zkcoord.shell.ports import Outcome, refuse_without_right
from zkcoord.tree.bulk import NODES_AT_ONCE, data
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import CANDIDATES, EPOCH, RECORDS, ROOT, SCHEMA, Layout, Place
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.schema import decode_schema, encode_schema
from zkcoord.tree.snapshot import parents
from zkcoord.tree.topic import decode_mark, mark_in_a_copy
from zkcoord.tree.writes import CreateNode, SetNode, Transaction

OWN = (ROOT, EPOCH, SCHEMA, CANDIDATES, RECORDS)

MADE = (Place.RECORD, Place.STATE, Place.INSTANCES, Place.INSTANCE, Place.MARK)
"""Nodes of a group that are created if they are missing, and left alone if they exist."""


@dataclass(slots=True)
class LeftOut:
    """Number of offsets that were left out, and the first of them."""

    count: int = 0
    named: list[TopicPartition] = field(default_factory=list)

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Count some more."""
        self.count += len(partitions)
        self.named = sorted([*self.named, *partitions])[:NAMED_MAX]


@dataclass(slots=True)
class Restored:
    """The result of a restore, or of a dry run, for one group."""

    nodes: int = 0  # number of created nodes, without offsets
    offsets: int = 0  # number in the backup
    created: int = 0
    raised: int = 0
    lowered: int = 0
    kept: LeftOut = field(default_factory=LeftOut)  # offsets that are further in the tree
    other_topic: LeftOut = field(default_factory=LeftOut)  # the topic was created again since the backup
    unreadable: int = 0
    in_kafka: bool = False
    # it commits to Kafka, too: where an offset's node is created, commits since the backup do not count any more
    strangers_count: bool = False  # it may continue from other programs' commits in Kafka, whatever its nodes hold


@dataclass(slots=True)
class Restore:
    """One restore of one file. `groups`: only these; None: all. `obstacles`: why a dry run found that it would be
    refused."""

    tree: OffsetTree
    layout: Layout
    groups: Collection[str] | None = None
    rewind: bool = False
    dry_run: bool = False
    done: dict[str, Restored] = field(default_factory=dict)
    obstacles: dict[str, str] = field(default_factory=dict)  # group -> obstacle, with who must act
    _copy: bool = True  # True if the tree is not the one that was backed up
    _incarnations: dict[tuple[str, str], int] = field(default_factory=dict)  # (group, topic) -> number in the backup
    _records: dict[str, bytes] = field(default_factory=dict)  # group -> its record in the backup

    def survey(self, saved: Iterable[Saved]) -> None:
        """Look through the backup first. Raises UsageError for a group that is not in the backup. Unless it is a dry
        run, also raises it while a consumer is registered in a group to be restored, or if a tool is moving the group,
        or it went to another tree."""
        names: set[str] = set()
        (schema,) = data(self.tree.read, [SCHEMA])
        for each in saved:
            if each.path == SCHEMA:
                self._copy = not _same_tree(each.data, schema.data)
            address = self.layout.parse(each.path)
            if address is None or not self._wanted(address.group):
                continue
            names.add(address.group)
            if address.place is Place.RECORD:
                self._records[address.group] = each.data
            incarnation = _incarnation(each.data) if address.place is Place.MARK else None
            if incarnation is not None:
                self._incarnations[address.group, address.name] = incarnation
        missing = sorted(set(self.groups or ()) - names)
        if missing:
            raise UsageError(f"the backup has no group {missing[0]}")
        for name in sorted(names):
            self._look_at(name)
            if (kept := self._kept(name)) is not None:
                report = self._of(name)
                report.in_kafka = kept.rule in (Rule.TENURE, Rule.OLD_IN_KAFKA)
                report.strangers_count = kept.strangers_count

    def _look_at(self, group: str) -> None:
        try:
            self._without_members(group)
        except UsageError as error:
            if not self.dry_run:
                raise
            self.obstacles[group] = str(error)

    def _without_members(self, group: str) -> Readers:
        """Return the readers of the group. Raises UsageError while a consumer is registered in it, a tool moves it, or
        it went to another tree."""
        readers = readers_of(self.tree.read, self.layout, group)
        self._refuse_moved(group)
        members = (*readers.ours, *readers.others)
        if members:
            raise UsageError(
                f"group {group} has members ({', '.join(members[:NAMED_MAX])}): stop its consumers, or restore other"
                " groups (--group)"
            )
        return readers

    def _refuse_moved(self, group: str) -> None:
        """Refuse a group that a move concerns. After a move's comparison nobody would see the restored data, in either
        tree. Of a group that went elsewhere, nobody reads the data here. (A move that is also in the backup comes back
        with it.)"""
        (present,) = data(self.tree.read, [self.layout.record(group)])
        moved = _moved(present.data)
        if moved is not None and moved != _moved(self._records.get(group, b"")):
            gone = moved.state is MoveState.GONE
            how = "nothing is changed here: set its offsets there" if gone else "end that move first"
            raise UsageError(f"group {group} {moved.where()}: {how}, or restore other groups (--group)")

    def _kept(self, group: str) -> Kept | None:
        """How the group keeps its offsets, by its record after the restore: an existing record stays. None: the record
        cannot be parsed."""
        (present,) = data(self.tree.read, [self.layout.record(group)])
        text = present.data if present.exists else self._records.get(group, b"")
        with suppress(CorruptError):
            return kept_by(self.layout, decode_record(text) if text else None)
        return None

    def carry_out(self, saved: Iterable[Saved]) -> None:
        """Create the nodes in the order of the backup, then set the offsets. It may be run again if it broke off."""
        rest = iter(saved)
        while part := list(islice(rest, NODES_AT_ONCE)):
            offsets: dict[str, dict[TopicPartition, int]] = {}
            made: list[tuple[str, Saved]] = []
            for each in part:
                address = self.layout.parse(each.path)
                if address is None or not self._wanted(address.group):
                    continue
                if address.place is Place.OFFSET and address.partition is not None:
                    self._offset(address.group, address.partition, each, offsets)
                elif address.place in MADE:
                    made.append((address.group, each))
            self._make(made)
            for group, wanted in offsets.items():
                self._set(group, wanted)

    def _wanted(self, group: str) -> bool:
        return bool(group) and (self.groups is None or group in self.groups)

    def _of(self, group: str) -> Restored:
        return self.done.setdefault(group, Restored())

    def _offset(
        self, group: str, partition: TopicPartition, each: Saved, offsets: dict[str, dict[TopicPartition, int]]
    ) -> None:
        try:
            offset = decode_offset(each.data)
        except CorruptError:
            self._of(group).unreadable += 1
            return
        if offset is not None:
            offsets.setdefault(group, {})[partition] = offset
            self._of(group).offsets += 1

    def _make(self, made: list[tuple[str, Saved]]) -> None:
        wanted = {path: b"" for _, each in made for path in parents(each.path)}
        wanted |= {each.path: _quiet(self.layout, each, self._copy) for _, each in made}
        missing = dict.fromkeys(node.path for node in data(self.tree.read, list(wanted)) if not node.exists)
        for group, each in made:
            self._of(group).nodes += each.path in missing
        for path in missing if not self.dry_run else ():
            _create(self.tree, CreateNode(path, wanted[path], shared=self.layout.shared(path)))

    def _set(self, group: str, wanted: dict[TopicPartition, int]) -> None:
        report = self._of(group)
        other = {topic for topic in {p.topic for p in wanted} if self._is_other(group, topic)}
        report.other_topic.add([p for p in wanted if p.topic in other])
        own = {p: offset for p, offset in wanted.items() if p.topic not in other}
        tenure = by_tenure(self.tree.read, self.layout, group)  # then a commit in Kafka may be further than any node
        found = changes(self.tree.read, self.layout, group, own, own if tenure and self.rewind else ())

        def due(change: Change) -> bool:
            further = change.before is not None and (tenure or change.after < change.before)
            return self.rewind or not further

        todo = [change for change in found if due(change)]
        if todo and not self.dry_run:
            offsets = {change.partition: change.after for change in todo}
            guard = self._without_members(group).guard
            why = "a restore"
            todo = write_offsets(self.tree, self.layout, group, offsets, guard=guard, why=why, due=due)
        written = {change.partition for change in todo}
        report.kept.add([c.partition for c in found if c.partition not in written and c.before != c.after])
        for change in todo:
            report.created += change.before is None
            report.lowered += change.before is not None and change.after < change.before
            report.raised += change.before is not None and change.after > change.before

    def _is_other(self, group: str, topic: str) -> bool:
        """True when the tree's mark names another incarnation of the topic than the backup's."""
        backed_up = self._incarnations.get((group, topic))
        (node,) = data(self.tree.read, [self.layout.mark(group, topic)])
        present = _incarnation(node.data)
        return backed_up is not None and present is not None and present != backed_up


def first_nodes(tree: OffsetTree, saved: Iterable[Saved], layout: Layout, tree_id: str) -> None:
    """Create the nodes of the tree itself. The schema comes last: before it nobody is elected, and nobody joins.

    A tree that is created here, or has no id, gets `tree_id`: references to the backup's tree do not count in the copy.
    An existing tree keeps its id.
    """
    own = {each.path: each.data for each in saved if each.path in (*OWN, layout.groups)}
    schema = own.pop(SCHEMA, None)
    for path in parents(layout.groups):
        own.setdefault(path, b"")
    if layout.channels is not None and schema is not None:
        own[layout.channels] = b""
    for path, text in sorted(own.items(), key=lambda item: item[0].count("/")):
        _create(tree, CreateNode(path, text, shared=layout.shared(path)))
    (present,) = data(tree.read, [SCHEMA])
    if present.stat is not None:
        named = decode_schema(present.data)
        if not named.tree_id:
            _write(tree, SetNode(SCHEMA, encode_schema(replace(named, tree_id=tree_id)), present.stat.version))
    elif schema is not None:
        copy = replace(decode_schema(schema), migration=None, tree_id=tree_id)
        _create(tree, CreateNode(SCHEMA, encode_schema(copy)))


def _same_tree(saved: bytes, present: bytes) -> bool:
    """True when both schemas name the same tree."""
    with suppress(CorruptError):
        return bool(present) and decode_schema(saved).tree_id == decode_schema(present).tree_id != ""
    return False


def _quiet(layout: Layout, saved: Saved, copy: bool) -> bytes:
    """The node's data. A record loses its requests, whose tools are gone. A mark in a copy loses its zxids.

    A group that was handed over to Kafka's consumers stays handed over, since these may read it.
    """
    address = layout.parse(saved.path)
    if address is not None and address.place is Place.MARK and copy:
        return mark_in_a_copy(saved.data)
    if address is not None and address.place is Place.RECORD:
        with suppress(CorruptError):
            record = decode_record(saved.data)
            stays = {PAUSE: record.requests[PAUSE]} if record.handed_over else {}
            return encode_record(replace(record, requests=stays, responses={})) if saved.data else b""
    return saved.data


def _moved(record: bytes) -> Moved | None:
    with suppress(CorruptError):
        return decode_record(record).moved if record else None
    return None


def _incarnation(text: bytes) -> int | None:
    with suppress(CorruptError):
        mark = decode_mark(text)
        return None if mark is None else mark.incarnation
    return None


def _create(tree: OffsetTree, node: CreateNode) -> None:
    """Create a node. It is fine if somebody else has created it."""
    _write(tree, node, welcome="NodeExists")


def _write(tree: OffsetTree, write: CreateNode | SetNode, welcome: str = "") -> None:
    for _ in range(ATTEMPTS_MAX):
        done = tree.commit(Transaction(writes=(write,), why="a restore"))
        if done.outcome is Outcome.COMMITTED or (done.reason and done.reason == welcome):
            return
        refuse_without_right(done, write.path)
        if done.outcome is Outcome.REFUSED:
            break
        tree.sync()
    raise UnavailableError(f"{write.path} could not be written ({done.reason or 'no answer'}): run it again")
