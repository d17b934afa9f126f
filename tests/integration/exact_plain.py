"""A driver program of the exactness test without Spark and Kafka: the loop, the membership and the sinks are real.

Its logs grow with the clock, record n of a partition having offset n, until a file tells their end. So programs that
are started and killed at random agree on them, and one starts in a second.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from zkcoord import logs
from zkcoord.core.model import TopicPartition
from zkcoord.demo.options import GROUP, TOPIC
from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_sql
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import Options
from zkcoord.spark.ports import Limits, Membership
from zkcoord.spark.progress import LogLines
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.stream.dependencies import UnseenMeter

SESSION_TIMEOUT_MS = 2_000
LOCK_S = 60.0
TOTAL = "total"  # the file
NO_BROKER = "127.0.0.1:9"  # nobody asks it: the group keeps its offsets in ZooKeeper
WORK_S = 0.03  # a range's, at most


class Logs:
    """`ports.LogEnds`: each partition has `rate` records a second since `began_s`, in the end what the file says."""

    cluster_id = None

    def __init__(self, began_s: float, rate: int, total: Path) -> None:
        self._began_s, self._rate, self._total = began_s, rate, total

    def end(self) -> int:
        """Of each partition, now."""
        now = int((time.monotonic() - self._began_s) * self._rate)
        return min(now, int(self._total.read_text())) if self._total.exists() else now

    def ask_offsets(
        self, partitions: Collection[TopicPartition], which: str, isolation: str | None, timeout_ms: int | None
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, ZkcoordError]]:
        return dict.fromkeys(partitions, 0 if which == "earliest" else self.end()), {}

    def reset_positions(self, partitions: Collection[TopicPartition], policy: object) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def partitions(self) -> tuple[TopicPartition, ...]:
        return ()

    def confirm(self, topic: str, timeout_ms: int) -> None:
        """There is only one."""

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        """Likewise."""

    def close(self) -> None:
        """Nothing is open."""


class Frame:
    """What stands for a DataFrame."""

    columns = ("topic", "partition", "offset", "seq")

    def __init__(self, ranges: Collection[OffsetRange], cancelled: threading.Event) -> None:
        self.ranges, self._cancelled = ranges, cancelled

    def toLocalIterator(self) -> Iterator[tuple[str, int, int, int]]:
        """The records; raises when the batch is cancelled."""
        for each in self.ranges:
            if self._cancelled.wait(random.uniform(0, WORK_S)):
                raise RuntimeError("cancelled")
            yield from ((each.topic, each.partition, offset, offset) for offset in range(each.start, each.end))


class PlainDependencies:
    """`ports.Dependencies`: a real membership, and everything else of this page."""

    limits = Limits()

    def __init__(self, zookeeper: str, log_ends: Logs, options: Options) -> None:
        self._real = RealDependencies(None, zookeeper, NO_BROKER, GROUP, [TOPIC], options)  # type: ignore[arg-type]
        self._log_ends = log_ends
        self._batch = ("", threading.Event())  # the tag of the one that runs, and whether it was cancelled

    def membership(self, **callbacks: Any) -> Membership:
        return self._real.membership(**callbacks)

    def log_ends(self) -> Logs:
        return self._log_ends

    def reader(self) -> PlainDependencies:
        return self

    def jobs(self) -> PlainDependencies:
        return self

    def meter(self) -> UnseenMeter:
        return UnseenMeter()

    def progress(self) -> LogLines:
        return LogLines(GROUP)

    def await_turn(self) -> None:
        """At once."""

    def read(self, ranges: Collection[OffsetRange]) -> Any:
        return Frame(ranges, self._batch[1])

    def lacks(self, error: Exception) -> str | None:
        return None

    def away(self, error: Exception) -> bool:
        return False

    def of_cluster(self, told: Any) -> None:
        """It cannot tell."""

    def elsewhere(self, error: Exception) -> str | None:
        return None

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        self._batch = (tag, threading.Event())
        yield

    def cancel(self, tag: str) -> None:
        running, cancelled = self._batch  # another one by now, perhaps, as of Spark
        if running == tag:
            cancelled.set()


class PlainSinks:
    """A file for each range, and two tables."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        self.connect = partial(sqlite3.connect, folder / "tables.db", timeout=LOCK_S)

    def process(self, frame: Any, batch: Batch) -> None:
        """Write a batch three times."""
        ranges = [str(each) for each in batch.ranges]
        logs.emit("batch_started", seq=batch.seq, ranges=ranges, replayed=batch.replayed)
        rows = list(frame.toLocalIterator())
        for each in batch.ranges:
            numbers = [number for _, partition, _, number in rows if partition == each.partition]
            draft = self.output / f".{each}-{batch.generation}-{random.randrange(10**9)}"
            draft.write_text(json.dumps(numbers))
            draft.replace(self.output / f"{each}.json")
        write_sql(frame, batch, self.connect, "keyed")
        write_sql(frame, batch, self.connect, "plain", offsets_table="plain_offsets")
        logs.emit("batch_written", seq=batch.seq)


def main(sinks: type[PlainSinks] = PlainSinks) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--began-s", type=float, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--at-rebalance", required=True)
    chosen = parser.parse_args()
    logs.configure("json", logging.INFO)
    choices: dict[str, Any] = {
        "starting_offsets": "earliest",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "at_rebalance": chosen.at_rebalance,
    }
    ends = Logs(chosen.began_s, chosen.rate, chosen.folder / TOTAL)
    plain = PlainDependencies(chosen.zookeeper, ends, Options(**choices))
    consumer = SparkConsumer(None, chosen.zookeeper, "", GROUP, [TOPIC], dependencies=plain, **choices)  # type: ignore[arg-type]
    consumer.run(sinks(chosen.folder).process)


if __name__ == "__main__":
    main()
