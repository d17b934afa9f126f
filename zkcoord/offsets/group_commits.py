"""One group's commits in Kafka, as one of its members reads and makes them: the functions behind its port to Kafka.

A member whose offsets stand in ZooKeeper alone needs no broker for them: nothing is connected before the first call.
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
    """The commits of one group, with what closes them."""

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
    """Return the group's commits in this cluster. UsageError without a Kafka client, and for what is no address.

    `known` returns the cluster's id as the member was told it, None before.
    """
    librdkafka()
    check_servers(bootstrap_servers)
    timeout_ms = request_ms(patience_ms)
    store = GroupConsumer(group, bootstrap_servers, config or {}, timeout_ms=timeout_ms, known=known)
    return GroupCommits(store, wall_ms)


def request_ms(patience_ms: int) -> int:
    """Return how long one request may take, of a member that waits for so long. Of a longer one nobody takes the
    answer."""
    return max(TIMEOUT_MS_MIN, min(TIMEOUT_MS, patience_ms - LATE_MS))


class GroupCommits:
    """The commits of one group. The functions run on one thread; `close` may be called by another one."""

    def __init__(self, store: Store, wall_ms: Callable[[], int]) -> None:
        """`wall_ms`: the clock whose time stands in each commit, for people."""
        self._store, self._wall_ms = store, wall_ms

    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """What a worker serves, by name (`core.member.log`)."""
        return {"read": self.read, "commit": self.commit}

    def read(self, partitions: tuple[TopicPartition, ...]) -> Commits:
        """Return the commits of these partitions; those without one are left out."""
        return self._store.read(partitions)

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these, with the time. What cannot even be sent is refused."""
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
        """End the client, if there is one. A request that is under way, or is made later, ends with an error."""
        self._store.close()
