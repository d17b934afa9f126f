"""One reading of one group by the audit: what the tools read of it, its commits in Kafka, its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.group_report import GroupReport, read_group
from zkcoord.migrate import BlockingTree
from zkcoord.offsets.ports import Commits
from zkcoord.offsets.reading import GroupSeen, read_group_offsets
from zkcoord.offsets.verdict import Log
from zkcoord.offsets.verify import Logs
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.snapshot import Kind, Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A partition's offset that counts; `commit` is another value after each commit."""

    offset: int
    commit: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One group at one moment. `logs` is empty without Kafka."""

    report: GroupReport
    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    logs: Mapping[TopicPartition, Log] = field(default_factory=dict)
    strays: Mapping[str, str] = field(default_factory=dict)  # path -> what is odd about it
    served: bool = True  # a coordinator is elected


def read_seen(
    tree: BlockingTree, layout: Layout, group: str, *, served: bool, tree_id: str, logs: Logs, commits: Commits
) -> Seen:
    """Read one group; UsageError if there is none of that name."""
    report = read_group(tree, layout, group)
    try:
        offsets = _counting(read_group_offsets(tree.read, layout, group), commits, tree_id)
    except CorruptError:  # the report has it as a problem
        offsets = {}
    known = logs(sorted(offsets)) if offsets else {}
    return Seen(report=report, offsets=offsets, logs=known, strays=_strays(tree, layout, report), served=served)


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
    """Nodes below the group that belong to nothing that is there."""
    group, found = report.view.group, dict[str, str]()
    below, owned, topics = tree.read(
        [Read(path, Kind.CHILDREN) for path in (layout.group(group), layout.owners(group), layout.topics)]
    )
    for name in below.children:
        address = layout.parse(f"{layout.group(group)}/{name}")
        if address is None or address.place is Place.OTHER:
            found[f"{layout.group(group)}/{name}"] = "no program of zkcoord makes such a node"
    existing = set(topics.children)
    for topic in owned.children:
        if topic not in existing and topic not in report.view.changed:
            found[layout.topic_owners(group, topic)] = f"there is no topic {topic}"
    for consumer, channel in sorted(report.view.channels.items()):
        if consumer not in report.view.members and channel.evicted_ms is None:
            found[layout.channel(group, consumer)] = "nobody is registered under this id"
    return found
