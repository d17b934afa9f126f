"""Checks that each offset of a group was equal in both stores at least once, before the group moves away from `dual`.

Under traffic the offsets are never all equal at one moment. So the stores are read again and again, and each offset
counts once it was seen equal: Kafka's commit names the last write of the node, and has the same offset. On the way back
to `zookeeper` it is enough that the node holds the offset that counts, since Kafka is not read any more. (That is not
enough where others' commits count in `dual`, for example those of old members that committed only to Kafka: the group
would find such a commit when it comes back.)

Owners make their own partitions equal. Partitions without an owner are made equal here: the node is set to the offset
that counts, by version and with a check of the group's record; then the offset is committed to Kafka with the new
tenure. A consumer that is granted the partition meanwhile writes the node, too, and one of the two writes is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.offset_store import offset_store
from zkcoord.core.tenure import KafkaCommit, Rule, Stamp, Tenure, in_tenure
from zkcoord.errors import ZkcoordError
from zkcoord.offsets.earlier_topics import created_again
from zkcoord.offsets.ports import Commits, CommitStore, OffsetTree
from zkcoord.offsets.reading import GroupSeen, OffsetSeen, read_group_offsets
from zkcoord.offsets.writing import commit_part, make_parents
from zkcoord.shell.ports import Outcome
from zkcoord.tree.offset import encode_offset
from zkcoord.tree.paths import Layout
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, SetNode, Write, parts


class Difference(NamedTuple):
    """A partition whose offset was not seen equal yet, with the values that were read last."""

    partition: TopicPartition
    zookeeper: int | None
    kafka: int | None
    counts: int | None
    why: str


@dataclass(slots=True, kw_only=True)
class Equality:
    """The offsets of one group, on its way from `dual` to the store `goal`. Those of an earlier topic of the same name
    are left alone, as their coordinator drops them."""

    tree: OffsetTree
    commits: CommitStore
    layout: Layout
    tree_id: str
    group: str
    goal: str
    existing: Collection[TopicPartition]  # offsets of missing topics are left as they are, too
    rule: Rule = Rule.TENURE
    equal: set[TopicPartition] = field(default_factory=set)  # seen equal at least once
    _why: dict[TopicPartition, str] = field(default_factory=dict)  # the last error about a partition

    def look(self, members: Collection[str], guard: Sequence[CheckNode], now_ms: int) -> list[Difference]:
        """Read both stores once, and return the partitions that were never seen equal. Partitions that none of the
        `members` holds are made equal. Raises UsageError if the `guard` refuses that, and any error of Kafka or
        ZooKeeper about the whole group."""
        before = self._read()
        commits = self.commits.read([self.group]).of(self.group)
        topics = {partition.topic for partition in (*before.offsets, *commits)}
        earlier = set(created_again(self.tree.read, self.layout, self.group, topics))
        after = self._read()
        known = {*before.offsets, *after.offsets, *commits}
        wanted = {p for p in known if p in self.existing and p.topic not in earlier}
        left = sorted(p for p in wanted - self.equal if not self._is_equal(p, before, after, commits))
        self.equal |= wanted - set(left)
        free = [p for p in left if not _holders(p, before, after).intersection(members)]
        self._make_equal(free, after, commits, guard, now_ms)
        return [self._difference(p, after, commits) for p in left]

    @property
    def _in_both(self) -> bool:
        """True when Kafka must have each offset, too."""
        return self.rule is Rule.OLD_IN_KAFKA or not offset_store(self.goal).node_counts

    def _read(self) -> GroupSeen:
        return read_group_offsets(self.tree.read, self.layout, self.group)

    def _is_equal(self, partition: TopicPartition, before: GroupSeen, after: GroupSeen, commits: Commits) -> bool:
        """True if one of two readings of the node shows it: the owner may have committed to both stores in between."""
        commit, found = commits.get(partition), after.offsets.get(partition)
        if found is not None and found.problem is not None:
            return False
        return any(self._agree(seen, partition, commit) for seen in (before, after))

    def _agree(self, seen: GroupSeen, partition: TopicPartition, commit: KafkaCommit | None) -> bool:
        node, counts = seen.node(partition), self._counts(seen, partition, commit)
        if counts is None:
            return True  # the reset policy decides, in either store
        if node is None or node.offset != counts:
            return False
        # a commit in its tenure counts, so its offset is the node's
        return not self._in_both or (commit is not None and in_tenure(node, commit, self.tree_id))

    def _counts(self, seen: GroupSeen, partition: TopicPartition, commit: KafkaCommit | None) -> int | None:
        return seen.counts(partition, commit, self.tree_id, self.rule)

    def _make_equal(
        self,
        free: Collection[TopicPartition],
        seen: GroupSeen,
        commits: Commits,
        guard: Sequence[CheckNode],
        now_ms: int,
    ) -> None:
        """Set the nodes of these partitions to the offsets that count, and commit these to Kafka with the new
        tenures."""
        wanted: dict[TopicPartition, int] = {}
        for partition in free:
            found = seen.offsets.get(partition)
            if found is not None and found.problem is not None:
                self._why[partition] = f"{found.problem}: an operator must set it to a number"
                continue
            counts = self._counts(seen, partition, commits.get(partition))
            if counts is not None:
                wanted[partition] = counts
        if not wanted:
            return
        make_parents(self.tree, self.layout, self.group, {p.topic for p in wanted if p not in seen.offsets})
        for part in parts(wanted, lambda p: 2 * (WRITE_BYTES + len(self.layout.offset(self.group, p)))):
            writes = tuple(write for p in part for write in self._writes(p, wanted[p], seen.offsets.get(p)))
            done = commit_part(self.tree, (*guard, *writes), len(guard), self.group, "offsets that nobody holds")
            if done.outcome is Outcome.COMMITTED and self._in_both:
                stamps = {p: self._stamp(p, seen, done.zxid, now_ms) for p in part}
                self._commit({p: KafkaCommit(offset=wanted[p], stamp=stamps[p]) for p in part})

    def _writes(self, partition: TopicPartition, offset: int, found: OffsetSeen | None) -> Iterator[Write]:
        """Set the node. A new node is created and then set, since only setting it tells its tenure."""
        path, text = self.layout.offset(self.group, partition), encode_offset(offset)
        if found is None:
            yield CreateNode(path, text, shared=self.layout.shared(path))
        yield SetNode(path, text, 0 if found is None else found.version)

    def _stamp(self, partition: TopicPartition, seen: GroupSeen, mzxid: int, now_ms: int) -> Stamp:
        incarnation = seen.incarnations.get(partition.topic, 0)
        return Stamp(tenure=Tenure(self.tree_id, mzxid), incarnation=incarnation, at_ms=now_ms)

    def _commit(self, found: Commits) -> None:
        outcome = self.commits.commit(self.group, found)
        failed: Mapping[TopicPartition, ZkcoordError] = {**outcome.refused, **outcome.unknown}
        for partition in found:
            self._why.pop(partition, None)
        self._why |= {p: str(error) for p, error in failed.items()}

    def _difference(self, partition: TopicPartition, seen: GroupSeen, commits: Commits) -> Difference:
        node, commit = seen.node(partition), commits.get(partition)
        counts = self._counts(seen, partition, commit)
        why = self._why.get(partition, "")
        here = None if node is None else node.offset
        return Difference(partition, here, None if commit is None else commit.offset, counts, why)


def _holders(partition: TopicPartition, *seen: GroupSeen) -> set[str]:
    """The consumers that own the partition by any of these readings."""
    return {consumer_of(each.owners[partition]) for each in seen if partition in each.owners}
