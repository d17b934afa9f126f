"""No record is lost and none is there twice, in files by range and in tables, whatever dies, sleeps or leaves when.

`ZKCOORD_EXACTNESS_SEED` draws the same misfortunes again (their moments depend on the machine).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.brokers import BOTH
from tests.integration.exact_scene import PlainScene, PlainTablesScene, Scene, SparkScene, TablesScene
from tests.integration.exact_sql_scene import PostgresScene
from tests.spark.postgres import postgres_server
from tests.spark.sinks.frames import Rows
from tests.spark.sinks.s3_server import S3
from zkcoord.demo.accounting import Records, count_records


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("ZKCOORD_EXACTNESS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"ZKCOORD_EXACTNESS_SEED={chosen}")
    return chosen


def stormed(scene: Scene, seconds: int) -> dict[int, int]:
    """A storm, then calm; returns partition -> number of records."""
    with scene:
        scene.storm(seconds)
        counts = scene.calm()
    told(scene, counts)
    return counts


def told(scene: Scene, counts: dict[int, int]) -> None:
    """Say what has happened."""
    batches, replayed = scene.batches(), scene.batches(replayed=True)
    print(f"{sum(counts.values())} records, {len(batches)} batches, {len(replayed)} replayed: {', '.join(scene.done)}")
    assert replayed, "nothing was replayed: this run has shown nothing"


def play(scene: Scene, seconds: int) -> None:
    """Everything is counted after a storm."""
    counts = stormed(scene, seconds)
    total = sum(counts.values())
    once = Records(produced=total, processed=total, lost=0, duplicated=0, interrupted=0, foreign=0)
    assert count_records(counts, scene.outputs()) == once, scene.done
    expected = [(partition, n, n) for partition, count in sorted(counts.items()) for n in range(count)]
    for table in ("keyed", "plain"):
        assert scene.table(table) == expected, (table, scene.done)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("seconds", [pytest.param(30), pytest.param(300, marks=pytest.mark.long)])
def test_each_record_is_there_once_whatever_dies(tmp_path: Path, seed: int, seconds: int, version: str) -> None:
    play(SparkScene(tmp_path, seed, version=version), seconds)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.delta_scan
@pytest.mark.parametrize("version", BOTH)
def test_each_record_is_in_tables_and_in_a_store_once_whatever_dies(
    tmp_path: Path, seed: int, s3: S3, version: str
) -> None:
    """Ranges by key; Delta and Iceberg, each below a path and in the store; counts that are kept instead of records."""
    scene = TablesScene(tmp_path, seed, s3.port, version)
    counts = stormed(scene, int(os.environ.get("ZKCOORD_EXACTNESS_S") or 300))
    check(scene.tables.written(), counts, scene.done)
    check(scene.tables.read_by_spark(), counts, scene.done)
    assert scene.tables.counts() == counts, scene.done
    compacted = [each for name in scene.drivers for each in scene.events(name, "compacted")]
    assert sum(each["removed"] for each in compacted) > 0, "nothing was compacted"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.postgres
def test_f166_each_record_is_in_postgresql_once_whatever_dies_while_tasks_write(tmp_path: Path, seed: int) -> None:
    """A table with a key, and one whose ranges are transactions with the offsets, both from two tasks."""
    with postgres_server() as where:
        scene = PostgresScene(tmp_path, seed, where)
        counts = stormed(scene, int(os.environ.get("ZKCOORD_EXACTNESS_S") or 300))
        check(scene.written(), counts, scene.done)


def check(written: dict[str, Rows], counts: dict[int, int], done: list[str]) -> None:
    """Each place has each record once."""
    expected = Counter((partition, n, n) for partition, count in counts.items() for n in range(count))
    for place, found in written.items():
        rows = Counter(found)
        lost, too_many = sorted(expected - rows), sorted(rows - expected)
        assert (len(lost), len(too_many)) == (0, 0), (place, lost[:9], too_many[:9], done)


@pytest.mark.spark
@pytest.mark.zookeeper
def test_each_record_is_in_tables_once_when_a_driver_dies_or_sleeps_and_heirs_share_its_batch(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta and Iceberg below a path, in seconds. Real groups and sinks; neither Spark nor Kafka."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own is a package apart
    scene = PlainTablesScene(tmp_path, seed)
    with scene:
        scene.short_storm()
        counts = scene.calm()
    told(scene, counts)
    assert scene.shared(), f"no two heirs have shared a batch: {scene.done}"
    check(scene.written(), counts, scene.done)


@pytest.mark.zookeeper
@pytest.mark.parametrize("seconds", [pytest.param(20), pytest.param(240, marks=pytest.mark.long)])
def test_each_record_is_there_once_in_many_short_lives(tmp_path: Path, seed: int, seconds: int) -> None:
    play(PlainScene(tmp_path, seed), seconds)
