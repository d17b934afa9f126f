"""librdkafka behind a few typed functions: the only importer of confluent_kafka outside executors.

librdkafka's errors become zkcoord's here, its log lines go to the logger `zkcoord.kafka`, and its settings are passed
on. Importing this module needs no Kafka client; using it without one raises UsageError.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol, Self

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError, ZkcoordError
from zkcoord.kafka.coordinators import Coordinators
from zkcoord.kafka.errors import ALL_DOWN, AWAY, DENIED, NO_LEADERS, translate, unreachable
from zkcoord.kafka.native_log import NATIVE_LOG as NATIVE_LOG
from zkcoord.kafka.native_log import UNHEARD, NativeLog
from zkcoord.kafka.properties import Isolation as Isolation
from zkcoord.kafka.properties import isolation_of as isolation_of
from zkcoord.kafka.properties import load_command_config as load_command_config  # settings of a client
from zkcoord.kafka.properties import settings_for_asking as settings_for_asking
from zkcoord.kafka.renewed import RENEW_MS, Renewed, Told, end_client

ResetPolicy = Literal["latest", "earliest"]
Where = ResetPolicy | int  # a place in a log; a number is a time, in ms since 1970

TIMEOUT_MS = 10_000  # Kafka's own command line tools wait as long; short enough to ask again
CHECK_SECONDS = (0.1, 0.4, 1.5, 3.0)  # a refusal is seen at the end of such a wait; a broker delays it by 0.1 s
LATE_MS = 2_000  # librdkafka answers within its timeout; when this much more has passed, it never will

LEADERS_MS = 5_000
"""ms for which librdkafka may use its idea of a partition's leader.

By itself it asks the same broker with the same epoch for minutes, even if that broker is down or refuses the epoch. It
forgets a leader only when the broker says that it is none: `rd_kafka_admin_result_err_refresh`, up to version 2.16. We
know of no issue about it; issue 4620 of librdkafka was about the same problem in its consumers.
"""

# ZooKeeper names a new partition some tens of ms before the brokers know it, as a rule. So an unknown partition is
# asked for again within this time.
NEW_WITHIN_MS = 2_000
NEW_PAUSE_SECONDS = (0.05, 0.5)  # the first pause; it doubles up to the second value

BROKER = re.compile(
    r"(?:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[[0-9a-zA-Z:.%]+\]|[^\[\]:/\s]+)(?::(?P<port>[0-9]{1,9}))?", re.IGNORECASE
)
# By itself librdkafka begins again at the bootstrap servers when all brokers are down, whatever cluster is there now.
# Here another client does so, after some seconds, and is asked for its cluster id.
ITSELF, ITSELF_SINCE = "metadata.recovery.strategy", 0x02100000  # 2.16; the setting may be older

NAMED_MAX = 3  # number of partitions that an error names


class Message(Protocol):
    """A message as the user gets it: the parts of confluent_kafka's Message that zkcoord guarantees."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...


def librdkafka() -> Any:
    """Return the module confluent_kafka. Raises UsageError with the pip command if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise UsageError("Kafka needs an extra package: pip install 'zkcoord[kafka]'") from error
    return confluent_kafka


def check_servers(servers: str) -> None:
    """Raises UsageError unless this is a list of brokers. (librdkafka only logs it, or takes a wrong port for 0.)"""
    if not isinstance(servers, str):
        raise UsageError(f"Kafka address {servers!r}: write HOST:PORT[,HOST:PORT…]")
    for part in map(str.strip, servers.rstrip(", ").split(",")):
        broker = BROKER.fullmatch(part)
        if broker is None or not 0 < int(broker["port"] or 1) < 65_536:
            bare_ipv6 = "[" not in part and part.rpartition("://")[2].count(":") > 1
            hint = "; an IPv6 address stands in brackets, as in [::1]:9092" if bare_ipv6 else ""
            raise UsageError(f"Kafka address {servers!r}: {part!r} is no broker; write HOST:PORT[,HOST:PORT…]{hint}")


def native(partition: TopicPartition, offset: int | None = None) -> Any:
    """Return the partition, and the offset at which to read it, as librdkafka's type."""
    module = librdkafka()
    return module.TopicPartition(*partition) if offset is None else module.TopicPartition(*partition, offset)


@contextmanager
def native_errors(servers: str, doing: str) -> Iterator[None]:
    """Turn librdkafka's errors inside the block into zkcoord's."""
    module = librdkafka()
    try:
        yield
    except module.KafkaException as error:
        raise translate(error.args[0], servers, doing) from error


def open_consumer(
    bootstrap_servers: str, config: Mapping[str, str], on_error: Callable[[Any], None], broken: Callable[[], None]
) -> Any:
    """Return a confluent_kafka.Consumer with these settings. Raises UsageError for a setting that librdkafka refuses.

    `on_error(KafkaError)`, and `broken()` after the end of a connection, are called on the thread that polls.
    """
    check_servers(bootstrap_servers)
    settings = {**config, "bootstrap.servers": bootstrap_servers, "error_cb": on_error}
    with native_errors(bootstrap_servers, "configure the Kafka consumer"):
        return librdkafka().Consumer(settings, logger=NativeLog(broken))


def stay() -> dict[str, str]:
    """Return the setting that keeps a client with the brokers that it knows."""
    return {ITSELF: "none"} if librdkafka().libversion()[1] >= ITSELF_SINCE else {}


def check_settings(config: Mapping[str, str]) -> None:
    """Raises UsageError for a setting that librdkafka does not know, or a value that it does not accept. Connects to
    nobody.

    The protocol is left out, so nothing is done with the credentials: no file is read, and no ticket is requested.
    """
    checked = {key: value for key, value in config.items() if key != "security.protocol"}
    with native_errors("", "configure the Kafka client"):
        librdkafka().Consumer({**checked, "group.id": "checked"}, logger=UNHEARD).close()


class KafkaClient:
    """Asks a Kafka cluster. Several threads may use it. `close` (or `with`) ends its connections and threads.

    `config` holds librdkafka's settings. Every call raises UnavailableError if the cluster does not answer within
    `timeout_ms`, and UsageError for an unknown topic or partition and for refused credentials.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        config: Mapping[str, str] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        new_within_ms: int = NEW_WITHIN_MS,
        renew_ms: int = RENEW_MS,
        leaders_ms: int = LEADERS_MS,
    ) -> None:
        module = librdkafka()
        check_servers(bootstrap_servers)
        from confluent_kafka.admin import AdminClient

        self.servers, self.config = bootstrap_servers, dict(config or {})
        self._isolation: Isolation = isolation_of(self.config.get("isolation.level", "read_committed"))
        self._timeout_ms, self._new_within_ms = timeout_ms, new_within_ms
        self._denied: Any = None  # the last KafkaError about credentials
        self._trouble: Any = None  # the last KafkaError about a connection
        self._down = False  # True if all brokers were down at once
        self.cluster_id: str | None = None  # as brokers reported it last; those before 0.10.1 report none
        asking = settings_for_asking(self.config) | {"metadata.max.age.ms": leaders_ms}
        asking |= {"bootstrap.servers": bootstrap_servers, "error_cb": self._on_error}
        asking["allow.auto.create.topics"] = "false"  # for requests that name a topic

        def opens(broken: Callable[[], None]) -> Any:
            broken()
            with native_errors(bootstrap_servers, "configure the Kafka client"):
                return AdminClient(asking, logger=NativeLog(broken))

        self._renewed = Renewed(lambda: opens(self._broken), end_client, renew_ms)
        self.coordinators = Coordinators(module, opens, bootstrap_servers, config, lambda: self.cluster_id)
        self.admin()  # made now, since it refuses wrong settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End connections and threads once no thread is asking any more. Idempotent. Later calls raise UsageError."""
        self.coordinators.close()
        self._renewed.close()

    def ask(self, question: Callable[[], Told], is_answer: Callable[[Told], bool]) -> Told:
        """Ask a question that consists of several requests of this client, as `Renewed.ask` does."""
        return self._renewed.ask(lambda _: question(), is_answer)

    def check_credentials(self) -> UnavailableError | None:
        """Raises RefusedError if the brokers refuse the credentials. Returns None if a broker answers, else why none
        does. It returns as soon as all brokers are down, at the latest after CHECK_SECONDS or this client's timeout."""
        module = librdkafka()
        last: Any = None
        deadline = time.monotonic() + self._timeout_ms / 1000
        for seconds in CHECK_SECONDS:
            try:
                self._list(max(0.05, min(seconds, deadline - time.monotonic())))
                return None
            except module.KafkaException as error:
                last = error.args[0]
                self._serve()
                if self._denied is not None:
                    raise self.as_error(last, "list its topics") from error
                if self._down or time.monotonic() >= deadline:
                    break
        return unreachable(self._trouble or last, self.servers)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: Isolation | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition's log, with one request to each leader.

        "read_committed" (as in the settings, and librdkafka's default) returns the last stable offset: the end for
        readers of committed transactions.
        """
        return self._all(*self.ask_offsets(partitions, "latest", isolation, timeout_ms))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition's log still holds (its end, if the log is empty)."""
        return self._all(*self.ask_offsets(partitions, "earliest", None, timeout_ms))

    def reset_positions(
        self, partitions: Iterable[TopicPartition], policy: Where, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return where to start in partitions without an offset, by the reset policy.

        If the policy is a time, that is the first record of that time or later, by the records' timestamps, or the end
        if there is none. A partition that brokers do not know, or that has no leader, may be new: it is asked for again
        for `new_within_ms`. Then UnknownPartitionError names all that are still unknown.
        """
        found = self._all(*self._ask_until_known(partitions, policy, timeout_ms))
        older = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.end_offsets(older, None, timeout_ms) if older else {})

    def partitions(self, timeout_ms: int | None = None) -> tuple[TopicPartition, ...]:
        """Return all partitions of the cluster that these credentials may see, in order.

        (It names no topic in its question: a broker may create a missing topic that is asked for by name.)
        """
        topics = self.list_topics((timeout_ms or self._timeout_ms) / 1000).topics
        return tuple(sorted(TopicPartition(name, n) for name, topic in topics.items() for n in topic.partitions))

    def list_topics(self, timeout_seconds: float) -> Any:
        """Return librdkafka's description of the cluster and all its topics.

        It waits several times for a short time, so that refused credentials are noticed as soon as brokers refuse them.
        """
        module = librdkafka()
        deadline, denied = time.monotonic() + timeout_seconds, self._denied
        for seconds in (*CHECK_SECONDS, timeout_seconds):
            try:
                return self._list(min(seconds, max(0.0, deadline - time.monotonic())))
            except module.KafkaException as error:
                failure = error
            self._serve()
            if self._denied is not denied or time.monotonic() >= deadline:
                break
        raise self.as_error(failure.args[0], "list its topics") from failure

    def _list(self, timeout_seconds: float) -> Any:
        with self._renewed.used() as admin:
            found = admin.list_topics(timeout=timeout_seconds)
        self.cluster_id = found.cluster_id
        return found

    def _serve(self) -> None:
        """Let librdkafka call `_on_error` and `_broken`."""
        with self._renewed.used() as admin:
            self._poll(admin)

    def _poll(self, admin: Any) -> None:
        admin.poll(0)

    def ask_offsets(
        self,
        partitions: Iterable[TopicPartition],
        which: Where,
        isolation: Isolation | None = None,
        timeout_ms: int | None = None,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        """Return (the end ("latest"), the start, or the first record since a time (-1: none) of each log; why the
        others are unknown).

        It raises nothing about partitions. If no broker answers, that is the reason for each of them.
        """
        asked = sorted(set(partitions))
        if not asked:
            return {}, {}
        return self._renewed.ask(
            lambda admin: self._ask_leaders(admin, asked, which, isolation, timeout_ms),
            lambda told: bool(told[0]) or any(not isinstance(each, UnavailableError) for each in told[1].values()),
        )

    def _ask_leaders(
        self,
        admin: Any,
        partitions: list[TopicPartition],
        which: Where,
        isolation: Isolation | None,
        timeout_ms: int | None,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        module = librdkafka()
        from confluent_kafka.admin import OffsetSpec

        wait_ms = timeout_ms or self._timeout_ms
        if isinstance(which, int):
            spec = OffsetSpec.for_timestamp(which)
        else:
            spec = OffsetSpec.latest() if which == "latest" else OffsetSpec.earliest()
        asked = {native(partition): spec for partition in partitions}
        level = module.IsolationLevel[(isolation or self._isolation).upper()]
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=wait_ms / 1000)
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, Any] = {}
        for asked_of, answer in answers.items():
            partition = TopicPartition(asked_of.topic, asked_of.partition)
            try:
                offset = answer.result((wait_ms + LATE_MS) / 1000).offset
            except module.KafkaException as error:
                failed[partition] = error.args[0]
                continue
            except TimeoutError:
                offset = module.OFFSET_INVALID
            if offset == module.OFFSET_INVALID:  # this offset without an error means that the leader did not answer
                failed[partition] = module.KafkaError(module.KafkaError._TIMED_OUT)
            else:
                found[partition] = offset
        if found:
            self._denied = None
        self._poll(admin)  # it reports why nobody answered
        place = {"latest": "end", "earliest": "start"}.get(str(which), "offset of a time")
        reasons = {p: self.as_error(error, f"tell the log's {place} of {p}") for p, error in failed.items()}
        if any(error.name() == NO_LEADERS for error in failed.values()):
            with suppress(UnavailableError):  # nobody reports the present ones
                missing = failed.keys() - set(self.partitions(wait_ms))
                reasons |= dict.fromkeys(missing, UnknownPartitionError(""))
        return found, {
            p: self._unknown(p) if isinstance(reason, UnknownPartitionError) else reason
            for p, reason in reasons.items()
        }

    def _ask_until_known(
        self, partitions: Iterable[TopicPartition], which: Where, timeout_ms: int | None
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        """Do the same as `ask_offsets`, again and again while the remaining partitions may be new."""
        pause, last_pause = NEW_PAUSE_SECONDS
        deadline = time.monotonic() + self._new_within_ms / 1000
        found, failed = self.ask_offsets(partitions, which, None, timeout_ms)
        while failed and all(isinstance(e, UnknownPartitionError | UnavailableError) for e in failed.values()):
            if time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            pause = min(pause * 2, last_pause)
            more, failed = self.ask_offsets(failed, which, None, timeout_ms)
            found |= more
        return found, failed

    def _unknown(self, *partitions: TopicPartition) -> UnknownPartitionError:
        named = ", ".join(map(str, sorted(partitions)[:NAMED_MAX])) + (", …" if len(partitions) > NAMED_MAX else "")
        return UnknownPartitionError(
            f"Kafka does not know {named}: if it is not new, check its name, the client's rights, and that"
            f" {self.servers} are the brokers of this ZooKeeper",
            partitions,
        )

    def _all(
        self, found: dict[TopicPartition, int], failed: dict[TopicPartition, ZkcoordError]
    ) -> dict[TopicPartition, int]:
        others = {p: error for p, error in failed.items() if not isinstance(error, UnknownPartitionError)}
        if others:
            raise others[min(others)]
        if failed:
            raise self._unknown(*failed)
        return found

    def admin(self) -> Any:
        """The AdminClient of this client. Raises UsageError once this client is closed."""
        with self._renewed.used() as admin:
            return admin

    def _broken(self) -> None:
        """Note that a connection has ended, or that a new client begins."""

    def _on_error(self, error: Any) -> None:
        if error.name() in DENIED:
            self._denied = error
        if error.name() == ALL_DOWN:
            self._down = True
        elif error.name() in AWAY:
            self._trouble = error

    def as_error(self, error: Any, doing: str) -> ZkcoordError:
        """Turn the error into zkcoord's. It blames the credentials for a timeout if the brokers refuse them."""
        if self._denied is not None and error.name() in AWAY:
            error = self._denied
        return translate(error, self.servers, doing)
