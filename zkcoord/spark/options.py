"""What the user of a Spark consumer may choose, with the defaults, and what is refused before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from zkcoord import settings
from zkcoord.errors import UsageError
from zkcoord.spark.ports import Report
from zkcoord.spark.settings import KafkaSettings, split_settings
from zkcoord.spark.starting import OutOfRange, StartingOffsets, StartingPoints
from zkcoord.subscription import asked_for, subscription_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_OFFSETS_PER_BATCH = 1_000_000  # 100 MB of 100-byte records: a second or two on two cores, so a stop is soon obeyed
BATCH_SHARE = 2  # a batch aims at half of the rebalance timeout: then a stop that waits for it, waits in time
ReaderName = Literal["kafka", "python"]
Ending = Literal["finish", "cancel"]

LEAST = {  # of each option that is a number
    "threads": 1,
    "hold_ms": 0,
    "max_offsets_per_batch": 1,
    "max_offsets_per_task": 1,
    "min_offsets_per_task": 0,
    "min_batch_ms": 0,
    "max_batch_ms": 1,
    "session_timeout_ms": 1,
    "rebalance_timeout_ms": 1,
    "capacity": 1,
}
KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {  # and of each other one whose kind can be told
    **dict.fromkeys(
        ("include_headers", "announce", "measure_bytes"), (lambda value: isinstance(value, bool), "True or False")
    ),
    **dict.fromkeys(("on_report", "warm_up"), (callable, "a function")),
    **dict.fromkeys(("include", "exclude", "instance", "rack"), (lambda value: isinstance(value, str), "text")),
    "config": (lambda value: isinstance(value, Mapping), "a mapping of Kafka settings"),
}
ALLOWED = {
    "reader": ("kafka", "python"),
    "out_of_range": ("earliest", "latest", "fail"),
    "at_stop": ("finish", "cancel"),
    "at_rebalance": ("finish", "cancel"),
}


MEANT_MAX = 2  # options that an error suggests
SPARKS_NAMES = {  # options of Spark's own source -> the same thing here
    "subscribePattern": "include",
    "startingTimestamp": "starting_offsets",
    "maxOffsetsPerTrigger": "max_offsets_per_batch",
    "maxRecordsPerPartition": "max_offsets_per_task",
    "minRecordsPerPartition": "min_offsets_per_task",
}


class Choices(TypedDict, total=False):
    """The keyword arguments of `SparkConsumer`, for type checkers; `Options` has their defaults (a test compares)."""

    include: str | None
    exclude: str | None
    threads: int
    instance: str | None
    hold_ms: int
    reader: ReaderName
    starting_offsets: StartingOffsets
    out_of_range: OutOfRange | None
    include_headers: bool
    max_offsets_per_batch: int
    max_offsets_per_task: int | None
    min_offsets_per_task: int
    min_batch_ms: int
    max_batch_ms: int | None
    at_stop: Ending
    at_rebalance: Ending
    announce: bool
    measure_bytes: bool
    on_report: Callable[[Report], object] | None
    config: Mapping[str, str] | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: Sequence[str]
    rack: str | None
    capacity: int | None
    zookeeper_config: Any
    warm_up: Callable[[DataFrame], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was chosen; `SparkConsumer`'s docstring explains it."""

    include: str | None = None
    exclude: str | None = None
    threads: int = 1
    instance: str | None = None
    hold_ms: int = 0
    reader: ReaderName = "kafka"
    starting_offsets: StartingOffsets = "latest"
    out_of_range: OutOfRange | None = None
    include_headers: bool = False
    max_offsets_per_batch: int = MAX_OFFSETS_PER_BATCH
    max_offsets_per_task: int | None = None
    min_offsets_per_task: int = 0
    min_batch_ms: int = 0
    max_batch_ms: int | None = None
    at_stop: Ending = "finish"
    at_rebalance: Ending = "finish"
    announce: bool = True
    measure_bytes: bool = False
    on_report: Callable[[Report], object] | None = None
    config: Mapping[str, str] | None = None
    session_timeout_ms: int = settings.SESSION_TIMEOUT_MS
    rebalance_timeout_ms: int = settings.SPARK_REBALANCE_TIMEOUT_MS
    assignors: Sequence[str] = settings.ASSIGNORS
    rack: str | None = None
    capacity: int | None = None
    zookeeper_config: Any = None
    warm_up: Callable[[DataFrame], object] | None = None

    def kafka(self) -> KafkaSettings:
        """The settings of both Kafka clients. UsageError for one that cannot be."""
        return split_settings(self.config or {}, python_reader=self.reader == "python")

    def starts(self) -> StartingPoints:
        """Where partitions without an offset start."""
        return StartingPoints(self.starting_offsets)

    def resets(self) -> StartingPoints | None:
        """Where reading goes on when a position is not in its log; None: it does not."""
        if self.out_of_range == "fail":
            return None
        return StartingPoints(self.out_of_range) if self.out_of_range else self.starts()

    def longest_batch_ms(self) -> int:
        """What a batch should take at most."""
        if self.max_batch_ms is not None:
            return self.max_batch_ms
        return max(1, self.rebalance_timeout_ms // BATCH_SHARE)

    def asked_for(self, topics: Sequence[str] | Mapping[str, int], existing: Iterable[str]) -> list[str]:
        """Those of the existing topics that are read, in their order. UsageError for a wildcard that cannot be."""
        return asked_for(subscription_of(topics, self.include, self.exclude, self.threads), existing)

    def check(self, topics: Sequence[str] | Mapping[str, int]) -> None:
        """Refuse now what would be refused when the group is joined, or later. Of names that become parts of paths, and
        of addresses, the membership knows more."""
        self._check_values()
        if isinstance(topics, str) or (not topics and self.include is None and self.exclude is None):
            raise UsageError(f"topics must be a list of topic names or a map to threads, not {topics!r}")
        if self.include is not None or self.exclude is not None:
            self.asked_for(topics, ())
        self.kafka()
        self.starts().check(topics)
        if not max(1, self.min_batch_ms) <= self.longest_batch_ms() <= self.rebalance_timeout_ms:
            raise UsageError(
                f"max_batch_ms is {self.longest_batch_ms()}; it must lie between min_batch_ms ({self.min_batch_ms}) "
                f"and rebalance_timeout_ms ({self.rebalance_timeout_ms})"
            )

    def _check_values(self) -> None:
        """Each option by itself; None where that is the default."""
        for name, value in ((name, getattr(self, name)) for name in sorted(self.__dataclass_fields__)):
            if value is None and self.__dataclass_fields__[name].default is None:
                continue
            if name in LEAST:
                check_number(name, value, LEAST[name])
            if name in ALLOWED and value not in ALLOWED[name]:
                raise UsageError(f"{name} is {value!r}; it must be {' or '.join(map(repr, ALLOWED[name]))}")
            is_one, kind = KINDS.get(name, (None, ""))
            if is_one is not None and not is_one(value):
                raise UsageError(f"{name} is {value!r}; it must be {kind}")


SPELLINGS = {**{name: name for name in Options.__dataclass_fields__}, **SPARKS_NAMES}


def check_number(name: str, value: object, least: int) -> None:
    """UsageError unless it is a whole number, and not less than `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}; it must be a whole number, at least {least}")


def options_of(choices: Choices) -> Options:
    """The options that these keyword arguments choose. UsageError for one that there is not."""
    unknown = sorted(choices.keys() - Options.__dataclass_fields__.keys())
    if unknown:
        raise UsageError(f"SparkConsumer has no option {unknown[0]}{meant(unknown[0], SPELLINGS)}")
    return Options(**choices)


def meant(name: str, spellings: Mapping[str, str]) -> str:
    """The options that were perhaps meant, as the end of a sentence. `spellings`: how each may be called -> its name.

    The same words in another spelling come first, then names that begin so, then similar ones.

    >>> meant("max_offsets", SPELLINGS), meant("maxOffsetsPerTrigger", SPELLINGS)
    ('; is max_offsets_per_batch or max_offsets_per_task meant?', '; is max_offsets_per_batch meant?')
    """
    wanted, plain = _plain(name), {_plain(spelling): option for spelling, option in spellings.items()}
    close = (
        [plain[wanted]] if wanted in plain else [option for each, option in plain.items() if each.startswith(wanted)]
    )
    close = close or [plain[each] for each in difflib.get_close_matches(wanted, plain, 1)]
    if close:
        return f"; is {' or '.join([*dict.fromkeys(close)][:MEANT_MAX])} meant?"
    return f"; it has {', '.join(sorted({*spellings.values()}))}"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
