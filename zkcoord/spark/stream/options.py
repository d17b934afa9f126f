"""The options of `format("zkcoord")`. They have the names of Spark's own Kafka source where both have the option.

Spark passes them as text, and ignores case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, cast

from zkcoord.errors import UsageError
from zkcoord.kafka.properties import translate
from zkcoord.settings import settings_of
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import Choices, Options, meant
from zkcoord.spark.readers.kafka import POLL_TIMEOUT_MS, connector_options
from zkcoord.spark.readers.ranges import read_plan
from zkcoord.spark.security import is_security
from zkcoord.spark.settings import LIBRDKAFKA_PREFIX, READER_PREFIX
from zkcoord.spark.starting import StartingOffsets

SERVERS, GROUP_ID, POLL_TIMEOUT = "kafka.bootstrap.servers", "kafka.group.id", "kafkaConsumer.pollTimeoutMs"
JOIN_WAIT, JOIN_WAIT_MS = "joinWaitMs", 10_000
ROWS, RECORDS, RANGES = "rows", "records", "ranges"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"option {name} is {text!r}; it must be a whole number") from None


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise UsageError(f"option {name} is {text!r}; it must be true or false")
    return text.strip().lower() == "true"


def _text(name: str, text: str) -> str:
    return text


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _starting(name: str, text: str) -> StartingOffsets:
    if text.strip().lower() in ("earliest", "latest"):
        return "earliest" if text.strip().lower() == "earliest" else "latest"
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(value in ("earliest", "latest") for value in given.values()):
        raise UsageError(
            f'option {name} is {text!r}; it must be earliest, latest, or JSON of topics as {{"clicks": "earliest"}}. '
            "It holds for partitions without an offset; where the group goes on, its offsets in ZooKeeper say"
        )
    return given


def _since(name: str, text: str) -> StartingOffsets:
    return datetime.fromtimestamp(_number(name, text) / 1000, UTC)


def _file(name: str, text: str) -> Any:
    from zkcoord.shell.zk.config import load_config

    return load_config(text)


READ: Mapping[str, Callable[[str, str], Any]] = {"number": _number, "flag": _flag, "text": _text, "choice": _text}
# option -> (field of `Options`, function that reads it)
ARGUMENTS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    **{each.option: (name, READ.get(each.kind, _text)) for name, each in settings_of(Options).items() if each.option},
    "startingOffsets": ("starting_offsets", _starting),
    "startingTimestamp": ("starting_offsets", _since),
    "assignors": ("assignors", _names),
    "zookeeperConfig": ("zookeeper_config", _file),
}
OTHERS = ("zookeeper", "group", "subscribe", SERVERS, GROUP_ID, "failOnDataLoss", POLL_TIMEOUT, JOIN_WAIT, ROWS)
INSTEAD = {  # options of Spark's own source without a counterpart -> what to do
    "assign": "the group assigns partitions; name topics with subscribe or subscribePattern",
    "startingOffsetsByTimestamp": "use startingTimestamp: it holds for partitions without an offset",
    "startingOffsetsByTimestampStrategy": "leave it out: without such a record a partition starts at its end",
    "endingOffsets": "a stream has no end; for a batch use Spark's own source",
    "endingOffsetsByTimestamp": "a stream has no end; for a batch use Spark's own source",
    "endingTimestamp": "a stream has no end; for a batch use Spark's own source",
    "minOffsetsPerTrigger": "leave it out: trigger(processingTime=...) says how often a batch is made",
    "maxTriggerDelay": "leave it out: trigger(processingTime=...) says how often a batch is made",
    "minPartitions": "use maxRecordsPerPartition, which splits large ranges over tasks",
    "groupIdPrefix": "use group",
    "fetchOffset.numRetries": "leave it out: Kafka is asked again for as long as it is away",
    "fetchOffset.retryIntervalMs": "leave it out: Kafka is asked again for as long as it is away",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "leave it out: a batch is committed when it is processed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a query. `options` are those of the consumer behind the source."""

    zookeeper: str
    bootstrap_servers: str
    group: str
    topics: tuple[str, ...]
    poll_timeout_ms: int
    join_wait_ms: int  # for the first partitions: a query that reads the present records, and ends, asks only once
    options: Options
    ranges: bool = False  # rows are ranges, which `zkcoord.spark.batches` reads with Spark's connector

    def dependencies(self) -> RealDependencies:
        """Make the dependencies of the consumer behind the source, which needs no Spark."""
        return RealDependencies(None, self.zookeeper, self.bootstrap_servers, self.group, self.topics, self.options)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Check a query's options and return them. Raises UsageError that says what is missing, unknown or impossible, and
    what to use.

    >>> found = stream_options({"zookeeper": "zk:2181", "kafka.bootstrap.servers": "k:9092", "group": "etl",
    ...                         "subscribe": "clicks, views", "startingoffsets": "earliest"})
    >>> found.topics, found.options.starting_offsets
    (('clicks', 'views'), 'earliest')
    """
    left = {key.lower(): value for key, value in given.items()}
    for name, instead in INSTEAD.items():
        if name.lower() in left:
            raise UsageError(f"option {name} is not one of format('zkcoord'): {instead}")
    own = {name: left.pop(name.lower()) for name in OTHERS if name.lower() in left}
    choices: dict[str, Any] = {}
    named: dict[str, str] = {}
    for name, (field, read) in ARGUMENTS.items():
        if name.lower() in left:
            if field in choices:
                raise UsageError(f"give {named[field]} or {name}, not both")
            choices[field], named[field] = read(name, left.pop(name.lower())), name
    choices.setdefault("out_of_range", _at_data_loss(own.pop("failOnDataLoss", "true")))
    ranges = _rows(own.get(ROWS, RECORDS))
    choices["config"] = _config(left, for_java=ranges)
    group = own.get("group") or own.get(GROUP_ID)
    if own.get(GROUP_ID, group) != group:
        raise UsageError(f"group is {group!r} and {GROUP_ID} is {own[GROUP_ID]!r}; give one of them")
    topics = _names("subscribe", own.get("subscribe", ""))
    if bool(topics) == ("include" in choices):
        raise UsageError("say what to read: option subscribe (topics, with commas) or subscribePattern (a regex)")
    poll_timeout_ms = _number(POLL_TIMEOUT, own.get(POLL_TIMEOUT, str(POLL_TIMEOUT_MS)))
    join_wait_ms = _number(JOIN_WAIT, own.get(JOIN_WAIT, str(JOIN_WAIT_MS)))
    options = _whole(Options(**choices, reader="kafka" if ranges else "python", warm_up=_nothing))
    _check(options, topics)
    chosen = StreamOptions(
        zookeeper=_needed(own, "zookeeper", "host:port[,host:port...][/chroot]"),
        bootstrap_servers=_needed(own, SERVERS, "host:port[,host:port...]"),
        group=group or _needed(own, "group", "the group that this query is a member of"),
        topics=topics,
        poll_timeout_ms=poll_timeout_ms,
        join_wait_ms=join_wait_ms,
        options=options,
        ranges=ranges,
    )
    chosen.dependencies().check()
    return chosen


def _check(options: Options, topics: tuple[str, ...]) -> None:
    """Check the options as `Options.check` does, but with the names of this source's options."""
    try:
        options.check(topics)
    except UsageError as error:
        field, is_, rest = str(error).partition(" is ")
        names = [name for name, (each, _) in ARGUMENTS.items() if each == field]
        raise UsageError(f"option {' or '.join(names)}{is_}{rest}" if names and is_ else str(error)) from None


def _whole(options: Options) -> Options:
    """Let batches take the whole rebalance timeout, since their time includes the wait for the next trigger."""
    return replace(options, max_batch_ms=options.rebalance_timeout_ms)


def _nothing(frame: object) -> None:
    """Warm up with nothing: before the query's first batch there is no DataFrame."""


def _needed(own: Mapping[str, str], name: str, what: str) -> str:
    if not own.get(name):
        raise UsageError(f"option {name} is missing: {what}")
    return own[name]


def _at_data_loss(text: str) -> str:
    """Fail, as Spark's own source does. With `failOnDataLoss=false` continue with what is left."""
    return "fail" if _flag("failOnDataLoss", text) else "earliest"


def _rows(text: str) -> bool:
    """True for ranges."""
    if text.strip().lower() not in (RECORDS, RANGES):
        raise UsageError(f"option {ROWS} is {text!r}; it must be {RECORDS} or {RANGES}")
    return text.strip().lower() == RANGES


def _config(left: Mapping[str, str], *, for_java: bool) -> dict[str, str]:
    """Return Kafka settings: `kafka.X` with Java's names, or `librdkafka.X`. Raises UsageError for any other option.

    `for_java`: Spark's connector reads, with the `kafka.X` as they are; librdkafka only asks for ends.
    """
    unknown = sorted(key for key in left if not key.startswith((READER_PREFIX, LIBRDKAFKA_PREFIX)))
    if unknown:
        names = ("kafka.*", "librdkafka.*", *OTHERS, *ARGUMENTS)
        spellings = {**{name: name for name in names}, **{field: name for name, (field, _) in ARGUMENTS.items()}}
        raise UsageError(f"format('zkcoord') has no option {unknown[0]}{meant(unknown[0], spellings)}")
    java = {key.removeprefix(READER_PREFIX): value for key, value in left.items() if key.startswith(READER_PREFIX)}
    plain = {key: value for key, value in java.items() if not is_security(key)}
    plain = {READER_PREFIX + key: value for key, value in plain.items()} if for_java else translate(plain)
    secure = {key: value for key, value in java.items() if is_security(key)}
    return {**plain, **secure, **{key: value for key, value in left.items() if key.startswith(LIBRDKAFKA_PREFIX)}}


def consumer_choices(options: Options) -> Choices:
    """Return the options as keyword arguments of `SparkConsumer`."""
    return cast(Choices, {each.name: getattr(options, each.name) for each in fields(options)})


def plan_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what the workers of a query need in addition to their slices, or what goes with the ranges."""
    chosen = stream_options(given)
    if chosen.ranges:
        return _connector_plan(chosen)
    return read_plan(
        chosen.bootstrap_servers,
        chosen.group,
        chosen.options.kafka().librdkafka,
        headers=chosen.options.include_headers,
        timeout_ms=chosen.poll_timeout_ms,
    )


def _connector_plan(chosen: StreamOptions) -> dict[str, Any]:
    """Return the options of Spark's connector, as text, separately from those that are credentials."""
    found = connector_options(chosen.bootstrap_servers, chosen.group, chosen.options)
    found[POLL_TIMEOUT] = str(chosen.poll_timeout_ms)
    secrets = {key: value for key, value in found.items() if is_security(key.removeprefix(READER_PREFIX))}
    open_ones = {key: value for key, value in found.items() if key not in secrets}
    return {"reader": json.dumps(open_ones, sort_keys=True), "secrets": secrets}
