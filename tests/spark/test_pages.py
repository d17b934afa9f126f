"""Runs the code blocks about Spark in README and docs/consumers.md; only addresses, topics and folders are replaced."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.pages import python_block, shell_block
from tests.spark.sinks.frames import DeltaLog
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options
from tests.spark.streams import committed
from tests.spark.together import ON_REAL_SERVERS, PROGRAM_DEADLINE_S, coordinating
from tests.waiting import wait_until
from zkcoord.embedded import connector_jars
from zkcoord.spark import SparkConsumer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topic
    from zkcoord.spark import Batch

pytestmark = ON_REAL_SERVERS
ROOT = Path(__file__).parents[2]
Process = Callable[["DataFrame", "Batch"], None]
SMALL = ("spark.ui.enabled=false", "spark.driver.memory=512m", "spark.driver.bindAddress=127.0.0.1")
RESOLVER = """<ivysettings><settings defaultResolver="cache"/><resolvers><filesystem name="cache">
<ivy pattern="{made}/[module].xml"/><artifact pattern="{jars}/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""
MODULE = """<ivy-module version="2.0"><info organisation="{0}" module="{1}" revision="{2}"/>
<configurations><conf name="default"/></configurations><publications><artifact conf="default"/></publications>
<dependencies>{needs}</dependencies></ivy-module>"""
NEEDED = '<dependency org="{0}" name="{1}" rev="{2}" conf="default->default"/>'


class EnoughError(Exception):
    """Raised to end a consumer that would run on."""


@pytest.fixture
def group(chroot: str, source: Mapping[str, Any]) -> Iterator[str]:
    """A ZooKeeper with a coordinator that serves."""
    with coordinating(chroot, **source):
        yield chroot


@pytest.fixture
def topic(make_topic: Callable[[int], Topic], group: str) -> Topic:
    """Two partitions, with 20 records and 10."""
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 10)
    made.show_in(group)
    return made


def replaced(text: str, **other: str) -> str:
    """Return the text with these words replaced; each of them must be in it."""
    for word, instead in other.items():
        assert word in text, f"{word} is not in the block"
        text = text.replace(word, instead)
    return text


def names_of(code: str) -> dict[str, Any]:
    """Run a block; return its names and values."""
    names: dict[str, Any] = {}
    exec(compile(code, "<page>", "exec"), names)
    return names


def read(group: str, topic: Topic, spark: SparkSession, process: Process) -> int:
    """Call `process` with one batch of all records, as the group etl of the pages."""
    where = (spark, group, topic.bootstrap_servers, "etl", [topic.name])
    return SparkConsumer(*where, starting_offsets="earliest").run(process, max_batches=1)


def test_the_pages_tables_take_each_record_once_and_one_that_was_restored_is_filled_again(
    spark: SparkSession, group: str, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = iceberg(tmp_path, monkeypatch)
    folder = str(tmp_path / "clicks")
    blocks = (
        replaced(python_block("consumers.md", "Sinks"), **{"/tmp/clicks.db": str(tmp_path / "clicks.db")}),
        replaced(python_block("consumers.md", "Delta tables"), **{"/data/clicks": folder}),
        python_block("consumers.md", "Iceberg tables"),
    )
    sinks = [names_of(each)["process"] for each in blocks]

    def rows() -> list[tuple[int, int]]:
        """Return how many rows each table has, and how many different ones."""
        database = sqlite3.connect(tmp_path / "clicks.db")
        counted = 'count(*), count(distinct "partition" * 100 + "offset")'
        found = [database.execute(f"select {counted} from clicks").fetchone()]
        database.close()
        found += DeltaLog(Path(folder)).rows(counted, "1")
        table = lake.load_table("lake.clicks").scan().to_arrow()
        return [*found, (table.num_rows, table.num_rows)]

    def all_of_them(df: DataFrame, batch: Batch) -> None:
        for sink in sinks:
            sink(df, batch)

    assert read(group, topic, spark, all_of_them) == 1
    assert rows() == [(30, 30)] * 3
    version = DeltaTable(folder).version()
    topic.fill(1, 3)
    assert read(group, topic, spark, all_of_them) == 1
    assert rows() == [(33, 33)] * 3

    DeltaTable(folder).restore(version)
    assert rows()[1] == (30, 30)
    again = replaced(
        python_block("consumers.md", "Where a table ends"),
        **{"/data/clicks": folder, '["clicks"]': repr([topic.name])},
    )

    def once(df: DataFrame, batch: Batch) -> None:
        sinks[1](df, batch)
        raise EnoughError

    with pytest.raises(EnoughError):
        names_of(again)["run_again"](spark, group, topic.bootstrap_servers, once)
    assert rows()[1] == (33, 33)


def iceberg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog of the name "default", with the table lake.clicks."""
    import pyarrow as pa
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    for name, value in {"URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": f"file://{folder}/warehouse"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DEFAULT__{name}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it read the environment at its import
    catalog = pyiceberg.catalog.load_catalog("default")
    catalog.create_namespace("lake")
    catalog.create_table("lake.clicks", pa.schema([("topic", pa.string()), ("value", pa.binary())]))
    return catalog


@pytest.mark.s3
def test_the_pages_sink_below_a_uri_writes_a_file_for_each_range(
    spark: SparkSession, group: str, topic: Topic, s3: S3
) -> None:
    options = repr(arrow_options(s3.endpoint))
    code = replaced(
        python_block("consumers.md", "Files by range in an object store, or HDFS"),
        **{'{"region": "eu-central-1"}': options, "s3a://lake/clicks": f"s3a://{BUCKET}/{topic.name}"},
    )
    assert read(group, topic, spark, names_of(code)["process"]) == 1
    assert s3.keys(topic.name) == [f"{topic.name}-0-0-20.parquet", f"{topic.name}-1-0-10.parquet"]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of a program's own Spark: small, with the jars that tests have fetched as its repository."""
    jars, made = connector_jars(), tmp_path / "made"
    named = [("org.apache.spark", *jar.stem.rsplit("-", 1)) for jar in jars]  # an organisation is not looked at
    (connector,) = [each for each in named if each[1].startswith("spark-sql-kafka")]
    needs = "".join(NEEDED.format(*each) for each in named if each != connector)
    made.mkdir()
    for each in named:
        module = MODULE.format(*each, needs=needs if each == connector else "")
        (made / f"{each[1]}.xml").write_text(module, "utf-8")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(RESOLVER.format(made=made, jars=jars[0].parent), "utf-8")
    given = (*SMALL, f"spark.jars.ivySettings={settings}", f"spark.jars.ivy={tmp_path}/ivy")
    words = " ".join(f"--conf {each}" for each in given)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{words} pyspark-shell")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.mark.usefixtures("packages", "spark_java")
def test_the_readmes_pyspark_consumer_writes_what_comes_and_ends_at_sigterm(
    group: str, topic: Topic, tmp_path: Path
) -> None:
    code = replaced(
        python_block("README.md", "A PySpark consumer"),
        **{
            "localhost:2181": group,
            "localhost:9092": topic.bootstrap_servers,
            '["clicks"]': repr([topic.name]),
            "/tmp/clicks": str(tmp_path / "clicks"),
        },
    )
    command = [sys.executable, "-c", code]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    filled: list[int] = []

    def written() -> bool:
        if not filled and len(committed(group, "etl")) == 2:
            filled.append(1)
            topic.fill(1, 5)
        return (tmp_path / "clicks" / f"{topic.name}-1-10-15.parquet").exists()

    try:
        wait_until(lambda: running.poll() is not None or written(), "it writes what came", PROGRAM_DEADLINE_S)
        running.send_signal(signal.SIGTERM)
        printed = running.communicate(timeout=PROGRAM_DEADLINE_S)[0]
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, printed[-4000:]
    assert committed(group, "etl") == {0: 20, 1: 15}


@pytest.mark.usefixtures("packages", "spark_java")
def test_the_readmes_example_counts_words(
    group: str, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [each for each in shell_block("README.md", "Try it", 2) if each.startswith("python ")]
    monkeypatch.setenv("ZKCOORD_ZOOKEEPER", group)
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", topic.bootstrap_servers)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    words = replaced(line, clicks=topic.name, **{"/tmp/words": str(tmp_path / "words")})
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_DEADLINE_S)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-10:-7] == ["       30 value", "        2 0", "        2 1"]
