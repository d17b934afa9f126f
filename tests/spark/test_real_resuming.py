"""A Delta table of a real group is restored to an earlier version. It is then filled from its end on, each record
once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.sinks.frames import DeltaLog
from tests.spark.streams import committed
from tests.spark.together import ON_REAL_SERVERS, coordinating
from zkcoord.spark import Batch, SparkConsumer, delta_ends, write_delta

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


def test_f175_a_restored_table_is_filled_up_again_by_the_group_that_wrote_it(
    spark: SparkSession, group: str, make_topic: Callable[[int], Topic], tmp_path: Path
) -> None:
    """Without `resume_from` the group would go on at its offsets, and the records that the restore removed would be
    lost."""
    topic, table = make_topic(2), tmp_path / "clicks"
    topic.show_in(group)

    def process(df: DataFrame, batch: Batch) -> None:
        write_delta(df, batch, table, transform=lambda rows: rows.select("topic", "partition", "offset"))

    def run(**choices: Any) -> None:
        where = (spark, group, topic.bootstrap_servers, "etl", [topic.name])
        assert (
            SparkConsumer(*where, starting_offsets="earliest", **choices).run(
                process, max_batches=1, idle_timeout_ms=30_000
            )
            == 1
        )

    def rows() -> list[tuple[Any, ...]]:
        return DeltaLog(table).rows('"partition", "offset"', "ALL")

    topic.fill(0, 20)
    topic.fill(1, 10)
    run()
    kept = DeltaTable(table).version()
    topic.fill(0, 5)
    topic.fill(1, 5)
    run()
    everything = [(0, offset) for offset in range(25)] + [(1, offset) for offset in range(15)]
    assert rows() == everything
    DeltaTable(table).restore(kept)
    assert len(rows()) == 30
    run(resume_from=delta_ends(table))
    assert rows() == everything
    topic.fill(0, 1)
    run(resume_from=delta_ends(table))
    assert rows() == sorted([*everything, (0, 25)])
    assert committed(group, "etl") == {0: 26, 1: 15}
