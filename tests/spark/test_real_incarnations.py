"""A real topic is deleted and created again between two runs of a consumer and of a query, with every sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from tests.spark.conftest import TIMEOUT_S, Topic
from tests.spark.streams import Stream
from tests.spark.together import ON_REAL_SERVERS, coordinating
from tests.waiting import wait_until
from zkcoord.shell.zk.blocking import Tree
from zkcoord.spark import Batch, SparkConsumer, write_parquet_ranges, write_sql
from zkcoord.tree.paths import FROM_KAFKA, layout_named
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.topic import decode_topic
from zkcoord.tree.writes import DeleteNode, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
TABLES = """
CREATE TABLE plain (topic, "partition", "offset", value);
CREATE TABLE plain_offsets (
    topic, "partition", next_offset, incarnation INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (topic, "partition"));
CREATE TABLE keyed (
    topic, "partition", "offset", value, incarnation INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (topic, incarnation, "partition", "offset"));
"""


def mirrored_id(topic: Topic, zookeeper: str) -> str | None:
    """The topic's id in the coordinator's mirror; None if it has no mirror."""
    with Tree(zookeeper) as tree:
        (node,) = tree.read([Read(layout_named("draft", FROM_KAFKA).topic(topic.name))])
    return decode_topic(node.data).topic_id


def create_again(topic: Topic, zookeeper: str) -> None:
    """Delete the topic and create it, in Kafka and in this tree."""
    before = mirrored_id(topic, zookeeper)
    admin = topic._admin()  # the client must live until its requests are answered
    admin.delete_topics([topic.name])[topic.name].result(TIMEOUT_S)

    def created() -> bool:
        try:
            topic.create()
        except KafkaException:  # the old topic is still being deleted
            return False
        return True

    wait_until(created, "the topic is created again")
    if topic.source:
        wait_until(lambda: mirrored_id(topic, zookeeper) != before, "the coordinator takes it for another one")
        return
    with Tree(zookeeper) as tree:
        (node,) = tree.read([Read(f"/brokers/topics/{topic.name}", Kind.DATA)])
        assert node.stat is not None
        assert not tree.commit(Transaction(writes=(DeleteNode(node.path, node.stat.version),))).reason
    topic.show_in(zookeeper)


def test_f62_every_sink_takes_the_records_of_a_topic_that_was_created_again(
    spark: SparkSession, make_topic: Callable[[int], Topic], chroot: str, tmp_path: Path
) -> None:
    topic = make_topic(1)
    topic.show_in(chroot)
    connect = partial(sqlite3.connect, tmp_path / "tables.db")
    with closing(connect()) as database:
        database.executescript(TABLES)

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.selectExpr("topic", "partition", "offset", "cast(value as string) as value").cache()
        write_sql(rows, batch, connect, "plain", offsets_table="plain_offsets")
        write_sql(rows, batch, connect, "keyed")
        write_parquet_ranges(df, batch, tmp_path / "files")

    def run(name: str, count: int) -> None:
        topic.fill(0, count)
        consumer = SparkConsumer(
            *(spark, chroot, topic.bootstrap_servers, "g", [topic.name]),
            starting_offsets="earliest",
            max_offsets_per_batch=1_000,
        )
        consumer.run(process, idle_timeout_ms=60_000, max_batches=count // 1_000)

    with coordinating(chroot, **topic.source):
        run("before", 3_000)
        create_again(topic, chroot)
        run("after", 1_000)
    with closing(connect()) as database:
        counts = [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("plain", "keyed")]
        offsets = database.execute("SELECT next_offset, incarnation FROM plain_offsets").fetchall()
    assert (counts, offsets) == ([4_000, 4_000], [(1_000, 2)])
    assert spark.read.parquet(str(tmp_path / "files")).count() == 4_000
    assert sorted(path.name.removeprefix(topic.name) for path in (tmp_path / "files").glob("*.parquet")) == [
        "-0-0-1000.2.parquet",
        "-0-0-1000.parquet",
        "-0-1000-2000.parquet",
        "-0-2000-3000.parquet",
    ]


def test_f62_a_query_hands_the_incarnation_to_its_sinks(either: Stream, tmp_path: Path) -> None:
    either.topic.fill(0, 30)
    query = either.start("before", tmp_path / "before")
    either.wait_for(lambda: sum(either.records.values()) == 30, query)
    query.stop()
    create_again(either.topic, either.zookeeper)
    either.topic.fill(0, 10)
    query = either.start("after", tmp_path / "after")
    either.wait_for(lambda: "after" in {name for name, _ in either.ranges}, query)
    query.stop()
    told: list[Any] = [(name, each.start, each.end, each.incarnation) for name, b in either.ranges for each in b.ranges]
    assert (told[0], told[-1]) == (("before", 0, 30, 1), ("after", 0, 10, 2))
