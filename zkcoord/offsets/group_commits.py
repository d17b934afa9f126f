"""One group's commits in Kafka, as one of its members reads and makes them: the functions behind its port to Kafka.

Nothing is connected, and no Kafka client is made, before the first call: a member whose offsets stand in ZooKeeper
alone needs no broker for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS, KafkaClient, check_servers, librdkafka
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import Commits, CommitStore

TIMEOUT_MS_MIN = 1_000  # of one request: a broker nearby answers in some ms, one far away in some hundred


class OpenedStore(Protocol):
    """A store with what closes it."""

    store: CommitStore

    def close(self) -> None: ...


class KafkaStore:
    """Commits in one Kafka cluster, and the client that they go through."""

    def __init__(self, bootstrap_servers: str, config: Mapping[str, str], *, patience_ms: int) -> None:
        """`patience_ms`: how long the member waits for an answer. Of a request that took longer nobody takes it."""
        timeout_ms = max(TIMEOUT_MS_MIN, min(TIMEOUT_MS, patience_ms - LATE_MS))
        self._client = KafkaClient(bootstrap_servers, config, timeout_ms=timeout_ms)
        self.store: CommitStore = KafkaCommits(self._client, timeout_ms=timeout_ms)

    def close(self) -> None:
        """End connections and threads."""
        self._client.close()


def kafka_commits(
    group: str,
    bootstrap_servers: str,
    config: Mapping[str, str] | None,
    *,
    patience_ms: int,
    wall_ms: Callable[[], int],
) -> GroupCommits:
    """Return the group's commits in this cluster. UsageError without a Kafka client, and for what is no address."""
    librdkafka()
    check_servers(bootstrap_servers)
    return GroupCommits(group, partial(KafkaStore, bootstrap_servers, config or {}, patience_ms=patience_ms), wall_ms)


class GroupCommits:
    """The commits of one group. The functions run on one thread; `close` may be called by another one."""

    def __init__(self, group: str, opens: Callable[[], OpenedStore], wall_ms: Callable[[], int]) -> None:
        """`wall_ms`: the clock whose time stands in each commit, for people."""
        self._group, self._opens, self._wall_ms = group, opens, wall_ms
        self._lock = threading.Lock()
        self._opened: OpenedStore | None = None
        self._closed = False

    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """What a worker serves, by name (`core.member.log`)."""
        return {"read": self.read, "commit": self.commit}

    def read(self, partitions: tuple[TopicPartition, ...]) -> Commits:
        """Return the commits of these partitions; those without one are left out."""
        told = self._store().read_some(self._group, partitions)
        for error in told.unknown.values():
            self._give_up_client()
            raise error
        return told.found[self._group]

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these, with the time. What cannot even be sent is refused."""
        now_ms = self._wall_ms()
        stamped = {
            partition: commit if commit.stamp is None else replace(commit, stamp=replace(commit.stamp, at_ms=now_ms))
            for partition, commit in commits.items()
        }
        try:
            outcome = self._store().commit(self._group, stamped)
        except ZkcoordError as error:
            return CommitOutcome(refused=dict.fromkeys(commits, error))
        if outcome.unknown:
            self._give_up_client()
        return outcome

    def close(self) -> None:
        """End the client, if there is one. A request that is under way, or is made later, ends with an error."""
        with self._lock:
            self._closed = True
        self._give_up_client()

    def _give_up_client(self) -> None:
        """The next call has a client of its own.

        (One whose request had no answer found no broker again, though it ran, when it was asked once in a while: seen
        with librdkafka 2.16 for minutes after a broker was killed and started again.)
        """
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _store(self) -> CommitStore:
        with self._lock:
            if self._closed:
                raise UsageError("this consumer was stopped: it commits nothing more to Kafka")
            if self._opened is None:
                self._opened = self._opens()
            return self._opened.store
