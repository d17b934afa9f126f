"""Runs the code blocks about structured streaming in docs/consumers.md; only addresses, topics and folders are
replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.pages import python_block
from tests.spark.streams import committed
from tests.spark.test_pages import names_of, replaced
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, coordinating
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS
GROUP = "etl-stream"


@pytest.fixture
def topic(make_topic: Callable[[int], Topic], chroot: str) -> Iterator[Topic]:
    """A topic with 20 and 10 records in two partitions, and a coordinator that serves."""
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 10)
    made.show_in(chroot)
    with coordinating(chroot, **made.source):
        yield made


@pytest.fixture
def code(topic: Topic, chroot: str, tmp_path: Path, spark: SparkSession) -> Iterator[str]:
    """The code of the first block. The queries of its session are stopped after the test."""
    yield replaced(
        python_block("consumers.md", "Structured streaming"),
        **{
            "localhost:2181": chroot,
            "localhost:9092": topic.bootstrap_servers,
            '"clicks"': repr(topic.name),
            "/tmp/clicks-stream": str(tmp_path / "stream"),
            "awaitTermination(30)": f"awaitTermination({DEADLINE_S})",  # this test ends it sooner
        },
    )
    for query in spark.streams.active:
        query.stop()


def await_positions(chroot: str) -> None:
    """Wait until the query has its partitions. It reads the records that come after that."""
    wait_until(lambda: committed(chroot, GROUP) == {0: 20, 1: 10}, "it starts at the ends", DEADLINE_S)


def test_the_pages_query_writes_what_comes_while_it_runs_and_ends(
    code: str, topic: Topic, chroot: str, tmp_path: Path, spark: SparkSession
) -> None:
    ended: list[Any] = []
    running = threading.Thread(target=lambda: ended.append(names_of(code)["query"]))
    running.start()
    try:
        await_positions(chroot)
        topic.fill(1, 5)

        def written() -> list[str]:
            files = sorted((tmp_path / "stream").glob("batch=*/*.parquet"))
            return [value for each in files for value in pq.ParquetFile(each).read()["value"].to_pylist()]

        wait_until(lambda: len(written()) == 5, "it writes what came", DEADLINE_S)
        for each in spark.streams.active:
            each.stop()
    finally:
        running.join(DEADLINE_S)
    (query,) = ended
    assert (query.isActive, query.exception()) == (False, None)
    assert sorted(written()) == [f"value-{n}" for n in range(5)]


def test_the_pages_query_of_ranges_writes_a_file_for_each_range(
    code: str, topic: Topic, chroot: str, tmp_path: Path
) -> None:
    source, _, _ = code.partition("def process")
    ranges = replaced(source, **{"    .load()": '    .option("rows", "ranges")\n    .load()'})
    made = replaced(
        python_block("consumers.md", "At the connector's speed"), **{"/tmp/clicks-ranges": str(tmp_path / "ranges")}
    )
    query = names_of(ranges + made)["query"]
    await_positions(chroot)
    topic.fill(1, 5)

    wait_until(lambda: (tmp_path / "ranges" / f"{topic.name}-1-10-15.parquet").exists(), "it writes", DEADLINE_S)
    assert query.exception() is None
