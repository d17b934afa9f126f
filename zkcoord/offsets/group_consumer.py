"""The commits of one group, read and made by a Kafka consumer that never subscribes, so that it is no member there.

An admin client would do the same, but librdkafka 2.16 may abort the whole process when a broker comes back after an
admin request to a group's coordinator timed out (its issue 4605). A consumer's own requests take another way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import librdkafka, native, open_consumer, settings_for_asking
from zkcoord.kafka.errors import DENIED, translate
from zkcoord.offsets.commit_parts import commits_in, native_parts, outcome_of, refusal
from zkcoord.offsets.ports import Commits

PAUSE_SECONDS = (0.000_2, 0.002)  # between two looks for answers: the first one, half as much more up to the last. (A
# poll of librdkafka's that waits does not return when a commit is answered.)
CLOSE_SECONDS = 1.0  # the end of connections is waited for; librdkafka may wait until a broker that is away is back

TIMEOUT_MS_MIN = 1_000  # of one request: a broker nearby answers in some ms, one far away in some hundred

Sent = tuple[TopicPartition, int, str | None]
"""A commit: partition, offset, metadata. (The metadata has the time, so one that nobody answered is no later one.)"""


class GroupConsumer:
    """Commits of one group in one Kafka cluster. `read` and `commit` belong to one thread, `close` to any."""

    def __init__(
        self,
        group: str,
        bootstrap_servers: str,
        config: Mapping[str, str],
        *,
        timeout_ms: int,
    ) -> None:
        self._group, self._servers, self._timeout_ms = group, bootstrap_servers, timeout_ms
        self._lock = threading.Lock()
        self._busy = self._closed = False  # under the lock
        self._answers: dict[Sent, Any] = {}  # what was answered: None, or the KafkaError
        self._denied: Any = None  # the last KafkaError about credentials or rights
        settings = settings_for_asking(config)
        settings |= {
            "group.id": group,
            "enable.auto.commit": "false",
            "session.timeout.ms": str(timeout_ms),  # so long a commit waits in librdkafka for the group's coordinator
            "socket.timeout.ms": str(timeout_ms),
            "fetch.wait.max.ms": "0",  # nothing is fetched; librdkafka insists on a second less than above
            "on_commit": self._on_commit,
        }
        self._native: Any = open_consumer(bootstrap_servers, settings, self._on_error)

    def read(self, partitions: Collection[TopicPartition]) -> Commits:
        """Return the commits of these partitions; those without one are left out."""
        if not partitions:
            return {}
        with self._working():
            told = self._ask(partitions, self._timeout_ms / 1000)
        return commits_in(told, self._group, self._as_error)

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these offsets, in requests that the broker's log takes; all of them under way at once.

        What is not answered in time is unknown, and may still land.
        """
        module = librdkafka()
        requests = native_parts(self._group, commits)
        deadline = time.monotonic() + self._timeout_ms / 1000
        with self._working():
            self._answers = {}
            sent = {_sent(one) for _, named in requests for one in named}
            for _, named in requests:
                try:
                    self._native.commit(offsets=named, asynchronous=True)
                except module.KafkaException as error:  # it was not sent
                    self._on_commit(error.args[0], named)
            pause, last_pause = PAUSE_SECONDS
            self._poll()
            while not sent <= self._answers.keys() and time.monotonic() < deadline and not self._closed:
                time.sleep(pause)
                pause = min(1.5 * pause, last_pause)
                self._poll()
            told = {one[0]: self._answers[one] for one in sent & self._answers.keys()}
            done = {p for p, error in told.items() if error is None}
            late = module.KafkaError(module.KafkaError._TIMED_OUT)
            failed = {p: self._refused(p, told.get(p, late)) for p in commits if p not in done}
            outcome = outcome_of(done, failed, failed.keys() - told.keys())
            return self._told_apart(outcome, sent, max(0.0, deadline - time.monotonic()))

    def _told_apart(self, outcome: CommitOutcome, sent: set[Sent], seconds: float) -> CommitOutcome:
        """Look which partitions of a refused request were taken: librdkafka says of all what is wrong with one."""
        if len(outcome.refused) < 2:
            return outcome
        try:
            stands = {_sent(one) for one in self._ask(outcome.refused, seconds)}
        except ZkcoordError as error:
            return replace(outcome, refused={}, unknown={**outcome.unknown, **dict.fromkeys(outcome.refused, error)})
        taken = {one[0] for one in sent & stands if one[0] in outcome.refused}
        refused = {p: error for p, error in outcome.refused.items() if p not in taken}
        return replace(outcome, done=outcome.done | taken, refused=refused)

    def _ask(self, partitions: Collection[TopicPartition], seconds: float) -> Any:
        """Return what stands in Kafka of these, as librdkafka tells it."""
        module = librdkafka()
        try:
            told = self._native.committed(list(map(native, sorted(partitions))), timeout=seconds)
        except module.KafkaException as error:
            self._poll()
            raise self._as_error(error.args[0], f"tell the offsets of group {self._group}") from error
        self._denied = None
        return told

    def close(self) -> None:
        """End connections and threads: now, or when the request that is under way ends. Idempotent."""
        with self._lock:
            self._closed = True
            if self._busy:
                return
            ended, self._native = self._native, None
        if ended is not None:
            closing = threading.Thread(target=ended.close, name="zkcoord-offsets-close", daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """While a thread works with it librdkafka's consumer must not be closed."""
        with self._lock:
            if self._closed:
                raise UsageError("this Kafka client is closed; open another")
            self._busy = True
        try:
            yield
        finally:
            with self._lock:
                self._busy = False
            if self._closed:
                self.close()

    def _poll(self) -> None:
        """Let librdkafka call us. (Nothing is fetched: a message is an error about the group.)"""
        message = self._native.poll(0)
        if message is not None and message.error() is not None:
            self._on_error(message.error())

    def _on_commit(self, error: Any, partitions: Any) -> None:
        self._answers |= {_sent(one): one.error or error for one in partitions}

    def _on_error(self, error: Any) -> None:
        if error.name() in DENIED or error.name().endswith("AUTHORIZATION_FAILED"):
            self._denied = error

    def _refused(self, partition: TopicPartition, error: Any) -> ZkcoordError:
        doing = f"commit the offset of {partition} of group {self._group}"
        return refusal(error, doing, self._group, self._as_error)

    def _as_error(self, error: Any, doing: str) -> ZkcoordError:
        """Blame the credentials for a request that had no answer because the brokers refuse them."""
        known = translate(error, self._servers, doing)
        if self._denied is not None and isinstance(known, UnavailableError):
            return translate(self._denied, self._servers, doing)
        return known


def _sent(one: Any) -> Sent:
    return TopicPartition(one.topic, one.partition), one.offset, one.metadata
