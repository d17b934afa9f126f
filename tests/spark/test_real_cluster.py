"""A consumer with executors in processes of their own. Nothing depends on shared files or on the driver's memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.together import coordinating, run_program
from zkcoord.embedded.java import pyspark_jars

if TYPE_CHECKING:
    from tests.spark.conftest import Topic

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
