"""Reads the offsets of many groups from ZooKeeper, in either layout, some groups at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import ZOOKEEPER, offset_store
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.tenure import KafkaCommit, OffsetNode, Rule, counted
from zkcoord.errors import CorruptError
from zkcoord.tree.bulk import Reading, children, data, data_below, two_levels
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import Layout, partition_number
from zkcoord.tree.record import record_in
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic import decode_mark

GROUPS_LISTED = 25
"""Number of groups whose topics and partitions are listed together."""

PARTITIONS_AT_ONCE = 20_000
"""Partitions whose offsets are in memory together (but a group is always read as a whole): about 20 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSeen:
    """An offset's node as it was read. The time of its last write is by the server's clock, for people."""

    node: OffsetNode
    version: int
    written_ms: int
    problem: str | None = None  # why it cannot be read as an offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """One group: its offsets, the owners of its partitions, and how its two stores are read."""

    group: str
    rule: Rule
    store: str  # that of the record; "old" if there is no record
    offsets: Mapping[TopicPartition, OffsetSeen]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> number; missing: not known
    problem: CorruptError | None = None  # why its record cannot be read
    larger_counts: bool = False  # old members, which may come, commit to both stores and use the larger offset

    def node(self, partition: TopicPartition) -> OffsetNode | None:
        """Return the partition's offset node. None: there is none."""
        found = self.offsets.get(partition)
        return None if found is None else found.node

    def counts(
        self, partition: TopicPartition, commit: KafkaCommit | None, tree: str, rule: Rule | None = None
    ) -> int | None:
        """Return the partition's offset that counts beside this commit in Kafka. None: the reset policy decides.

        `tree` is this tree's id. `rule` replaces the group's present rule.
        """
        incarnation = self.incarnations.get(partition.topic, 0)
        return counted(rule or self.rule, self.node(partition), commit, tree=tree, incarnation=incarnation).offset


def rule_of(layout: Layout, record: GroupRecord | None) -> Rule:
    """Return how the stores of a group with this record are read. `record` None: there is none."""
    if layout.name == "legacy" and (record is None or record.adoption is None):
        return Rule.OLD_DUAL
    known = record or DEFAULT_RECORD
    old = offset_store(ZOOKEEPER if known.adoption is None else known.adoption.store_name)
    if not known.store.tenured:
        return Rule.OLD_DUAL if old.tenured and old.node_counts else Rule.ZOOKEEPER
    return Rule.TENURE if old.node_counts else Rule.OLD_IN_KAFKA


class Kept(NamedTuple):
    """How a group keeps its offsets, by its record."""

    rule: Rule
    store: str  # that of the record; "old" if there is no record
    larger_counts: bool  # old members, which may come, commit to both stores and use the larger offset
    strangers_count: bool  # its consumers may continue from commits in Kafka that are not zkcoord's

    @property
    def node_counts(self) -> bool:
        """False when ZooKeeper has the offsets only as of the last checkpoint, or not at all."""
        return self.rule is not Rule.OLD_IN_KAFKA and offset_store(self.store).node_counts


def kept_by(layout: Layout, record: GroupRecord | None) -> Kept:
    """Return how a group with this record keeps its offsets. `record` None: there is none."""
    rule, adoption = rule_of(layout, record), record.adoption if record is not None else None
    store = "old" if record is None and layout.name == "legacy" else (record or DEFAULT_RECORD).store_name
    in_both = rule is Rule.TENURE and offset_store(store).node_counts
    larger_counts = rule is Rule.OLD_DUAL or (in_both and adoption is not None and adoption.dual_commit)
    followed = rule is Rule.OLD_IN_KAFKA or (rule is Rule.TENURE and not in_both)
    return Kept(rule, store, larger_counts, followed or (larger_counts and adoption is not None))


def read_group_offsets(read: Reading, layout: Layout, group: str) -> GroupSeen:
    """Return one group. Raises CorruptError if its record cannot be read."""
    ((seen,),) = read_offsets(read, layout, [group])
    if seen.problem is not None:
        raise seen.problem
    return seen


def read_offsets(
    read: Reading, layout: Layout, groups: Sequence[str], at_once: int = PARTITIONS_AT_ONCE
) -> Iterator[list[GroupSeen]]:
    """Return the groups, in this order, in batches of about `at_once` partitions."""
    rest = iter(groups)
    while listed := list(islice(rest, GROUPS_LISTED)):
        topics = children(read, [layout.offsets(group) for group in listed])
        names = children(
            read, [layout.topic_offsets(g, t) for g, n in zip(listed, topics, strict=True) for t in n.children]
        )
        counts = iter(len(node.children) for node in names)
        batch: list[str] = []
        total = 0
        for group, node in zip(listed, topics, strict=True):
            size = sum(islice(counts, len(node.children)))
            if batch and total + size > at_once:
                yield _together(read, layout, batch)
                batch, total = [], 0
            batch.append(group)
            total += size
        yield _together(read, layout, batch)


def _together(read: Reading, layout: Layout, groups: Sequence[str]) -> list[GroupSeen]:
    records = data(read, [layout.record(group) for group in groups])
    folders = children(read, [path for g in groups for path in (layout.offsets(g), layout.owners(g), layout.marks(g))])
    kept, owned, marked = folders[::3], folders[1::3], folders[2::3]
    offsets, owners = two_levels(read, kept), two_levels(read, owned)
    marks = data_below(read, marked)  # behind the offsets: if these were just dropped, it shows the later topic
    return [
        _group(
            layout,
            group,
            records[place],
            _by_partition(offsets[kept[place].path]),
            _by_partition(owners[owned[place].path]),
            marks[marked[place].path],
        )
        for place, group in enumerate(groups)
    ]


def _group(
    layout: Layout,
    group: str,
    record_node: Node,
    offsets: Mapping[TopicPartition, Node],
    owners: Mapping[TopicPartition, Node],
    marks: Mapping[str, Node],
) -> GroupSeen:
    record, problem = None, None
    try:
        record = record_in(record_node)
    except CorruptError as error:
        problem = error
    incarnations: dict[str, int] = {}
    for topic, node in marks.items():
        with suppress(CorruptError):  # `group describe` says what must be mended
            mark = decode_mark(node.data)
            incarnations |= {} if mark is None else {topic: mark.incarnation}
    kept = kept_by(layout, record)
    return GroupSeen(
        group=group,
        rule=kept.rule,
        larger_counts=kept.larger_counts,
        store=kept.store,
        offsets={partition: _offset(node) for partition, node in offsets.items()},
        owners={p: node.data.decode("utf-8", "backslashreplace") for p, node in owners.items() if node.data},
        incarnations=incarnations,
        problem=problem,
    )


def _by_partition(topics: Mapping[str, Mapping[str, Node]]) -> dict[TopicPartition, Node]:
    """The nodes by partition. Nodes whose names are no partitions belong to somebody else, and are left out."""
    found = {
        TopicPartition(topic, number): node
        for topic, nodes in topics.items()
        for name, node in nodes.items()
        if (number := partition_number(name)) is not None
    }
    return dict(sorted(found.items()))


def _offset(node: Node) -> OffsetSeen:
    offset, problem = None, None
    try:
        offset = decode_offset(node.data)
    except CorruptError as error:
        problem = str(error)
    stat = node.stat
    version, written_ms, mzxid = (-1, 0, 0) if stat is None else (stat.version, stat.mtime_ms, stat.mzxid)
    return OffsetSeen(node=OffsetNode(offset, mzxid), version=version, written_ms=written_ms, problem=problem)
