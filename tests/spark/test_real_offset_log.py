"""The jobs over Kafka's offset log, on a real broker: they agree with Kafka's answers, and find operators' changes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pages import shell_block
from tests.spark.conftest import TIMEOUT_S, Topic
from tests.spark.together import ON_REAL_SERVERS
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.spark.history.commits import commits, ends_at, progress, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = ON_REAL_SERVERS
CLI_TIMEOUT_S = 600  # only a failure takes so long
DAY_MS = 24 * 3_600_000


@pytest.fixture
def topic(make_topic: Callable[[int], Topic]) -> Topic:
    made = make_topic(2)
    made.fill(0, 20)
    made.fill(1, 20)
    return made


class Group:
    """A group that commits to Kafka."""

    def __init__(self, topic: Topic, client: KafkaClient) -> None:
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self._topic, self._client = topic.name, client

    def commit(self, partition: int, offset: int, mzxid: int | None = None) -> None:
        stamp = None if mzxid is None else Stamp(tenure=Tenure("", mzxid), thread=f"{self.name}_a-0")
        named = {TopicPartition(self._topic, partition): KafkaCommit(offset=offset, stamp=stamp)}
        assert KafkaCommits(self._client).commit(self.name, named).error() is None

    def delete(self) -> None:
        self._client.admin().delete_consumer_groups([self.name])[self.name].result(TIMEOUT_S)


@pytest.fixture
def client(topic: Topic) -> Any:
    with KafkaClient(topic.bootstrap_servers) as made:
        yield made


@pytest.fixture
def group(topic: Topic, client: KafkaClient) -> Group:
    return Group(topic, client)


def reported(spark: SparkSession, topic: Topic, *groups: Group) -> dict[tuple[str, int], dict[str, Any]]:
    rows = report(commits(spark, topic.bootstrap_servers, [group.name for group in groups])).collect()
    return {(row["group"], row["partition"]): row.asDict() for row in rows}


def test_the_last_commits_in_the_log_are_what_kafka_answers(spark: SparkSession, topic: Topic, group: Group) -> None:
    with KafkaClient(topic.bootstrap_servers) as client:
        groups = [group, *(Group(topic, client) for _ in range(3))]
        for number, each in enumerate(groups):
            for offset in (1, 2, 3 + number):
                each.commit(0, offset)
            each.commit(1, 10 + number)
        answered = KafkaCommits(client).read([each.name for each in groups]).found
    rows = reported(spark, topic, *groups)
    assert len(rows) == 8
    assert {key: row["offset"] for key, row in rows.items()} == {
        (name, p.partition): commit.offset for name, found in answered.items() for p, commit in found.items()
    }
    assert rows[group.name, 0]["commits"] == 3
    assert rows[group.name, 0]["removed_ms"] is None


def test_a_rewind_and_a_commit_of_an_earlier_tenure_are_told(spark: SparkSession, topic: Topic, group: Group) -> None:
    for offset, mzxid in ((5, 100), (9, 100), (12, 200), (10, 100), (4, 300), (4, None)):
        group.commit(0, offset, mzxid)
    row = reported(spark, topic, group)[group.name, 0]
    assert (row["commits"], row["rewinds"], row["furthest"]) == (6, 2, 6)
    assert (row["earlier_tenure"], row["foreign"]) == (1, 1)
    assert row["first_ms"] <= row["changed_ms"] <= row["last_ms"]


def test_a_deleted_groups_offsets_are_removed_and_did_not_expire(
    spark: SparkSession, topic: Topic, group: Group
) -> None:
    group.commit(0, 7)
    group.commit(0, 3)
    group.delete()
    row = reported(spark, topic, group)[group.name, 0]
    assert (row["offset"], row["expired"]) == (3, False)
    assert row["removed_ms"] >= row["last_ms"]
    group.commit(0, 1)
    row = reported(spark, topic, group)[group.name, 0]
    assert (row["rewinds"], row["removed_ms"]) == (1, None)  # after a tombstone a lower offset is no rewind


def test_an_offset_that_was_removed_after_its_retention_expired(spark: SparkSession) -> None:
    from zkcoord.spark.history.decoding import COMMIT
    from zkcoord.spark.history.source import TYPES

    def row(offset: int | None, at_ms: int, log_offset: int, expire_ms: int | None = None, partition: int = 0) -> Any:
        gone = offset is None
        return ("g", "t", partition, offset, "", None if gone else at_ms, expire_ms, gone, 0, log_offset, at_ms)

    rows = [
        *(row(5, 0, 0), row(None, 2 * DAY_MS, 1)),
        *(row(5, 0, 2, DAY_MS, 1), row(None, 2 * DAY_MS, 3, None, 1)),
        *(row(5, 0, 4, 3 * DAY_MS, 2), row(None, 2 * DAY_MS, 5, None, 2)),
    ]
    schema = ", ".join(f"{field.name} {TYPES[field.type]}" for field in COMMIT)
    found = report(spark.createDataFrame(rows, schema), retention_ms=7 * DAY_MS).collect()
    assert [each.expired for each in found] == [False, True, False]


def test_commits_are_counted_in_spans_of_time(
    spark: SparkSession, topic: Topic, group: Group, client: KafkaClient
) -> None:
    for offset in (5, 9, 7):
        group.commit(0, offset)
    rows = progress(commits(spark, topic.bootstrap_servers, [group.name]), DAY_MS).collect()
    assert sum(row.commits for row in rows) == 3
    assert sum(row.rewinds for row in rows) == 1
    assert rows[-1].offset == 7
    partition = TopicPartition(topic.name, 0)
    assert ends_at(client, [partition], rows[-1].at_ms) == {partition: 20}
    assert ends_at(client, [partition], 0) == {partition: 0}


def test_the_command_writes_a_table_a_csv_file_parquet_and_a_picture(
    topic: Topic, group: Group, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in (5, 9, 7):
        group.commit(0, offset)
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", topic.bootstrap_servers)
    of_all, of_etl = shell_block("commands.md", "What groups committed, and when")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    places = {" etl ": f" {group.name} ", "2026-11-22": yesterday, "lag.png": "lag.svg"}
    done = called(of_etl, tmp_path, places, "--output", "json", "--master", "local[2]")
    assert (done.returncode, done.stderr) == (0, ""), "Spark says nothing of its start"
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["group"], row["commits"], row["offset"], row["lag"]) == (group.name, 3, 7, 13)
    assert row["notes"] == ["went back by up to 2"]
    with (tmp_path / "etl.csv").open(encoding="utf-8") as file:
        (written,) = csv.DictReader(file)
    assert (written["offset"], written["notes"]) == ("7", "went back by up to 2")
    assert spark.read.parquet(str(tmp_path / "commits")).count() == 3
    assert group.name in (tmp_path / "lag.svg").read_text(encoding="utf-8")

    done = called(of_all, tmp_path, {"broker1:9092": topic.bootstrap_servers})
    (line,) = [each for each in done.stdout.splitlines() if each.startswith(group.name)]
    assert line.endswith("went back by up to 2")


def called(line: str, folder: Path, places: Mapping[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    """Run a printed command line in the folder, after replacing some words."""
    for word, instead in places.items():
        line = line.replace(word, instead)
    program, *words = line.split()
    assert program == "zkcoord"
    command = [sys.executable, "-m", "zkcoord_command", *words, *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CLI_TIMEOUT_S, check=False)
