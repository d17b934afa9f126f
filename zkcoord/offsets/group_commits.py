"""One group's commits in Kafka, as one of its members reads and makes them. These functions implement its port to
Kafka.

A member with offsets only in ZooKeeper needs no broker for them: nothing connects before the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS, check_servers, librdkafka
from zkcoord.offsets.group_consumer import TIMEOUT_MS_MIN, GroupConsumer
from zkcoord.offsets.ports import Commits


class Store(Protocol):
    """The commits of one group, with a method that closes the store."""

    def read(self, partitions: Collection[TopicPartition]) -> Commits: ...

    def commit(self, commits: Commits) -> CommitOutcome: ...

    def close(self) -> None: ...


def kafka_commits(
    group: str,
    bootstrap_servers: str,
    config: Mapping[str, str] | None,
    *,
    patience_ms: int,
    wall_ms: Callable[[], int],
    known: Callable[[], str | None] | None = None,
) -> GroupCommits:
    """Return the group's commits in this cluster. Raises UsageError without a Kafka client, and for an address that is
    none.

    `known` returns the cluster's id as the member was told it, or None before.
    """
    librdkafka()
    check_servers(bootstrap_servers)
    timeout_ms = request_ms(patience_ms)
    store = GroupConsumer(group, bootstrap_servers, config or {}, timeout_ms=timeout_ms, known=known)
    return GroupCommits(store, wall_ms)


def request_ms(patience_ms: int) -> int:
    """Return how many ms one request may take for a member with this patience. Nobody uses a later answer."""
    return max(TIMEOUT_MS_MIN, min(TIMEOUT_MS, patience_ms - LATE_MS))


class GroupCommits:
    """The commits of one group. The functions run on one thread. Another thread may call `close`."""

    def __init__(self, store: Store, wall_ms: Callable[[], int]) -> None:
        """`wall_ms` is the clock whose time is written into each commit, for people."""
        self._store, self._wall_ms = store, wall_ms

    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """The functions that a worker calls, by name (`core.member.log`)."""
        return {"read": self.read, "commit": self.commit}

    def read(self, partitions: tuple[TopicPartition, ...]) -> Commits:
        """Return the commits of these partitions. Partitions without a commit are left out."""
        return self._store.read(partitions)

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these, with the time. Commits that cannot be sent are refused."""
        now_ms = self._wall_ms()
        stamped = {
            partition: commit if commit.stamp is None else replace(commit, stamp=replace(commit.stamp, at_ms=now_ms))
            for partition, commit in commits.items()
        }
        try:
            return self._store.commit(stamped)
        except ZkcoordError as error:
            return CommitOutcome(refused=dict.fromkeys(commits, error))

    def close(self) -> None:
        """End the client, if there is one. A request under way, or a later one, ends with an error."""
        self._store.close()
