"""No record is lost and none is there twice, in files by range and in tables, whatever dies, sleeps or leaves when.

`ZKCOORD_EXACTNESS_SEED` draws the same misfortunes again (their moments depend on the machine).
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.integration.exact_scene import PlainScene, Scene, SparkScene
from zkcoord.demo.accounting import Records, count_records


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("ZKCOORD_EXACTNESS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"ZKCOORD_EXACTNESS_SEED={chosen}")
    return chosen


def play(scene: Scene, seconds: int) -> None:
    """A storm, then calm; then everything is counted."""
    with scene:
        scene.storm(seconds)
        counts = scene.calm()
    batches, replayed = scene.batches(), scene.batches(replayed=True)
    print(f"{sum(counts.values())} records, {len(batches)} batches, {len(replayed)} replayed: {', '.join(scene.done)}")
    total = sum(counts.values())
    once = Records(produced=total, processed=total, lost=0, duplicated=0, interrupted=0, foreign=0)
    assert count_records(counts, scene.outputs()) == once, scene.done
    expected = [(partition, n, n) for partition, count in sorted(counts.items()) for n in range(count)]
    for table in ("keyed", "plain"):
        assert scene.table(table) == expected, (table, scene.done)
    assert replayed, "nothing was replayed: this run has shown nothing"


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.parametrize("seconds", [pytest.param(30), pytest.param(300, marks=pytest.mark.long)])
def test_each_record_is_there_once_whatever_dies(tmp_path: Path, seed: int, seconds: int) -> None:
    play(SparkScene(tmp_path, seed), seconds)


@pytest.mark.zookeeper
@pytest.mark.parametrize("seconds", [pytest.param(20), pytest.param(240, marks=pytest.mark.long)])
def test_each_record_is_there_once_in_many_short_lives(tmp_path: Path, seed: int, seconds: int) -> None:
    play(PlainScene(tmp_path, seed), seconds)
