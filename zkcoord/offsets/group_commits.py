"""One group's commits in Kafka, as one of its members reads and makes them: the functions behind its port to Kafka.

Nothing is connected, and no Kafka client is made, before the first call: a member whose offsets stand in ZooKeeper
alone needs no broker for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import LATE_MS, TIMEOUT_MS, check_servers, librdkafka
from zkcoord.offsets.group_consumer import TIMEOUT_MS_MIN, GroupConsumer
from zkcoord.offsets.ports import Commits


class OpenedStore(Protocol):
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
) -> GroupCommits:
    """Return the group's commits in this cluster. UsageError without a Kafka client, and for what is no address."""
    librdkafka()
    check_servers(bootstrap_servers)
    timeout_ms = request_ms(patience_ms)
    return GroupCommits(partial(GroupConsumer, group, bootstrap_servers, config or {}, timeout_ms=timeout_ms), wall_ms)


def request_ms(patience_ms: int) -> int:
    """Return how long one request may take, of a member that waits for so long. Of a longer one nobody takes the
    answer."""
    return max(TIMEOUT_MS_MIN, min(TIMEOUT_MS, patience_ms - LATE_MS))


class GroupCommits:
    """The commits of one group. The functions run on one thread; `close` may be called by another one."""

    def __init__(self, opens: Callable[[], OpenedStore], wall_ms: Callable[[], int]) -> None:
        """`wall_ms`: the clock whose time stands in each commit, for people."""
        self._opens, self._wall_ms = opens, wall_ms
        self._lock = threading.Lock()
        self._opened: OpenedStore | None = None
        self._closed = False

    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """What a worker serves, by name (`core.member.log`)."""
        return {"read": self.read, "commit": self.commit}

    def read(self, partitions: tuple[TopicPartition, ...]) -> Commits:
        """Return the commits of these partitions; those without one are left out."""
        store = self._store()
        try:
            return store.read(partitions)
        except UnavailableError:
            self._end(store)
            raise

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these, with the time. What cannot even be sent is refused."""
        now_ms = self._wall_ms()
        stamped = {
            partition: commit if commit.stamp is None else replace(commit, stamp=replace(commit.stamp, at_ms=now_ms))
            for partition, commit in commits.items()
        }
        try:
            store = self._store()
            outcome = store.commit(stamped)
        except ZkcoordError as error:
            return CommitOutcome(refused=dict.fromkeys(commits, error))
        if outcome.unknown and not outcome.done:
            self._end(store)
        return outcome

    def close(self) -> None:
        """End the client, if there is one. A request that is under way, or is made later, ends with an error."""
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _end(self, store: OpenedStore) -> None:
        """End a client that had no answer; the next request goes through another one. librdkafka's may never find back
        to brokers that told it of no brokers while they started (its issue 5301)."""
        with self._lock:
            if self._opened is store:
                self._opened = None
        store.close()

    def _store(self) -> OpenedStore:
        with self._lock:
            if self._closed:
                raise UsageError("this consumer was stopped: it commits nothing more to Kafka")
            if self._opened is None:
                self._opened = self._opens()
            return self._opened
