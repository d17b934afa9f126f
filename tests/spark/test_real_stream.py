"""`format("zkcoord")` as a member of a real group: coordinator, ZooKeeper, Kafka and Spark are all real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import python_block
from tests.spark.on_stream import Tables
from tests.spark.streams import Stream, await_progress
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS
from tests.waiting import wait_until
from zkcoord.spark import register_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = ON_REAL_SERVERS
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_a_query_reads_what_is_there_and_what_comes(stream: Stream, tmp_path: Path) -> None:
    stream.topic.fill(0, 20)
    stream.topic.fill(1, 10)
    query = stream.start("a", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 30, query)
    stream.topic.fill(0, 5)
    stream.wait_for(lambda: len(stream.records) == 35, query)
    query.stop()
    assert set(stream.records.values()) == {1}


def test_a_restarted_query_does_not_read_a_complete_uncommitted_batch_again(either: Stream, tmp_path: Path) -> None:
    either.topic.fill(0, 20)
    either.topic.fill(1, 10)
    first = either.start("first", tmp_path, {"processingTime": "1 hour"}, maxRecordsPerPartition="9")  # F313, too
    progress = await_progress(first, 0)
    assert progress["numInputRows"] == 30, "the UI's streaming tab counts records, also where the rows are ranges"
    ranges = json.loads(progress["sources"][0]["endOffset"])["ranges"][either.topic.name]
    assert ranges == {
        "0": {"lo": 0, "hi": 20, "end": 20, "incarnation": 1},
        "1": {"lo": 0, "hi": 10, "end": 10, "incarnation": 1},
    }
    first.stop()  # the source was never told that the batch is complete
    assert len(either.records) == 30
    either.topic.fill(0, 7)
    second = either.start("second", tmp_path)
    either.wait_for(lambda: len(either.records) == 37, second)
    second.stop()
    assert set(either.records.values()) == {1}


def test_a_broken_batch_is_read_again_with_its_own_ranges(either: Stream, tmp_path: Path) -> None:
    """It breaks after it was written into tables: they have it once."""
    taken: list[int] = []
    if either.of_ranges:
        tables = Tables(tmp_path)
        either.write = lambda df, batch: taken.extend(tables.write(df, batch).values())
    _break_and_go_on(either, tmp_path / "checkpoint")
    if either.of_ranges:
        assert taken[:6] == [7, 7, 7, 0, 0, 0]
        expected = [(0, offset) for offset in range(12)] + [(1, offset) for offset in range(3)]
        assert tables.rows() == dict.fromkeys(("delta", "iceberg", "sql"), expected)


def test_a_broken_batch_is_read_again_as_it_was_from_a_checkpoint_of_spark_s_other_writer(
    stream: Stream, tmp_path: Path
) -> None:
    """The documentation names this writer: on a local disk a batch takes less time with it."""
    stream.of_ranges = True
    exec(python_block("consumers.md", "At the connector's speed", 2), {"spark": stream.spark})
    try:
        _break_and_go_on(stream, tmp_path)
    finally:
        stream.spark.conf.unset(MANAGER)
    assert (tmp_path / "offsets" / ".0.crc").exists()  # Spark's default writer makes no such file


def _break_and_go_on(stream: Stream, tmp_path: Path) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    stream.topic.fill(0, 7)
    stream.before = fail
    first = stream.start("first", tmp_path)
    with pytest.raises(Exception, match="the sink is away"):
        first.awaitTermination(int(DEADLINE_S))
    stream.before = lambda number: None
    stream.topic.fill(0, 5)
    stream.topic.fill(1, 3)
    second = stream.start("second", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 15, second)
    second.stop()
    assert stream.batches[0] == ("second", 0, [(0, offset) for offset in range(7)])
    assert stream.ranges[0][1].replayed is stream.of_ranges  # `stream_batch` cannot know it
    assert not stream.ranges[1][1].replayed
    assert set(stream.records.values()) == {1}


def test_f253_a_query_that_leaves_out_ranges_is_refused_and_its_batch_comes_again(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query's filter would have no effect, since `batches` takes the ranges from the source."""
    stream.of_ranges = True
    stream.topic.fill(0, 7)
    with monkeypatch.context() as filtered:
        of_source = stream.rows
        filtered.setattr(stream, "rows", lambda **options: of_source(**options).where("partition = 1"))
        refused = stream.start("a", tmp_path)
        wait_until(lambda: not refused.isActive, "the end of the query", DEADLINE_S)
    assert "filter and transform the records in `process`" in str(refused.exception())
    assert stream.batches == []
    query = stream.start("a", tmp_path)
    stream.wait_for(lambda: len(stream.records) == 7, query)
    query.stop()


def test_available_now_reads_what_is_there_and_ends(stream: Stream, tmp_path: Path) -> None:
    for count in (20, 7):
        stream.topic.fill(0, count)
        query = stream.start(f"run of {count}", tmp_path, {"availableNow": True}, joinWaitMs="60000")
        assert query.awaitTermination(int(DEADLINE_S))
    assert stream.records == Counter({(0, offset): 1 for offset in range(27)})


def test_stateful_operators_count_over_all_batches(stream: Stream, tmp_path: Path) -> None:
    words = stream.rows().selectExpr("explode(split(cast(value as string), '-')) as word").groupBy("word").count()
    writer = words.writeStream.outputMode("complete").format("memory").queryName("words")
    query = writer.option("checkpointLocation", str(tmp_path)).start()

    def found() -> dict[str, int]:
        return {row["word"]: row["count"] for row in stream.spark.table("words").collect()}

    def counted(total: int) -> bool:
        assert query.exception() is None, query.exception()
        return found().get("value") == total

    for count, total in ((20, 20), (5, 25)):
        stream.topic.fill(1, count)
        try:
            wait_until(partial(counted, total), f"{total} records", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {found()}, {query.status}, {query.recentProgress}") from error
    assert found() == {"value": 25, **{str(number): 2 if number < 5 else 1 for number in range(20)}}


PLANNER = """
import sys
from pyspark import cloudpickle
source = cloudpickle.loads(sys.stdin.buffer.read())
reader = source.streamReader(schema=None)
lo_hi = {"0": {"lo": 0, "hi": 5, "end": 5}}
offset = {"version": 1, "run": reader._planning()._run_id, "ranges": {"t": lo_hi}}
tasks = reader.partitions(reader.initialOffset(), offset)
sys.stdout.buffer.write(cloudpickle.dumps((source.streamReader(schema=None), tasks)))
"""
WORKER = """
import sys
for name in ("zkcoord", "kazoo"):
    sys.modules[name] = None
from pyspark import cloudpickle
reader, tasks = cloudpickle.loads(sys.stdin.buffer.read())
settings = {**reader._plan["settings"], "socket.timeout.ms": "500", "log_level": "0"}
reader._plan = {**reader._plan, "settings": settings, "timeout_ms": 100}
try:
    list(reader.read(tasks[0]))
except RuntimeError as error:
    print(error)
"""


def test_a_worker_that_reads_needs_no_zkcoord(spark: SparkSession) -> None:
    from pyspark import cloudpickle

    from zkcoord.spark.stream.data_source import StreamSource

    register_source(spark)
    options = {"zookeeper": "z:1", "kafka.bootstrap.servers": "127.0.0.1:1", "group": "g", "subscribe": "t"}
    sent = cloudpickle.dumps(StreamSource(options=options))
    for program in (PLANNER, WORKER):  # as Spark hands it on: from the driver to who plans, and from there to a worker
        sent = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True).stdout
    assert sent.decode().strip() == "Kafka delivered nothing of t-0 from 0 to 5 for 100 ms"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribePattern": "a.*"}, "say what to read"),
        ({"assign": "{}"}, "option assign is not one of format"),
        ({"maxOffsetsPerTrigger": "many"}, "must be a whole number"),
        ({"startingOffsets": '{"t":{"0":5}}'}, "its offsets in ZooKeeper say"),
        ({"kafka.max.poll.records": "5"}, "leave it out"),
        ({"colour": "red"}, "has no option colour"),
    ],
)
def test_wrong_options_are_told_when_the_source_is_loaded(stream: Stream, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        stream.rows(**options)
