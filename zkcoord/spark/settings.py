"""Divides the Kafka settings of one consumer between its two clients: librdkafka asks and commits, the reader reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkcoord.errors import UsageError
from zkcoord.kafka.client import isolation_of
from zkcoord.kafka.properties import REFUSED, RENAMED
from zkcoord.spark.ports import Isolation
from zkcoord.spark.security import NATIVE_ONLY, is_security, only_java, to_java, to_native

READER_PREFIX = "kafka."  # Spark's prefix for a setting of its Java client
LIBRDKAFKA_PREFIX = "librdkafka."

OWN = {  # setting -> the option to use instead
    "assign": "the argument topics",
    "auto.offset.reset": "the argument starting_offsets",
    "bootstrap.servers": "the argument bootstrap_servers",
    "enable.auto.commit": "nothing: a batch is committed when it is processed",
    "group.id": "the argument group",
}

# By themselves Spark gives up only after 120 s, and Java's admin client after 60 s; a consumer that hangs so long in
# a batch delays its group. request.timeout.ms must not exceed default.api.timeout.ms, or Java refuses to start. Spark
# keeps one Java client for each partition. Kafka's limits are made for a client with many partitions, so they are low
# here: with these values the rows of a big batch take a quarter less time. A client holds at most about 2 MiB, and
# Spark the decoded records of its last poll (600 bytes each, with 100-byte values). At the log's end the client
# requests more than the range, and Kafka lets it wait, by default 500 ms; Spark's next request waits behind that. So
# a batch of 8 short ranges took 2.1 s on two cores; it takes 0.1 s if Kafka answers at once.
READER_DEFAULTS = {
    "request.timeout.ms": "10000",
    "default.api.timeout.ms": "15000",
    "fetch.max.wait.ms": "1",
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "2097152",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """`librdkafka` and `reader`: settings without any prefix. Both contain the same isolation level."""

    librdkafka: Mapping[str, str]
    reader: Mapping[str, str]
    isolation: Isolation


def split_settings(config: Mapping[str, str], *, python_reader: bool = False) -> KafkaSettings:
    """Divide a user's settings: `kafka.X` is only for the reader, `librdkafka.X` only for librdkafka, `X` for both.

    The Python reader is librdkafka, too: then `kafka.X` may be Java's name or librdkafka's, and settings that only Java
    has are ignored.

    Security settings go to both clients, with either's name (`zkcoord.spark.security`); a setting with a prefix
    overrides a translation. Of the other settings, librdkafka gets Java's under its own name. `isolation.level` is the
    same for the reader (read_uncommitted if not set, as in Kafka) and for librdkafka: with another level for the ends,
    a batch would wait for an open transaction. Raises UsageError for a setting that this consumer sets itself, for a
    security setting without a translation, and for a setting of Java's client alone that is meant for both.

    >>> split_settings({"security.protocol": "SSL", "kafka.max.poll.records": "9"}).reader["max.poll.records"]
    '9'
    """
    both: dict[str, str] = {}
    java: dict[str, str] = {}
    native: dict[str, str] = {}
    for key, value in sorted(config.items()):
        name = key.removeprefix(READER_PREFIX).removeprefix(LIBRDKAFKA_PREFIX)
        if name in OWN:
            raise UsageError(f"{key} cannot be set for a Spark consumer; use {OWN[name]}")
        target = java if key.startswith(READER_PREFIX) else native if key.startswith(LIBRDKAFKA_PREFIX) else both
        target[name] = str(value)
    isolation = isolation_of(java.get("isolation.level") or both.get("isolation.level") or "read_uncommitted")
    plain = {key: value for key, value in both.items() if not is_security(key)}
    secure = {key: value for key, value in both.items() if is_security(key)}
    from_java = {key: value for key, value in secure.items() if key not in NATIVE_ONLY}
    from_native = {key: value for key, value in secure.items() if key in NATIVE_ONLY}
    named = {key: value for key, value in java.items() if not only_java(key)}
    own_native = from_native | native
    own_java = from_java | java
    reader = READER_DEFAULTS | plain | own_java | to_java(from_native, own_java)
    read_too = {RENAMED.get(key, key): value for key, value in named.items() if python_reader and not is_security(key)}
    asking = _in_native(plain) | read_too | own_native | to_native(from_java | named, own_native)
    return KafkaSettings(
        librdkafka=asking | {"isolation.level": isolation},
        reader=reader | {"isolation.level": isolation},
        isolation=isolation,
    )


def _in_native(plain: Mapping[str, str]) -> dict[str, str]:
    """Return settings for both clients with librdkafka's names."""
    alone = sorted(plain.keys() & REFUSED.keys())
    if alone:
        raise UsageError(
            f"{alone[0]} is a setting of Java's client alone: write kafka.{alone[0]} for Spark's connector"
        )
    return {RENAMED.get(key, key): value for key, value in plain.items()}
