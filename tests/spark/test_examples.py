"""Each example does what it says, against a real group: coordinator, ZooKeeper, Kafka and Spark."""

from __future__ import annotations

import gc
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from examples import (
    clicks_to_delta,
    clicks_to_iceberg,
    clicks_to_postgres,
    exact_counts,
    files_in_s3,
    moved_over,
    plain_consumer,
    restored_table,
    windowed_aggregation,
    word_count,
)
from tests.spark.sinks.frames import DeltaLog
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, coordinating
from zkcoord.spark import Batch, write_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS


@pytest.fixture
def group(chroot: str, source: Mapping[str, Any]) -> Iterator[str]:
    """A ZooKeeper with a coordinator that serves."""
    with coordinating(chroot, **source):
        yield chroot
    gc.collect()


@pytest.fixture
def topic(make_topic: Callable[[int], Topic], group: str) -> Topic:
    """30 records, `value-0` to `value-19` and to `value-9`, with one key."""
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 10)
    made.show_in(group)
    return made


def test_spark_examples(spark: SparkSession, group: str, topic: Topic, tmp_path: Path) -> None:
    where = (spark, group, topic.bootstrap_servers, topic.name)
    assert word_count.count(spark, tmp_path / "words") == {}
    assert word_count.collect(*where, tmp_path / "words", max_batches=1) == 1
    found = word_count.count(spark, tmp_path / "words")
    assert found == {"value": 30, **{str(number): 2 for number in range(9)}}
    assert windowed_aggregation.aggregate(*where, tmp_path / "minutes", max_batches=1) == 1
    rows = windowed_aggregation.result(spark, tmp_path / "minutes").collect()
    assert {row["key"] for row in rows} == {"key"}
    assert sum(row["count"] for row in rows) == 30
    moved_over.before(spark, topic.bootstrap_servers, topic.name, tmp_path / "before")
    moved_over.stream(*where, tmp_path / "stream")
    assert moved_over.after(*where, tmp_path / "after", max_batches=1) == 1
    found = [
        sorted(row.value for row in spark.read.parquet(str(tmp_path / name)).select("value").collect())
        for name in ("before", "stream", "after")
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 30
    files = {f"{topic.name}-0-0-20.parquet", f"{topic.name}-1-0-10.parquet"}
    for name in ("stream", "after"):
        assert {file.name for file in (tmp_path / name).glob("*.parquet")} == files


def test_examples_of_tables(
    spark: SparkSession,
    group: str,
    make_topic: Callable[[int], Topic],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch is dealt to two heirs, between which its first owner wakes up: the count of each minute is exact."""
    topic = make_topic(2)
    noon = (datetime.now(UTC) - timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    topic.fill(0, 20, times=[noon + timedelta(seconds=7 * number) for number in range(20)])
    topic.fill(1, 10, times=[noon + timedelta(seconds=20 * number) for number in range(10)])
    topic.show_in(group)
    written = []

    def by_heirs(df: DataFrame, batch: Batch, *arguments: Any, **settings: Any) -> None:
        first, second = (replace(batch, ranges=(each,)) for each in batch.ranges)
        for each in (first, batch, second):
            own = df.where(f"partition IN ({', '.join(str(one.partition) for one in each.ranges)})")
            written.append(write_delta(own, each, *arguments, **settings))

    monkeypatch.setattr(exact_counts, "write_delta", by_heirs)
    where = (spark, group, topic.bootstrap_servers, topic.name)
    assert exact_counts.count(*where, str(tmp_path / "counts"), max_batches=1) == 1
    assert written == [3, 4, 0], "minutes of the one partition, then of the other"
    rows = exact_counts.result(spark, str(tmp_path / "counts")).collect()
    found = {(row.key, (row.minute.astimezone(UTC) - noon).total_seconds() / 60): row.n for row in rows}
    assert found == {("key", 0): 12, ("key", 1): 12, ("key", 2): 5, ("key", 3): 1}
    assert clicks_to_delta.write(*where, str(tmp_path / "clicks"), max_batches=1) == 1
    made, compacted = clicks_to_delta.clicks, []

    def compact_meanwhile(rows: DataFrame) -> DataFrame:
        """The batch has read the table, and has not committed yet."""
        compacted.append(clicks_to_delta.compact(str(tmp_path / "clicks")))
        return made(rows)

    monkeypatch.setattr(clicks_to_delta, "clicks", compact_meanwhile)
    topic.fill(1, 3)
    assert clicks_to_delta.write(*where, str(tmp_path / "clicks"), max_batches=1) == 1
    assert compacted == [(2, 1, 0)]
    columns = 'count(*), count(distinct "partition" * 100 + "offset"), max(value)'
    assert DeltaLog(tmp_path / "clicks").rows(columns, "1") == [(33, 33, "value-9")]


@pytest.mark.parametrize(
    "example",
    [
        clicks_to_delta,
        clicks_to_iceberg,
        clicks_to_postgres,
        exact_counts,
        files_in_s3,
        moved_over,
        plain_consumer,
        restored_table,
        windowed_aggregation,
        word_count,
    ],
)
def test_an_example_says_how_it_is_called(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [example.__name__, "before", "localhost:2181"])
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == example.__doc__
    assert "\n    python examples/" in str(ended.value.code)


def test_the_plain_example(group: str, topic: Topic, tmp_path: Path) -> None:
    turns = iter(range(int(DEADLINE_S * 2)))
    database = tmp_path / "latest.db"

    def complete() -> bool:
        if not database.exists():
            return False
        found = table.execute("select partition, offset, value from latest order by partition").fetchall()
        return found == [(0, 19, "value-19"), (1, 9, "value-9")] or next(turns, None) is None

    table = sqlite3.connect(database)
    table.execute(plain_consumer.TABLE)
    try:
        assert plain_consumer.keep_latest(group, topic.bootstrap_servers, topic.name, database, complete) == 30
    finally:
        table.close()
