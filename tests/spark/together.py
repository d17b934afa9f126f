"""Consumers of one real group: a coordinator that serves, and the records that all consumers have processed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.fakes import InThread
from zkcoord.coordinator import Coordinator
from zkcoord.spark import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEADLINE_S = 180.0  # only what fails takes so long
PROGRAM_DEADLINE_S = 300.0  # a Spark session of its own takes 6 s to begin on a quiet machine
ROOT = Path(__file__).parents[2]
ON_REAL_SERVERS = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.zookeeper,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark's collect() leaves its socket
    pytest.mark.usefixtures("sockets_collected"),
]


@contextmanager
def coordinating(zookeeper: str, **source: Any) -> Iterator[None]:
    """Return the world with a coordinator that serves, and that takes topics from this source."""
    serving = threading.Event()
    coordinator = Coordinator(zookeeper, on_serving=lambda number, epoch: serving.set(), **source)
    coordinator.start()
    try:
        assert serving.wait(DEADLINE_S)
        yield
    finally:
        coordinator.stop()


class Seen:
    """The records that all consumers together have processed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.records: Counter[tuple[int, int]] = Counter()
        self.by: dict[str, set[int]] = {}

    def process_as(self, name: str) -> Callable[[DataFrame, Batch], None]:
        def process(df: DataFrame, batch: Batch) -> None:
            rows = [(row.partition, row.offset) for row in df.select("partition", "offset").collect()]
            with self._changed:
                self.records.update(rows)
                self.by.setdefault(name, set()).update(partition for partition, _ in rows)
                self._changed.notify_all()

        return process

    def wait_for(self, what: Callable[[], bool], runs: Sequence[InThread] = ()) -> None:
        """Wait until `what` is true. `runs` are the threads that should make it true; a failure shows their errors."""
        with self._changed:
            met = self._changed.wait_for(what, DEADLINE_S)
            assert met, (sum(self.records.values()), self.by, [(each.done, each.error) for each in runs])


def endless(df: DataFrame) -> int:
    """A job that takes hours, in tasks that can be cancelled."""
    spark = df.sparkSession
    return df.crossJoin(spark.range(10**13)).selectExpr("hash(value, id) as h").where("h = 1").count()


def run_program(module: str, *arguments: object, **environment: str) -> Any:
    """Run a program of these tests; return the JSON of the last line that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_DEADLINE_S, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
