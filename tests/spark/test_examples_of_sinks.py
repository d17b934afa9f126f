"""The examples of sinks. Each runs as a program with its arguments, with a real group and a real store; a client other
than the sink's reads the result."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from examples import clicks_to_iceberg, clicks_to_postgres, files_in_s3, restored_table
from tests.spark.sinks.frames import DeltaLog
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options
from tests.spark.streams import committed
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, coordinating
from zkcoord.spark import SparkConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topic

pytestmark = ON_REAL_SERVERS
IDLE_MS = 1_000  # in vain: what is not there does not come later
Rows = list[tuple[Any, ...]]
WHAT = 'SELECT partition, "offset", value FROM {} ORDER BY 1, 2'


@pytest.fixture
def group(chroot: str, source: Mapping[str, Any], spark: SparkSession) -> Iterator[str]:
    """A ZooKeeper with a coordinator that serves, and the session that the programs find."""
    with coordinating(chroot, **source):
        yield chroot
    gc.collect()


@pytest.fixture
def topic(make_topic: Callable[[int], Topic], group: str) -> Topic:
    """30 records, `value-0` to `value-19` and to `value-9`."""
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 10)
    made.show_in(group)
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run a program with these arguments until it has processed so many batches; return the lines that it prints. (By
    itself it ends when nothing has come for seconds.)"""
    until_idle = SparkConsumer.run

    def called(example: ModuleType, *words: object, batches: int = 1) -> list[str]:
        def shortly(self: SparkConsumer, process: Any, idle_timeout_ms: int) -> int:
            assert idle_timeout_ms > IDLE_MS
            return until_idle(self, process, batches or None, int(DEADLINE_S * 1000) if batches else IDLE_MS)

        monkeypatch.setattr(SparkConsumer, "run", shortly)
        monkeypatch.setattr(sys, "argv", [f"examples/{example.__name__}.py", *map(str, words)])
        example.main()
        return capsys.readouterr().out.splitlines()

    return called


def written_twice(monkeypatch: pytest.MonkeyPatch, example: ModuleType, sink: str) -> list[tuple[Any, Any]]:
    """Write each batch twice, as if it came again; return the sink's results of each batch so far."""
    write, answers = getattr(example, sink), []

    def twice(*arguments: Any, **settings: Any) -> None:
        answers.append((write(*arguments, **settings), write(*arguments, **settings)))

    monkeypatch.setattr(example, sink, twice)
    return answers


def records(*counts: int) -> Rows:
    """Return the records that were written to these partitions so far."""
    return [(number, at, f"value-{at}") for number, count in enumerate(counts) for at in range(count)]


def test_clicks_come_into_an_iceberg_table_once(
    run: Callable[..., list[str]], group: str, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = written_twice(monkeypatch, clicks_to_iceberg, "write_iceberg")
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    words = (group, topic.bootstrap_servers, topic.name, "tests", *(f"{key}={value}" for key, value in where.items()))
    told = run(clicks_to_iceberg, *words)
    assert answers == [(30, 0)]
    assert sum(int(line.split()[0]) for line in told) == 30
    topic.fill(1, 3)
    run(clicks_to_iceberg, *words)
    assert answers == [(30, 0), (3, 0)]
    with load_catalog("tests", **where) as catalog:
        table = catalog.load_table(clicks_to_iceberg.TABLE)
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        assert [field.name for field in table.spec().fields] == ["day"]
    later = [(1, 10 + number, f"value-{number}") for number in range(3)]
    assert duckdb.sql(WHAT.format(f"read_parquet({files!r})")).fetchall() == records(20, 10) + later


@pytest.mark.postgres
def test_clicks_come_into_a_table_of_postgresql_once(
    run: Callable[..., list[str]], group: str, topic: Topic, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = written_twice(monkeypatch, clicks_to_postgres, "write_sql")
    monkeypatch.setattr(clicks_to_postgres, "TASKS", 2)  # as many as partitions: each starts a Python
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS clicks, clicks_offsets")
    words = (group, topic.bootstrap_servers, topic.name, postgres)
    assert run(clicks_to_postgres, *words) == ["30 rows"]
    topic.fill(1, 3)
    assert run(clicks_to_postgres, *words) == ["33 rows"]
    assert answers == [(30, 0), (3, 0)]
    with psycopg.connect(postgres) as connection:
        found = connection.execute(WHAT.format("clicks")).fetchall()
        ends = connection.execute("SELECT partition, next_offset FROM clicks_offsets ORDER BY 1").fetchall()
    assert found == records(20, 10) + [(1, 10 + number, f"value-{number}") for number in range(3)]
    assert ends == [(0, 20), (1, 13)]


@pytest.mark.s3
def test_ranges_come_into_s3_as_files_once(
    run: Callable[..., list[str]], group: str, topic: Topic, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = written_twice(monkeypatch, files_in_s3, "write_parquet_ranges")
    options = [f"{key}={value}" for key, value in arrow_options(s3.endpoint).items()]
    words = (group, topic.bootstrap_servers, topic.name, f"s3://{BUCKET}/{tmp_path.name}", *options)
    files = [f"{topic.name}-0-0-20.parquet", f"{topic.name}-1-0-10.parquet"]
    assert run(files_in_s3, *words) == ["1 batches were written", f"{20:>9} {files[0]}", f"{10:>9} {files[1]}"]
    assert (len(answers), answers[0][0] == answers[0][1]) == (1, True)
    assert s3.keys(tmp_path.name) == files
    copies = s3.download(tmp_path.name, tmp_path / "copies")
    assert duckdb.sql(WHAT.format(f"read_parquet('{copies}/*.parquet')")).fetchall() == records(20, 10)


def test_a_restored_table_is_filled_up_again(
    run: Callable[..., list[str]], group: str, topic: Topic, tmp_path: Path
) -> None:
    table = tmp_path / "clicks"
    words = (group, topic.bootstrap_servers, topic.name, table)

    def rows() -> Rows:
        return DeltaLog(table).rows('"partition", "offset"', "ALL")

    def added(*counts: int) -> Rows:
        return [(number, at) for number, count in enumerate(counts) for at in range(count)]

    assert run(restored_table, "write", *words)[0].startswith("1 batches were appended to")
    kept = DeltaTable(table).version()
    topic.fill(0, 5)
    topic.fill(1, 5)
    run(restored_table, "write", *words)
    assert rows() == added(25, 15)
    assert run(restored_table, "restore", table, kept)[0].endswith("files are gone from the table")
    assert rows() == added(20, 10)
    assert run(restored_table, "write", *words, batches=0)[0].startswith("0 batches")
    assert rows() == added(20, 10)
    run(restored_table, "refill", *words)
    assert rows() == added(25, 15)
    topic.fill(0, 1)
    run(restored_table, "write", *words)
    assert rows() == added(26, 15)
    assert committed(group, "restored-table") == {0: 26, 1: 15}
