"""A consumer of a remote session (Spark Connect): a server of its own, and a program that is its client."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.spark.sinks.frames import DeltaLog
from tests.spark.sinks.s3_server import S3
from tests.spark.streams import committed
from tests.spark.together import coordinating, run_program
from tests.waiting import listens, wait_until
from zkcoord.embedded import connector_jars
from zkcoord.embedded.child import Child
from zkcoord.embedded.java import pyspark_jars
from zkcoord.embedded.server import LOOPBACK, free_ports
from zkcoord.spark.sinks.data_files import DRAFTS

if TYPE_CHECKING:
    from tests.spark.conftest import Topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]
START_DEADLINE_MS = 120_000
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"  # its jar is one of PySpark's


@pytest.fixture
def server(spark_java: None, tmp_path: Path) -> Iterator[str]:
    """Start a Connect server in local mode, with the connector; give its address. It makes a folder in its working
    directory."""
    (port,) = free_ports(1)
    config = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    submit = [str(pyspark_jars().parent / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]"]
    for key, value in config.items():
        submit += ["--conf", f"{key}={value}"]
    command = ["/bin/sh", "-c", f"cd {shlex.quote(str(tmp_path))} && exec {shlex.join([*submit, 'spark-internal'])}"]
    child = Child("Spark Connect", command, tmp_path / "server.log", env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK})
    child.start()
    try:
        child.await_ready(lambda: listens(port), START_DEADLINE_MS)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        child.stop()


def stored(database: Path) -> list[tuple[str, int, int]]:
    """The rows of the table of SQLite."""
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.execute("SELECT * FROM clicks ORDER BY 1, 2, 3"))


def test_a_remote_session_reads_cancels_reports_activity_and_streams_without_its_client(
    server: str, make_topic: Callable[[int], Topic], chroot: str, tmp_path: Path
) -> None:
    topic = make_topic(2)
    topic.show_in(chroot)
    topic.fill(0, 20)
    topic.fill(1, 5)
    with coordinating(chroot, **topic.source):
        told = run_program("tests.spark.on_connect", server, tmp_path, chroot, topic.bootstrap_servers, topic.name)
        topic.fill(0, 5)
        wait_until(lambda: committed(chroot, "connect-left") == {0: 25, 1: 8}, "the query goes on", 60.0)
    records = [[0, offset] for offset in range(20)] + [[1, offset] for offset in range(5)]
    assert told["kafka"] == {"records": records, "rows": None, "bytes": None, "offsets": 25}
    assert told["python"] == {"records": records, "rows": 25, "bytes": 25 * 3 + 10 * 7 + 10 * 8 + 5 * 7, "offsets": 25}
    assert told["cancel"] == {"batches": [0, 1], "counts": [25], "lost": 1, "cancelled": [True]}
    assert told["gets_on"] == [True, False, True]
    assert told["table"] == {"counts": [5, 0], "sql": [5, 0], "setting": "INT96"}
    assert stored(tmp_path / "tables.db") == [("clicks", 0, offset) for offset in range(5)]
    assert not [*(tmp_path / "table" / DRAFTS).iterdir()]
    assert "out of reach through Spark Connect: leave the option rows away there" in told["refused"], told["refused"]
    assert told["stream"] == {
        "ran": [[True, None]] * 2,
        "rows": [[0, *each, "0:0:20,1:0:5"] for each in records] + [[1, 1, offset, "1:5:8"] for offset in range(5, 8)],
    }


@pytest.mark.s3
def test_a_remote_session_writes_ranges_and_tables_into_a_store(server: str, s3: S3, tmp_path: Path) -> None:
    told = run_program("tests.spark.on_connect_store", server, tmp_path, s3.endpoint)
    files = [["clicks-0-0-5.parquet", 5], ["clicks-1-10-14.parquet", 4]]
    assert told == {"ranges": [files, files], "delta": [9, 0], "iceberg": [9, 0]}
    place = s3.download(tmp_path.name, tmp_path / "copies")
    expected = [("clicks", 0, n, n) for n in range(5)] + [("clicks", 1, n + 5, n) for n in range(5, 9)]
    assert DeltaLog(place / "delta").rows() == expected
    for files_of in ("ranges/*.parquet", "iceberg/data/*.parquet"):
        question = f'SELECT topic, "partition", "offset", n FROM read_parquet(\'{place}/{files_of}\') ORDER BY ALL'
        assert duckdb.sql(question).fetchall() == expected
