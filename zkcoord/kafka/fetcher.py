"""Fetches messages of exactly the wanted partitions: librdkafka with assignments only, never a subscription.

Only one thread at a time may use it. The thread that fetches makes all assignments, so librdkafka's messages belong to
the last assignment. (librdkafka drops the messages that it had queued for an earlier one.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka.client import (
    Message,
    librdkafka,
    native,
    native_errors,
    open_consumer,
    stay,
)
from zkcoord.kafka.errors import ALL_DOWN, UNKNOWN, translate, unreachable
from zkcoord.kafka.log_throttle import LogThrottle
from zkcoord.kafka.native_log import is_mute
from zkcoord.kafka.renewed import another, end_apart

LOG = logging.getLogger("zkcoord.kafka.fetcher")  # a logger of its own, since the filter is for it alone
LOG.addFilter(LogThrottle())  # librdkafka reports each of its attempts, twenty in a second

OUT_OF_RANGE = {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"}
SECONDS_WITHOUT_WAITING = 0.0

# A broker has one fetch of ours at a time, and holds an empty one for this long. Until then a newly assigned partition
# is not fetched. librdkafka's default of 500 ms would be the greater part of a hand-over (measured: 480 against 80).
FETCH_WAIT_MS = "100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The messages of one `fetch` in order, and the partitions whose positions are outside of their logs."""

    messages: tuple[Message, ...]
    out_of_range: tuple[TopicPartition, ...]


class Fetcher:
    """Fetches from given offsets. Raises UsageError for settings that librdkafka, or this way of using it, does not
    allow."""

    def __init__(self, bootstrap_servers: str, group: str, config: Mapping[str, str]) -> None:
        self._servers = bootstrap_servers
        settings = fetch_settings(group, config)
        self._opens = partial(open_consumer, bootstrap_servers, settings, self._on_error, self._on_broken)
        self._mute = is_mute(settings)
        self._applied: dict[TopicPartition, int] = {}  # partitions assigned to librdkafka -> epoch
        self._failed: ZkcoordError | None = None  # set by librdkafka inside a fetch, raised at its end
        self._trouble: UnavailableError | None = None  # the last trouble with a connection
        self.cluster_id: str | None = None  # as it was last told
        self.doubtful = True  # True if a connection has ended since: messages may come from another cluster
        self._native: Any = self._opens()

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """Return the epoch under which messages of this partition are fetched. None: they are not fetched."""
        return self._applied.get(partition)

    @property
    def idle(self) -> bool:
        """True when nothing is assigned."""
        return not self._applied

    def apply(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Fetch these from now on: partition -> (epoch, first offset). A partition with an unchanged epoch goes on."""
        gone = [p for p, epoch in self._applied.items() if p not in wanted or wanted[p][0] != epoch]
        if gone:
            with native_errors(self._servers, "stop fetching"):
                self._native.incremental_unassign([native(partition) for partition in gone])
            for partition in gone:
                del self._applied[partition]
        new = {p: where for p, where in wanted.items() if p not in self._applied}
        if new:
            with native_errors(self._servers, "fetch"):
                self._native.incremental_assign([native(partition, offset) for partition, (_, offset) in new.items()])
            self._applied.update({partition: epoch for partition, (epoch, _) in new.items()})

    def fetch(self, count: int, wait_seconds: float) -> Fetched:
        """Return at most `count` messages. It waits only for the first one.

        Raises UsageError if the cluster refuses the credentials or the right to read a topic. An unreachable cluster is
        no error here: librdkafka keeps trying, and logs it.
        """
        first = self._native.poll(wait_seconds)
        raw = [] if first is None else [first]
        if first is not None and count > 1:
            with native_errors(self._servers, "deliver messages"):
                raw += self._native.consume(count - 1, SECONDS_WITHOUT_WAITING)
        messages: list[Message] = []
        out_of_range: list[TopicPartition] = []
        for one in raw:
            if one.error() is None:
                messages.append(one)
            elif one.error().name() in OUT_OF_RANGE:
                out_of_range.append(TopicPartition(one.topic(), one.partition()))
            else:
                self._on_error(one.error())
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        return Fetched(messages=tuple(messages), out_of_range=tuple(out_of_range))

    def take_trouble(self) -> UnavailableError | None:
        """Return why a broker could not be reached, if that was reported since the last call. The last reason
        counts."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def answers(self, seconds: float) -> bool:
        """True if a broker that this client is connected to answers a request within this time.

        A broker that names no brokers has just started, and its answer may have made librdkafka forget all brokers:
        that counts as no answer.
        """
        topic = next((partition.topic for partition in self._applied), None)
        module = librdkafka()
        try:
            told = self._native.list_topics(*([] if topic is None else [topic]), timeout=seconds)
            if not told.brokers:
                raise module.KafkaException(module.KafkaError(module.KafkaError._TRANSPORT, "it names no brokers"))
        except module.KafkaException as error:
            self._trouble = self._trouble or unreachable(error.args[0], self._servers)
            return False
        self.cluster_id = told.cluster_id
        return True

    def settle(self) -> None:
        """Note that the cluster that has just answered is the right one."""
        self.doubtful = self._mute

    def renew(self) -> None:
        """Fetch nothing until the next `apply`, and then use another client. (`Renewed` does not fit: it does not know
        the assignment, and is for several threads.)"""
        ended, self._native = self._native, another(self._opens, self._native)
        if ended is not self._native:
            self.doubtful = True
            self._applied.clear()
            end_apart(ended.close)

    def close(self) -> None:
        """End connections and threads. Idempotent."""
        if self._native is not None:
            self._native.close()
            self._native = None

    def _on_broken(self) -> None:
        self.doubtful = True

    def _on_error(self, error: Any) -> None:
        failure = translate(error, self._servers, "deliver messages")
        passing = error.name() in UNKNOWN  # the topic is being created or deleted: the coordinator sees it, too
        if error.fatal() or (isinstance(failure, UsageError) and not passing):
            self._failed = failure
        elif isinstance(failure, UnavailableError):
            LOG.info("%s", failure)  # librdkafka keeps trying
            if error.name() != ALL_DOWN or self._trouble is None:  # this error gives no reason
                self._trouble = unreachable(error, self._servers)
        else:
            LOG.warning("%s", failure)


def fetch_settings(group: str, config: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for fetching by assignment. They name the group, but the client never joins it."""
    ours = {
        "group.id": group,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "false",
        "auto.offset.reset": "error",  # a position outside of the log is handled here, and logged
    }
    instead = {
        "group.id": "the group is an argument",
        "enable.auto.commit": "call commit; a stop commits what is finished by itself",
        "enable.auto.offset.store": "call commit",
        "enable.partition.eof": "poll returns None when there is no message",
        "auto.offset.reset": "use from_beginning",
    }
    for key, value in ours.items():
        if key in config and str(config[key]).lower() != value.lower():
            raise UsageError(f"the Kafka setting {key} is zkcoord's own: {instead[key]}")
    return {"fetch.wait.max.ms": FETCH_WAIT_MS, **stay(), **config, **ours}
