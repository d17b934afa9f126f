"""One group's commits in Kafka, as one of its members reads and makes them: the functions behind its port to Kafka.

Nothing is connected, and no Kafka client is made, before the first call: a member whose offsets stand in ZooKeeper
alone needs no broker for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS, KafkaClient
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


class GroupCommits:
    """The commits of one group. The functions run on one thread; `close` may be called by another one."""

    def __init__(self, group: str, opens: Callable[[], OpenedStore]) -> None:
        self._group, self._opens = group, opens
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
            raise error
        return told.found[self._group]

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these. What cannot even be sent is refused."""
        try:
            return self._store().commit(self._group, commits)
        except ZkcoordError as error:
            return CommitOutcome(refused=dict.fromkeys(commits, error))

    def close(self) -> None:
        """End the client, if there is one. A request that is under way, or is made later, ends with an error."""
        with self._lock:
            self._closed = True
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
