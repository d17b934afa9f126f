"""A consumer with executors in processes of their own. Nothing depends on shared files or on the driver's memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from tests.spark.on_cluster import ROWS
from tests.spark.sinks.frames import DeltaLog
from tests.spark.together import coordinating, run_program
from zkcoord.embedded.java import pyspark_jars

if TYPE_CHECKING:
    from tests.spark.conftest import Topic

SQL = """
CREATE TABLE clicks ("topic", "partition", "offset", n);
CREATE TABLE ends ("topic", "partition", next_offset, PRIMARY KEY (topic, "partition"));
"""
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]


def spark_home(folder: Path) -> str:
    """Return a copy of PySpark's home in which executors may make their folders."""
    folder.mkdir()
    for each in pyspark_jars().parent.iterdir():
        (folder / each.name).symlink_to(each)
    return str(folder)


def without_zkcoord(folder: Path) -> None:
    """Return a folder for the module search path that hides zkcoord."""
    (folder / "zkcoord").mkdir(parents=True)
    (folder / "zkcoord" / "__init__.py").write_text("raise ImportError('not on executors')\n")


def test_executors_share_the_batches_survive_each_other_and_need_no_zkcoord(
    make_topic: Callable[[int], Topic], chroot: str, spark_java: None, tmp_path: Path
) -> None:
    topic = make_topic(4)
    topic.show_in(chroot)
    for partition in range(4):
        topic.fill(partition, 25)
    without_zkcoord(tmp_path / "hidden")
    with coordinating(chroot, **topic.source):
        home = spark_home(tmp_path / "home")
        arguments = (chroot, topic.bootstrap_servers, topic.name, tmp_path)
        told = run_program("tests.spark.on_cluster", *arguments, SPARK_HOME=home)
    records = [[partition, offset] for partition in range(4) for offset in range(25)]
    spread = {"executors": 2, "zkcoord": [False], "records": records, "offsets": 100, "lost": 0}
    assert told["kafka"] == spread
    assert told["python"] == spread
    survived = {"records": records, "seq": 0, "killed": True, "batches": 1, "lost": 0}
    assert told["worker"] == survived
    assert told["executor"] == survived
    assert told["stream"] == {"ended": True, "error": None, "executors": 2, "records": records}
    groups = {line.split(" batch 0 ")[0] for line in told["shown"] if line}
    assert groups == {f"zkcoord group {each}" for each in ("spread-kafka", "spread-python", "worker", "executor")}
    assert all(f"100 offsets: {topic.name}-0 0..25, {topic.name}-1 0..25" in line for line in told["shown"] if line)


@pytest.mark.long
def test_f324_sinks_have_each_record_once_when_an_executor_is_killed_while_it_writes(
    spark_java: None, tmp_path: Path
) -> None:
    """Files by range from Spark's writer and from Python tasks, Delta, Iceberg, and SQLite from two tasks, whose
    executor is killed right after it has committed a range."""
    without_zkcoord(tmp_path / "hidden")
    with closing(sqlite3.connect(tmp_path / "tables.db")) as database:
        database.executescript(SQL)
    told = run_program("tests.spark.on_cluster", "sinks", tmp_path, SPARK_HOME=spark_home(tmp_path / "home"))
    once = {"rows": [4 * ROWS, 0], "killed": True}
    files = {"rows": [4 * ROWS, 4 * ROWS], "killed": True}  # the same ones, replaced
    others = {"rows": [3 * ROWS, 0], "killed": True}  # nobody was told that the fourth range was written
    assert told == {"ranges": files, "ranges_tasks": files, "delta": once, "iceberg": once, "sql": others}
    expected = [(partition, at, partition * ROWS + at) for partition in range(4) for at in range(ROWS)]
    what = 'SELECT "partition", "offset", n FROM {} ORDER BY ALL'
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with load_catalog("tests", **where) as catalog:
        of_iceberg = [task.file.file_path for task in catalog.load_table("db.t").scan().plan_files()]
    found = {
        "delta": DeltaLog(tmp_path / "delta").rows('"partition", "offset", n', "ALL"),
        "iceberg": duckdb.sql(what.format(f"read_parquet({of_iceberg!r})")).fetchall(),
        **{
            name: duckdb.sql(what.format(f"read_parquet('{tmp_path}/{name}/*.parquet')")).fetchall()
            for name in ("ranges", "ranges_tasks")
        },
    }
    with closing(sqlite3.connect(tmp_path / "tables.db")) as database:
        found["sql"] = database.execute('SELECT "partition", "offset", n FROM clicks ORDER BY 1, 2').fetchall()
    assert {name: rows == expected for name, rows in found.items()} == dict.fromkeys(found, True)
