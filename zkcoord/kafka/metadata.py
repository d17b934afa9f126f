"""Asks Kafka for its topics, their ids and its brokers, for `core/topic_mirror.py`.

librdkafka's request `describe_cluster` is never used: a broker that has just started knows no brokers yet, and answers
so; then librdkafka 2.16 ends the process (an assertion in `rd_kafka_admin_response_parse`). Brokers and the cluster's
id come with a list of topics. The brokers' racks come with the description of topics of which they have replicas.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from zkcoord.core.topic_answers import (
    Answer,
    Broker,
    Cluster,
    Described,
    Kind,
    Listed,
    Partitions,
    Question,
    Told,
    shape_of,
)
from zkcoord.core.topic_mirror import DESCRIBE_MAX, Mirror, Topic
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import KafkaClient, librdkafka, native_errors

TIMEOUT_MS = 10_000
"""ms that one answer may take. Topics stay as they are known meanwhile."""

GRACE_SECONDS = 1.0
"""s that librdkafka may need beyond that to report that nobody has answered."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that Kafka allows. The oldest brokers created any topic that a producer named, and such a name fits no
command."""

_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers report for a topic without one: 16 zero bytes."""

_URL_SAFE = str.maketrans("+/", "-_", "=")
"""librdkafka writes an id with other characters than Kafka, which also writes the id into ZooKeeper."""

_MISSING = "UNKNOWN_TOPIC_OR_PART"
_TOLD_NOTHING = Told()

_TRIES = 2
"""How often racks are asked for, since a topic may be deleted between a list and the description."""


class _Seen(NamedTuple):
    """What a list of topics tells about the brokers. `witnesses` are a few topics such that each broker with replicas
    has a replica of one of them."""

    cluster_id: str
    addresses: Mapping[int, tuple[str, int]]
    witnesses: tuple[str, ...]


class KafkaMetadata:
    """Answers questions about the topics of one cluster. For one thread. `close` ends its connections."""

    def __init__(
        self,
        bootstrap_servers: str,
        config: Mapping[str, str] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """`config` holds librdkafka's settings. Raises UsageError for an address or a setting that can never work."""
        self._servers, self._timeout_seconds = bootstrap_servers, timeout_ms / 1000
        self._answer_seconds = self._timeout_seconds + grace_seconds
        self._client = KafkaClient(bootstrap_servers, config, timeout_ms=timeout_ms)
        self._seen: _Seen | None = None  # by the last list, until a question about the brokers has used it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End connections and threads."""
        self._client.close()

    def answer(self, question: Question) -> Answer:
        """Ask the cluster. Raises UnavailableError if it does not answer, and RefusedError if it refuses the
        credentials."""
        return self._client.ask(
            lambda: self._answer(question), lambda told: not isinstance(told, Listed) or bool(told.brokers)
        )

    def _answer(self, question: Question) -> Answer:
        match question.kind:
            case Kind.LIST:
                return self._listed()
            case Kind.DESCRIBE:
                return self._described(question.topics)
            case Kind.CLUSTER:
                return self._cluster()

    def whole(self) -> tuple[Mirror, tuple[str, ...]]:
        """Ask for everything. Return the cluster, and the topics that have no id.

        Raises UnavailableError also if the answer about some topic is missing: then the result would be incomplete.
        """
        listed, cluster = self._listed(strict=True), self._cluster()
        if not listed.whole:
            raise UnavailableError(f"Kafka at {self._servers} names no controller: look at its brokers, then try again")
        names = sorted(listed.shapes)
        topics: dict[str, Topic] = {}
        nameless: list[str] = []
        for first in range(0, len(names), DESCRIBE_MAX):
            for name, told in self._described(tuple(names[first : first + DESCRIBE_MAX])).topics.items():
                if not told.partitions:
                    raise UnavailableError(f"Kafka at {self._servers} did not describe topic {name}: try again")
                if told.topic_id is None:
                    nameless.append(name)
                else:
                    topics[name] = Topic(topic_id=told.topic_id, partitions=told.partitions)
        found = Mirror(cluster_id=listed.cluster_id, topics=topics, brokers=cluster.brokers, whole=True)
        return found, tuple(nameless)

    def _listed(self, *, strict: bool = False) -> Listed:
        """Ask for all topics. A topic that is listed with an error is left out; with `strict` it raises
        UnavailableError."""
        with _uncollected():
            found = self._client.list_topics(self._timeout_seconds)
            shapes = {
                name: shape_of({number: tuple(one.replicas) for number, one in topic.partitions.items()})
                for name, topic in found.topics.items()
                if _NAME.fullmatch(name) and topic.error is None
            }
            self._seen = _seen(found)
        troubled = {name: topic.error for name, topic in found.topics.items() if topic.error is not None}
        if strict and troubled:
            why = f"{min(troubled)} ({troubled[min(troubled)]})"
            raise UnavailableError(f"Kafka at {self._servers} cannot tell all of topic {why}: try again")
        return Listed(
            cluster_id=found.cluster_id or "",
            brokers=frozenset(found.brokers),
            shapes=shapes,
            whole=bool(found.brokers) and found.controller_id is not None and found.controller_id >= 0,
        )

    def _ask_for(self, topics: tuple[str, ...]) -> Mapping[str, Any]:
        with native_errors(self._servers, "describe its topics"):
            asked: Mapping[str, Any] = self._client.admin().describe_topics(
                librdkafka().TopicCollection(list(topics)), request_timeout=self._timeout_seconds
            )
        return asked

    def _described(self, topics: tuple[str, ...]) -> Described:
        module = librdkafka()
        told: dict[str, Told] = {}
        failure: Any = None
        for name, future in self._ask_for(topics).items():
            try:
                told[name] = _told(future.result(self._answer_seconds))
            except module.KafkaException as error:
                failure = error.args[0]
                told[name] = Told(missing=True) if failure.name() == _MISSING else _TOLD_NOTHING
            except TimeoutError:
                told[name] = _TOLD_NOTHING
        if failure is not None and all(one == _TOLD_NOTHING for one in told.values()):
            raise self._client.as_error(failure, "describe its topics")
        return Described(told)

    def _cluster(self) -> Cluster:
        """Ask for the brokers. A broker that has replicas, but whose rack is not told, is left out."""
        for _ in range(_TRIES):
            if self._seen is None:
                self._listed()
            seen, self._seen = self._seen, None
            if seen is None or not seen.addresses:
                raise UnavailableError(f"Kafka at {self._servers} names no brokers: try again")
            nodes = self._nodes(seen.witnesses)
            if nodes is not None:
                told = {node.id: node for node in nodes if node.host}
                untold = {node.id for node in nodes} - told.keys()
                return Cluster(
                    seen.cluster_id,
                    {
                        number: Broker(host, port, told[number].rack if number in told else None)
                        for number, (host, port) in seen.addresses.items()
                        if number not in untold
                    },
                )
        raise UnavailableError(f"Kafka at {self._servers} did not tell the racks of its brokers: try again")

    def _nodes(self, topics: tuple[str, ...]) -> list[Any] | None:
        """Ask for the brokers that have replicas of these topics. None: one of the topics is gone, or its answer is
        missing."""
        module, nodes = librdkafka(), list[Any]()
        for future in (self._ask_for(topics) if topics else {}).values():
            try:
                found = future.result(self._answer_seconds)
            except module.KafkaException as error:
                if error.args[0].name() != _MISSING:
                    raise self._client.as_error(error.args[0], "describe its topics") from error
                return None
            except TimeoutError:
                return None
            nodes += [node for partition in found.partitions for node in partition.replicas]
        return nodes


def _seen(listed: Any) -> _Seen:
    lacking, witnesses = set(listed.brokers), list[str]()
    for name, topic in listed.topics.items():
        if not lacking:
            break
        if topic.error is None and _NAME.fullmatch(name):
            here = lacking & {number for partition in topic.partitions.values() for number in partition.replicas}
            witnesses += [name] if here else []
            lacking -= here
    addresses = {number: (broker.host, broker.port) for number, broker in listed.brokers.items()}
    return _Seen(listed.cluster_id or "", addresses, tuple(witnesses))


def answering(
    bootstrap_servers: str, config: Mapping[str, str] | None, *, at_once: bool
) -> Callable[[Question], Answer]:
    """Return a function that answers questions to this cluster. It connects at the first question, or `at_once`. With
    `at_once` an address or a setting that can never work raises UsageError now; else the answer raises it."""
    opened = [KafkaMetadata(bootstrap_servers, config)] if at_once else []

    def answer(question: Question) -> Answer:
        if not opened:
            opened.append(KafkaMetadata(bootstrap_servers, config))
        return opened[0].answer(question)

    return answer


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable Python's garbage collector inside the block. 100,000 partitions are as many objects, all in use; looking
    through them again and again took two thirds of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _told(description: Any) -> Told:
    text = str(description.topic_id).translate(_URL_SAFE)
    partitions: Partitions = {one.id: tuple(node.id for node in one.replicas) for one in description.partitions}
    return Told(None if text in ("", "None", _ZERO_ID) else text, partitions)
