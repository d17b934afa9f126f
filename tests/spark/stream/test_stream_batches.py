"""Streams whose rows are ranges: which part of the plan the driver, the rows and the connector get. Nothing is real."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.fakes import World
from tests.spark.stream.test_stream import OPTIONS, P0, P1
from zkcoord.errors import UsageError
from zkcoord.spark import batches
from zkcoord.spark.ranges import OffsetRange, batch_id
from zkcoord.spark.stream import batches as of_ranges
from zkcoord.spark.stream.batches import COLUMNS, _check_plan, batch_of
from zkcoord.spark.stream.data_source import StreamSource
from zkcoord.spark.stream.offsets import EMPTY
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

SECURE = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="hidden";',
}
RANGES = tuple(OffsetRange("clicks", number, 10**9 * number, 10**9 * number + 5, 1) for number in range(64))
OFFSET = {"version": 1, "run": "r", "ranges": {}, "group": "g", "generation": 7, "replayed": True}


def planned(ranges: tuple[OffsetRange, ...] = RANGES, **options: str) -> tuple[Any, list[Any]]:
    """Return a reader whose planning gives these tasks, and the partitions that it gives to Spark."""
    source = StreamSource(options={**OPTIONS, "rows": "ranges", **options})
    reader = source.streamReader(schema=None)

    class Planning:
        def tasks(self, start: object, end: object) -> list[tuple[OffsetRange, ...]]:
            return [ranges[:1], ranges[1:]] if ranges else []

        def runs_again(self, end: object) -> bool:
            return False

    reader._source = Planning()
    return reader, list(reader.partitions(None, OFFSET))


def test_all_ranges_of_a_batch_are_rows_of_one_task_that_tell_the_batch() -> None:
    reader, (partition,) = planned()
    rows = list(reader.read(partition))
    assert StreamSource(options={**OPTIONS, "rows": "ranges"}).schema().count(",") == len(COLUMNS) - 1
    batch = batch_of(rows[::-1], 3)
    assert batch.ranges == RANGES, "they come sorted, as the driver loop's do"
    assert (batch.id, batch.seq, batch.group, batch.generation) == (batch_id(RANGES), 3, "g", 7)
    assert batch.replayed


def test_a_batch_of_which_nothing_is_left_has_no_task() -> None:
    assert planned(ranges=())[1] == []


def test_the_driver_takes_little_from_the_plan() -> None:
    """An answer of the JVM with more than 8 KiB of text comes in two pieces, and the second comes 40 ms later."""
    _, (partition,) = planned()
    assert len(pickle.dumps(partition)) * 4 / 3 < 8192


def test_f313_ranges_that_the_connector_splits_over_tasks_come_to_the_batch_whole() -> None:
    """Each part of a partition's range was a range of its own, and the connector reads only the last range of a
    partition.
    """
    world = World()
    world.given = world.starts = {P0: 0, P1: 0}
    world.ends = {P0: 30, P1: 5}
    options = {**OPTIONS, "rows": "ranges", "maxRecordsPerPartition": "10", "minRecordsPerPartition": "6"}
    reader: Any = StreamSource(options=options).streamReader(schema=None)
    source = reader._source = Source(stream_options(options), dependencies=world)
    end = reader.latestOffset()
    (partition,) = reader.partitions(EMPTY, end)
    assert batch_of(partition.value["rows"], 0).ranges == (OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 5))
    assert reader.partitions(end, end) == [], "nothing between"
    source.stop()


def options_in(rows: list[tuple[Any, ...]]) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(rows[0][-1])
    return found


def test_credentials_are_in_no_row() -> None:
    reader, (partition,) = planned(**SECURE)
    rows = list(reader.read(partition))
    assert "hidden" not in str(rows)
    assert not options_in(rows).keys() & SECURE.keys()
    assert {key: partition.value["secrets"][key] for key in SECURE} == SECURE


def test_the_connector_that_reads_a_batch_is_given_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (partition,) = planned(**SECURE)
    told = partition.value
    given: list[Any] = []

    class Reader:
        def __init__(self, spark: object, options: Mapping[str, str]) -> None:
            given.append(options)

        def read(self, ranges: object) -> object:
            return ranges

    monkeypatch.setattr(of_ranges._Run, "planned", lambda run: (told["rows"], told["secrets"]))
    monkeypatch.setattr(of_ranges, "_running", lambda spark: None)
    monkeypatch.setattr(of_ranges, "KafkaReader", Reader)
    frame: Any = SimpleNamespace(columns=COLUMNS, sparkSession=None)
    batches(lambda df, batch: given.append((df, batch.seq)))(frame, 3)
    options, processed = given
    assert {key: options[key] for key in SECURE} == SECURE
    assert processed == (RANGES, 3)


def test_settings_of_the_connector_are_its_own_and_those_of_a_query_are_kept() -> None:
    given = {
        "kafka.max.poll.records": "5",
        "kafkaConsumer.pollTimeoutMs": "7",
        "maxRecordsPerPartition": "9",
        "minRecordsPerPartition": "6",
    }
    reader, (partition,) = planned(**given, **{"includeHeaders": "true", "kafka.isolation.level": "read_committed"})
    told = options_in(list(reader.read(partition)))
    assert {key: told[key] for key in given} == given
    assert (told["includeHeaders"], told["kafka.isolation.level"]) == ("true", "read_committed")
    assert told["kafka.group.id"].startswith("g-read-")


class OtherRows:
    columns: tuple[str, ...] = ("key", "value")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: batches(None), "process is None"),  # type: ignore[arg-type]
        (lambda: batches(print)(OtherRows(), 0), r'give the query .option\("rows", "ranges"\)'),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_call_of_batches_says_what_to_do(call: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        call()


class Plan:
    """A plan of Spark: its text, and the output attributes of its topmost node."""

    def __init__(self, text: str, output: str) -> None:
        self.toString = lambda: text
        self.output = lambda: self
        self.mkString = lambda: output


SCAN = "+- MicroBatchScan[topic#0, partition#1] (Python)\n"


@pytest.mark.parametrize(
    ("text", "output", "told"),
    [
        (f"*(1) Project [topic#0, partition#1]\n{SCAN}", "topic#0partition#1", None),
        (SCAN, "topic#0partition#1", None),
        (f"*(1) Project [topic#0]\n+- *(1) Filter (partition#1 = 0)\n   {SCAN}", "topic#0partition#1", r"\(Filter "),
        (f"GlobalLimit 5\n{SCAN}", "topic#0partition#1", r"\(GlobalLimit 5\)"),
        (f"*(1) Project [topic#0, 0 AS partition#7]\n{SCAN}", "topic#0partition#7", r"0 AS partition#7"),
    ],
)
def test_f253_a_query_that_changes_ranges_before_foreachbatch_is_refused(
    text: str, output: str, told: str | None
) -> None:
    refused = pytest.raises(UsageError, match=f"{told}.*filter and transform the records in `process`")
    with refused if told else nullcontext():
        _check_plan(Plan(text, output), Plan("", "topic#0partition#1"))
