"""Compares both stores for many groups, in batches. Each store is asked for all groups of a batch together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit
from zkcoord.errors import ZkcoordError
from zkcoord.offsets.ports import Commits, CommitStore
from zkcoord.offsets.readable import Readable
from zkcoord.offsets.reading import GroupSeen, OffsetSeen, read_offsets
from zkcoord.offsets.verdict import Judged, Log, judge
from zkcoord.tree.bulk import Reading
from zkcoord.tree.paths import Layout

Logs = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Log]]
"""Asks Kafka for logs. Logs that it does not know are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerified:
    """One partition of one group, as both stores have it. `log` None: Kafka does not tell it."""

    partition: TopicPartition
    here: OffsetSeen | None  # in ZooKeeper
    there: KafkaCommit | None  # in Kafka
    owner: str | None
    log: Log | None
    judged: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerified:
    """One group: all partitions of which a store has an offset, whoever holds them. `problem`: why they are not
    known."""

    group: str
    store: str
    partitions: Sequence[PartitionVerified] = ()
    problem: ZkcoordError | None = None


def verify(
    read: Reading, commits: CommitStore, logs: Logs, layout: Layout, groups: Sequence[str], *, tree: str = ""
) -> Iterator[GroupVerified]:
    """Return the groups, in this order. A group that cannot be read does not stop the others.

    Logs are requested after the offsets. So an offset that is committed meanwhile cannot seem to be beyond its log.
    """
    readable = Readable(read, layout)
    for batch in read_offsets(readable.read, layout, groups):
        answer = commits.read([seen.group for seen in batch])
        known = logs({p for seen in batch for p in (*seen.offsets, *answer.found.get(seen.group, ()))})
        for seen in batch:
            problem = readable.problem(seen.group) or answer.unknown.get(seen.group)
            if problem is not None:
                yield GroupVerified(group=seen.group, store=seen.store, problem=problem)
            else:
                yield _verified(seen, answer.found[seen.group], known, tree)


def _verified(seen: GroupSeen, commits: Commits, logs: Mapping[TopicPartition, Log], tree: str) -> GroupVerified:
    rows = []
    for partition in sorted({*seen.offsets, *commits}):
        here, there, owner = seen.offsets.get(partition), commits.get(partition), seen.owners.get(partition)
        judged = judge(
            seen.rule,
            None if here is None else here.node,
            there,
            tree=tree,
            incarnation=seen.incarnations.get(partition.topic, 0),
            held=owner is not None,
            log=logs.get(partition),
        )
        rows.append(
            PartitionVerified(
                partition=partition, here=here, there=there, owner=owner, log=logs.get(partition), judged=judged
            )
        )
    return GroupVerified(group=seen.group, store=seen.store, partitions=rows, problem=seen.problem)
