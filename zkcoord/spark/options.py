"""The options of a Spark consumer, and the checks before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from zkcoord import settings
from zkcoord.errors import UsageError
from zkcoord.settings import MemberChoices, MemberOptions, setting
from zkcoord.spark.ports import Report, TableEnds
from zkcoord.spark.settings import KafkaSettings, split_settings
from zkcoord.spark.starting import OutOfRange, StartingOffsets, StartingPoints
from zkcoord.subscription import asked_for, subscription_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# 100 MB of 100-byte records: one or two seconds on two cores, so a stop is soon obeyed
MAX_OFFSETS_PER_BATCH = 1_000_000
BATCH_SHARE = 2  # a batch aims at half of the rebalance timeout, so that a stop that waits for it ends in time
SHORT_BATCH_MS = 1_000  # old consumers that wait no longer than twice this cannot be joined
ReaderName = Literal["kafka", "python"]
Ending = Literal["finish", "cancel"]

MEANT_MAX = 2  # options that an error suggests
SPARKS_NAMES = {  # options of Spark's own source -> zkcoord's option
    "subscribePattern": "include",
    "startingTimestamp": "starting_offsets",
    "maxOffsetsPerTrigger": "max_offsets_per_batch",
    "maxRecordsPerPartition": "max_offsets_per_task",
    "minRecordsPerPartition": "min_offsets_per_task",
}


class Choices(MemberChoices, total=False):
    """The keyword arguments of `SparkConsumer`, for type checkers. `Options` has their defaults (a test compares
    them)."""

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
    warm_up: Callable[[DataFrame], object] | None
    resume_from: TableEnds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(MemberOptions):
    """What the user chose; `SparkConsumer`'s docstring explains it."""

    rebalance_timeout_ms: int = setting(settings.SPARK_REBALANCE_TIMEOUT_MS, "number", "rebalanceTimeoutMs", least=1)
    reader: ReaderName = setting("kafka", "choice", among=get_args(ReaderName))
    starting_offsets: StartingOffsets = setting("latest", "other")
    out_of_range: OutOfRange | None = setting(None, "choice", "outOfRange", among=get_args(OutOfRange))
    include_headers: bool = setting(False, "flag", "includeHeaders")
    max_offsets_per_batch: int = setting(MAX_OFFSETS_PER_BATCH, "number", "maxOffsetsPerTrigger", least=1)
    max_offsets_per_task: int | None = setting(None, "number", "maxRecordsPerPartition", least=1)
    min_offsets_per_task: int = setting(0, "number", "minRecordsPerPartition")
    min_batch_ms: int = setting(0, "number")
    max_batch_ms: int | None = setting(None, "number", least=1)
    at_stop: Ending = setting("finish", "choice", among=get_args(Ending))
    at_rebalance: Ending = setting("finish", "choice", among=get_args(Ending))
    announce: bool = setting(True, "flag", "announce")
    measure_bytes: bool = setting(False, "flag")
    on_report: Callable[[Report], object] | None = setting(None, "function")
    config: Mapping[str, str] | None = setting(None, "config")
    warm_up: Callable[[DataFrame], object] | None = setting(None, "function")
    resume_from: TableEnds | None = setting(None, "function")

    def kafka(self) -> KafkaSettings:
        """Return the settings of both Kafka clients. Raises UsageError for an impossible one."""
        return split_settings(self.config or {}, python_reader=self.reader == "python")

    def starts(self) -> StartingPoints:
        """Return where partitions without an offset start."""
        return StartingPoints(self.starting_offsets)

    def resets(self) -> StartingPoints | None:
        """Return where reading continues if a position is not in its log. None: it does not continue."""
        if self.out_of_range == "fail":
            return None
        return StartingPoints(self.out_of_range) if self.out_of_range else self.starts()

    def longest_batch_ms(self, stop_within_ms: int | None = None) -> int:
        """Return how long a batch should take at most. `stop_within_ms` is how long old consumers wait for a stop.

        >>> Options().longest_batch_ms(), Options().longest_batch_ms(5_000), Options().longest_batch_ms(1_500)
        (150000, 2500, 1000)
        """
        longest_ms = self.max_batch_ms or max(1, self.rebalance_timeout_ms // BATCH_SHARE)
        if stop_within_ms is None:
            return longest_ms
        return min(longest_ms, max(SHORT_BATCH_MS, stop_within_ms // BATCH_SHARE))

    def stop_needs_ms(self) -> int:
        """Return how long a stop may take even with the shortest batches."""
        return BATCH_SHARE * min(SHORT_BATCH_MS, self.longest_batch_ms())

    def asked_for(self, topics: Sequence[str] | Mapping[str, int], existing: Iterable[str]) -> list[str]:
        """Return the existing topics that are read, in order. Raises UsageError for a broken wildcard."""
        return asked_for(subscription_of(topics, self), existing)

    def check(self, topics: Sequence[str] | Mapping[str, int]) -> None:
        """Raise now for everything that would be refused when the group is joined, or later. The membership checks
        names and addresses."""
        self.check_values()
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


SPELLINGS = {**{name: name for name in Options.__dataclass_fields__}, **SPARKS_NAMES}


def options_of(choices: Choices) -> Options:
    """Return the options in these keyword arguments. Raises UsageError for an unknown one."""
    unknown = sorted(choices.keys() - Options.__dataclass_fields__.keys())
    if unknown:
        raise UsageError(f"SparkConsumer has no option {unknown[0]}{meant(unknown[0], SPELLINGS)}")
    return Options(**choices)


def meant(name: str, spellings: Mapping[str, str]) -> str:
    """Return the options that were perhaps meant, as the end of a sentence. `spellings` maps a spelling to an option.

    The same words in another spelling come first, then names with this beginning, then similar ones.

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
