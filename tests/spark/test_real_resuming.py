"""A Delta table of a real group is restored to an earlier version, or moved with its group to another ZooKeeper. It is
then filled from its end on, each record once."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.spark.sinks.frames import DeltaLog
from tests.spark.streams import committed
from tests.spark.together import ON_REAL_SERVERS, coordinating
from zkcoord.spark import Batch, SparkConsumer, delta_ends, write_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS


class Table:
    """A table, the topic that it is filled from, and the batches of the group that does it."""

    def __init__(self, spark: SparkSession, topic: Topic, path: Path) -> None:
        self._spark, self._topic, self.path = spark, topic, path
        self.batches: list[Batch] = []

    def fill(self, zookeeper: str, **choices: Any) -> None:
        """Process one batch."""

        def process(df: DataFrame, batch: Batch) -> None:
            self.batches.append(batch)
            write_delta(df, batch, self.path, transform=lambda rows: rows.select("topic", "partition", "offset"))

        where = (self._spark, zookeeper, self._topic.bootstrap_servers, "etl", [self._topic.name])
        consumer = SparkConsumer(*where, starting_offsets="earliest", **choices)
        assert consumer.run(process, max_batches=1, idle_timeout_ms=30_000) == 1

    def rows(self) -> list[tuple[Any, ...]]:
        return DeltaLog(self.path).rows('"partition", "offset"', "ALL")


def offsets(*counts: int) -> list[tuple[int, int]]:
    """The records of each partition."""
    return [(number, offset) for number, count in enumerate(counts) for offset in range(count)]


@pytest.fixture
def topic(make_topic: Callable[[int], Topic]) -> Topic:
    """A topic with 20 and 10 records."""
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 10)
    return made


@pytest.fixture
def group(chroot: str, topic: Topic) -> Iterator[str]:
    """A ZooKeeper with a coordinator that serves."""
    topic.show_in(chroot)
    with coordinating(chroot, **topic.source):
        yield chroot
    gc.collect()


def test_f175_a_restored_table_is_filled_up_again_by_the_group_that_wrote_it(
    spark: SparkSession, group: str, topic: Topic, tmp_path: Path
) -> None:
    """Without `resume_from` the group would go on at its offsets, and the records that the restore removed would be
    lost."""
    table = Table(spark, topic, tmp_path / "clicks")
    table.fill(group)
    kept = DeltaTable(table.path).version()
    topic.fill(0, 5)
    topic.fill(1, 5)
    table.fill(group)
    assert table.rows() == offsets(25, 15)
    DeltaTable(table.path).restore(kept)
    assert table.rows() == offsets(20, 10)
    table.fill(group, resume_from=delta_ends(table.path))
    assert table.rows() == offsets(25, 15)
    topic.fill(0, 1)
    table.fill(group, resume_from=delta_ends(table.path))
    assert table.rows() == offsets(26, 15)
    assert committed(group, "etl") == {0: 26, 1: 15}


def test_a_table_that_is_copied_is_filled_on_by_a_group_that_a_fresh_zookeeper_does_not_know(
    spark: SparkSession,
    group: str,
    topic: Topic,
    make_chroot: Callable[[], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without `resume_from` the group would begin with the first records."""
    Table(spark, topic, tmp_path / "clicks").fill(group)
    shutil.copytree(tmp_path / "clicks", tmp_path / "moved")
    table, fresh = Table(spark, topic, tmp_path / "moved"), make_chroot()
    topic.show_in(fresh)
    topic.fill(0, 5)
    topic.fill(1, 5)
    with coordinating(fresh, **topic.source):
        table.fill(fresh, resume_from=delta_ends(table.path))
    assert [[each[1:4] for each in batch.ranges] for batch in table.batches] == [[(0, 20, 25), (1, 10, 15)]]
    assert table.rows() == offsets(25, 15)
    assert committed(fresh, "etl") == {0: 25, 1: 15}
    told = [
        vars(each)["zkcoord_fields"]["partitions"] for each in caplog.records if "resumed_from_table" in str(vars(each))
    ]
    assert told == [[f"{topic.name}-0"], [f"{topic.name}-1"]]
