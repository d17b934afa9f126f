"""One reading of one group by the audit: the report of the group, its commits in Kafka, and its partitions' logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count
from zkcoord.errors import CorruptError
from zkcoord.group_report import GroupReport, read_group
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.reading import GroupSeen, read_group_offsets
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.topic import topic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A partition's valid offset. `commit` has another value after each commit."""

    offset: int
    commit: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One group at one moment. `logs` is empty without Kafka."""

    report: GroupReport
    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    strays: Mapping[str, str] = field(default_factory=dict)  # path -> what is odd about it
    dropped: Collection[str] = ()  # those that a coordinator removes by itself, a minute after their topic
    served: bool = True  # True: a coordinator is elected


def read_seen(
    tree: BlockingTree, layout: Layout, group: str, *, served: bool, tree_id: str, logs: Logs, commits: Commits
) -> Seen:
    """Read one group; UsageError if there is none of that name."""
    report = read_group(tree, layout, group)
    try:
        offsets = _counting(read_group_offsets(tree.read, layout, group), commits, tree_id)
    except CorruptError:  # the report lists this problem
        offsets = {}
    known = logs(sorted(offsets)) if offsets else {}
    strays, changed = _strays(tree, layout, report), sorted(report.view.changed)
    dropped = {
        path for topic in changed for path in (layout.topic_owners(group, topic), layout.topic_offsets(group, topic))
    }
    return Seen(report=report, offsets=offsets, logs=known, strays=strays, dropped=dropped, served=served)


def _counting(seen: GroupSeen, commits: Commits, tree_id: str) -> dict[TopicPartition, Offset]:
    found = {}
    for partition in sorted(seen.offsets.keys() | commits.keys()):
        commit = commits.get(partition)
        offset = seen.counts(partition, commit, tree_id)
        node = seen.offsets.get(partition)
        if offset is not None and (node is None or node.problem is None):
            stamps = (node.version if node is not None else -1, commit.offset if commit is not None else -1)
            stamp = commit.stamp.at_ms if commit is not None and commit.stamp is not None else 0
            found[partition] = Offset(offset=offset, commit=(*stamps, stamp))
    return found


def _strays(tree: BlockingTree, layout: Layout, report: GroupReport) -> dict[str, str]:
    """Return the nodes below the group whose topic, partition or member does not exist, and nodes of other programs."""
    group, found = report.view.group, dict[str, str]()
    below, owned, kept, topics = tree.read(
        [
            Read(path, Kind.CHILDREN)
            for path in (layout.group(group), layout.owners(group), layout.offsets(group), layout.topics)
        ]
    )
    for name in below.children:
        address = layout.parse(f"{layout.group(group)}/{name}")
        if address is None or address.place is Place.OTHER:
            found[f"{layout.group(group)}/{name}"] = "no program of zkcoord makes such a node"
    existing = set(topics.children)
    for folder, path_of in ((owned, layout.topic_owners), (kept, layout.topic_offsets)):
        gone = [topic for topic in folder.children if topic not in existing]
        found |= {path_of(group, topic): f"there is no topic {topic}" for topic in gone}
    found |= _beyond(tree, layout, report, existing)
    for consumer, channel in sorted(report.view.channels.items()):
        if consumer not in report.view.members and channel.evicted_ms is None:
            found[layout.channel(group, consumer)] = "nobody is registered under this id"
    return found


def _beyond(tree: BlockingTree, layout: Layout, report: GroupReport, existing: Collection[str]) -> dict[str, str]:
    """Return owners and offsets of partitions that are not in their topic. A topic that was deleted or created again
    since it was marked is skipped."""
    view, found = report.view, dict[str, str]()
    having = {partition.topic for partition in report.partitions()}
    topics = sorted(having.intersection(existing) - view.changed.keys())
    for topic, node in zip(topics, tree.read([Read(layout.topic(t)) for t in topics]) if topics else (), strict=True):
        with suppress(CorruptError):  # the report lists this problem, or no member reads the topic
            numbers = set(topic_of(topic, node.data).partitions) if node.exists else set[int]()
            gone = [p for p in report.partitions() if p.topic == topic and p.partition not in numbers and numbers]
            what = f"topic {topic} has {count(len(numbers), 'partition')}"
            found |= {layout.owner(view.group, p): f"{what}, and no {p.partition}" for p in gone if p in view.owners}
            found |= {
                layout.offset(view.group, p): f"{what}, and no {p.partition}" for p in gone if p in report.offsets
            }
    return found
