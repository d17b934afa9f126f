"""The interfaces of the two stores: offsets of groups in Kafka, read and committed; ZooKeeper for tools."""

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
    """Group -> its commits (empty: Kafka knows none), and for every other group why they are not known."""

    found: Mapping[str, Commits]
    unknown: Mapping[str, ZkcoordError]

    def of(self, group: str) -> Commits:
        """Return the group's commits; raises why they are not known."""
        if group in self.unknown:
            raise self.unknown[group]
        return self.found[group]


class CommitStore(Protocol):
    """Offsets of consumer groups in Kafka. Raises nothing that concerns single groups or partitions."""

    def read(self, groups: Collection[str]) -> ReadCommits:
        """Return all commits of these groups; one request a group, all of them at once."""

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        """Commit these offsets. Kafka refuses while a consumer of Kafka's own protocol uses the group id."""


class GroupStore(CommitStore, Protocol):
    """A `CommitStore` that also knows who else uses a group id in Kafka. Raises what it cannot do."""

    def users(self, group: str) -> Sequence[str]:
        """Return the consumers of Kafka's own protocol in this group, for people."""

    def forget(self, group: str) -> None:
        """Remove all commits of this group; nothing if there are none. Kafka refuses while such a consumer is there."""


class OffsetTree(Protocol):
    """ZooKeeper, as the tools that write offsets need it; each call waits for its answer."""

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]: ...

    def commit(self, transaction: Transaction) -> CommitDone: ...

    def sync(self) -> None: ...
