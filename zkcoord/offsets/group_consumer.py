"""Reads and makes the commits of one group with a Kafka consumer that never subscribes, so that it is no member there.

An admin client could do the same. But librdkafka 2.16 may abort the whole process if a broker comes back after an admin
request to a group's coordinator timed out (its issue 4605). A consumer's own requests go another way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.kafka.client import CHECK_SECONDS, librdkafka, native, open_consumer, settings_for_asking, stay
from zkcoord.kafka.errors import DENIED, translate
from zkcoord.kafka.renewed import RENEW_MS, Renewed, end_apart
from zkcoord.kafka.same_cluster import LAST_SECONDS, SameCluster, ask_cluster
from zkcoord.offsets.commit_parts import commits_in, native_parts, outcome_of, refusal
from zkcoord.offsets.ports import Commits

PAUSE_SECONDS = (0.000_2, 0.002)
"""The first and the longest pause between two looks for answers; each pause is half as long again as the one before.
(A waiting poll of librdkafka does not return when a commit is answered.)"""

TIMEOUT_MS_MIN = 1_000  # for one request: a near broker answers in some ms, a distant one in some hundred ms

Sent = tuple[TopicPartition, int, str | None]
"""A commit: partition, offset, metadata. (The metadata contains the time, so an unanswered commit differs from a later
one.)"""


@dataclass
class _Client:
    """A consumer of librdkafka, and the answers to its commits: None, or the KafkaError. (Answers to a replaced
    consumer are ignored.)"""

    native: Any = None
    answers: dict[Sent, Any] = field(default_factory=dict)

    def note(self, error: Any, partitions: Any) -> None:
        """Take in an answer to a commit."""
        self.answers |= {_sent(one): one.error or error for one in partitions}


class GroupConsumer:
    """Commits of one group in one Kafka cluster. `read` and `commit` belong to one thread; any thread may call `close`.

    Nothing is connected, and no Kafka client is made, before the first `read` or `commit`. Both raise UsageError if
    another cluster has answered than the one that answered first. Nothing is committed while that is unknown.
    """

    def __init__(
        self,
        group: str,
        bootstrap_servers: str,
        config: Mapping[str, str],
        *,
        timeout_ms: int,
        known: Callable[[], str | None] | None = None,
        renew_ms: int = RENEW_MS,
    ) -> None:
        """`known` returns the cluster's id as others were told it, or None."""
        self._same = SameCluster(bootstrap_servers, config, known)
        self._group, self._servers, self._timeout_ms = group, bootstrap_servers, timeout_ms
        self._denied: Any = None  # the last KafkaError about credentials or rights
        self._settings = stay() | settings_for_asking(config)
        self._settings |= {
            "group.id": group,
            "enable.auto.commit": "false",
            "session.timeout.ms": str(timeout_ms),  # how long a commit waits in librdkafka for the group's coordinator
            "socket.timeout.ms": str(timeout_ms),
            # nothing is fetched; librdkafka requires a value at least a second below the one above
            "fetch.wait.max.ms": "0",
        }
        self._renewed = Renewed(self._open, lambda client: end_apart(client.native.close), renew_ms)

    def _open(self) -> _Client:
        client = _Client()
        settings = self._settings | {"on_commit": client.note}
        self._same.doubt()
        client.native = open_consumer(self._servers, settings, self._on_error, self._same.doubt)
        return client

    def read(self, partitions: Collection[TopicPartition]) -> Commits:
        """Return the commits of these partitions. Partitions without a commit are left out."""
        if not partitions:
            return {}
        told = self._renewed.ask(lambda client: self._read(client.native, partitions))
        return commits_in(told, self._group, self._as_error)

    def _read(self, consumer: Any, partitions: Collection[TopicPartition]) -> Any:
        told = self._ask(consumer, partitions, self._timeout_ms / 1000)
        self._confirm(consumer, min(partitions).topic, self._timeout_ms / 1000)
        return told

    def commit(self, commits: Commits) -> CommitOutcome:
        """Commit these offsets, in requests that the broker's log accepts, all under way at once.

        Commits without an answer in time are unknown: they may still take effect.
        """
        return self._renewed.ask(
            lambda client: self._commit_there(client, commits),
            lambda outcome: bool(outcome.done or not outcome.unknown),
        )

    def _commit_there(self, client: _Client, commits: Commits) -> CommitOutcome:
        """Commit to this cluster. The cluster is checked before, and again after the answers."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        if not commits:
            return CommitOutcome()
        topic = min(commits).topic
        try:
            self._confirm(client.native, topic, self._timeout_ms / 1000)
        except UnavailableError as error:  # nothing was sent
            return CommitOutcome(unknown=dict.fromkeys(commits, error))
        outcome = self._commit(client, commits, deadline)
        try:
            self._confirm(client.native, topic, max(LAST_SECONDS, deadline - time.monotonic()))
        except UnavailableError as error:
            told = dict.fromkeys(outcome.done, error)
            return replace(outcome, done=frozenset(), unknown={**outcome.unknown, **told})
        return outcome

    def _confirm(self, consumer: Any, topic: str, seconds: float) -> None:
        """Return when all answers until now are known to come from this cluster, which is usual at once. Raises
        UsageError if they do not."""
        self._poll(consumer)  # reports connections that have ended
        self._same.confirm(lambda: self._cluster_id(consumer, topic, seconds))

    def _cluster_id(self, consumer: Any, topic: str, seconds: float) -> str | None:
        """Ask for the cluster's id. It waits in several short waits, so that `close` can end it."""
        module, deadline = librdkafka(), time.monotonic() + seconds
        waits = chain(CHECK_SECONDS, repeat(CHECK_SECONDS[-1]))
        while True:
            wait_seconds, left = next(waits), deadline - time.monotonic()
            try:
                return ask_cluster(consumer, topic, max(0.0, min(wait_seconds, left)))
            except module.KafkaException as error:
                self._poll(consumer)
                if self._renewed.closed or left <= wait_seconds:
                    raise self._as_error(error.args[0], "tell its cluster's id") from error

    def _commit(self, client: _Client, commits: Commits, deadline: float) -> CommitOutcome:
        module = librdkafka()
        requests = native_parts(self._group, commits)
        client.answers = {}
        sent = {_sent(one) for _, named in requests for one in named}
        for _, named in requests:
            try:
                client.native.commit(offsets=named, asynchronous=True)
            except module.KafkaException as error:  # it was not sent
                client.note(error.args[0], named)
        pause, last_pause = PAUSE_SECONDS
        self._poll(client.native)
        while not sent <= client.answers.keys() and time.monotonic() < deadline and not self._renewed.closed:
            time.sleep(pause)
            pause = min(1.5 * pause, last_pause)
            self._poll(client.native)
        told = {one[0]: client.answers[one] for one in sent & client.answers.keys()}
        done = {p for p, error in told.items() if error is None}
        late = module.KafkaError(module.KafkaError._TIMED_OUT)
        failed = {p: self._refused(p, told.get(p, late)) for p in commits if p not in done}
        outcome = outcome_of(done, failed, failed.keys() - told.keys())
        return self._told_apart(client.native, outcome, sent, max(0.0, deadline - time.monotonic()))

    def _told_apart(self, native: Any, outcome: CommitOutcome, sent: set[Sent], seconds: float) -> CommitOutcome:
        """Find out which partitions of a refused request were taken: librdkafka reports the error of one partition for
        all."""
        if len(outcome.refused) < 2:
            return outcome
        try:
            stands = {_sent(one) for one in self._ask(native, outcome.refused, seconds)}
        except ZkcoordError as error:
            return replace(outcome, refused={}, unknown={**outcome.unknown, **dict.fromkeys(outcome.refused, error)})
        taken = {one[0] for one in sent & stands if one[0] in outcome.refused}
        refused = {p: error for p, error in outcome.refused.items() if p not in taken}
        return replace(outcome, done=outcome.done | taken, refused=refused)

    def _ask(self, consumer: Any, partitions: Collection[TopicPartition], seconds: float) -> Any:
        """Return Kafka's present commits of these partitions, as librdkafka reports them."""
        module = librdkafka()
        try:
            told = consumer.committed(list(map(native, sorted(partitions))), timeout=seconds)
        except module.KafkaException as error:
            self._poll(consumer)
            raise self._as_error(error.args[0], f"tell the offsets of group {self._group}") from error
        self._denied = None
        return told

    def close(self) -> None:
        """End connections and threads: now, or when the request under way ends. Idempotent.

        librdkafka sends an unanswered commit three times, and keeps its connections meanwhile. That takes three times
        the timeout, on a thread for which neither the caller nor the end of the program waits.
        """
        self._renewed.close()

    def _poll(self, consumer: Any) -> None:
        """Let librdkafka call back. (Nothing is fetched, so a message is an error about the group.)"""
        message = consumer.poll(0)
        if message is not None and message.error() is not None:
            self._on_error(message.error())

    def _on_error(self, error: Any) -> None:
        if error.name() in DENIED or error.name().endswith("AUTHORIZATION_FAILED"):
            self._denied = error

    def _refused(self, partition: TopicPartition, error: Any) -> ZkcoordError:
        doing = f"commit the offset of {partition} of group {self._group}"
        return refusal(error, doing, self._group, self._as_error)

    def _as_error(self, error: Any, doing: str) -> ZkcoordError:
        """Turn the error into zkcoord's. It blames the credentials for a missing answer if the brokers refuse them."""
        known = translate(error, self._servers, doing)
        if self._denied is not None and isinstance(known, UnavailableError):
            return translate(self._denied, self._servers, doing)
        return known


def _sent(one: Any) -> Sent:
    return TopicPartition(one.topic, one.partition), one.offset, one.metadata
