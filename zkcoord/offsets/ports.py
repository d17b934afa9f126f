"""The interfaces of the two stores: reading and committing groups' offsets in Kafka, and ZooKeeper for tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.errors import ZkcoordError
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction

Commits = Mapping[TopicPartition, KafkaCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommits:
    """Group -> its commits (empty: Kafka has none), and for each other group why they are not known."""

    found: Mapping[str, Commits]
    unknown: Mapping[str, ZkcoordError]

    def of(self, group: str) -> Commits:
        """Return the group's commits. Raises the error if they are not known."""
        if group in self.unknown:
            raise self.unknown[group]
        return self.found[group]


class CommitStore(Protocol):
    """Offsets of consumer groups in Kafka. Errors about single groups or partitions are not raised, but returned."""

    def read(self, groups: Collection[str]) -> ReadCommits:
        """Return all commits of these groups, with one request for each group, all under way at once."""

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        """Commit these offsets. Kafka refuses while a consumer of Kafka's own protocol uses the group id."""


class GroupStore(CommitStore, Protocol):
    """A `CommitStore` that also knows who else uses a group id in Kafka. It raises errors."""

    def users(self, group: str) -> Sequence[str]:
        """Return the consumers of Kafka's own protocol in this group, for people."""

    def forget(self, group: str) -> None:
        """Remove all commits of this group, if there are any. Kafka refuses while a consumer of its own protocol is in
        the group."""


class OffsetTree(Protocol):
    """ZooKeeper, as tools that write offsets need it. Each call waits for its answer."""

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]: ...

    def commit(self, transaction: Transaction) -> CommitDone: ...

    def sync(self) -> None: ...
