"""A simulated program around a structured streaming query. It calls the real `Source` as Spark does.

Its checkpoint outlives the process. An offset is written before its batch runs, and its number when the batch is
complete; then `latestOffset` is asked again. A query goes on from its checkpoint. If it finds an incomplete batch
there, it runs the batch again, whoever holds the partitions by then (`again` in the journal, instead of `handed`).

Spark cannot cancel a single batch: only the end of a query cancels its batch. So work on lost partitions counts as told
to end at the moment when the source wants it cancelled (`StreamHandover.cancel`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.programs import ZOOKEEPER, ProgramProcess
from tests.sim.spark_program import (
    CALM_SECONDS,
    KAFKA,
    BrokenBatchError,
    CancelledJobError,
    SimSpark,
    SparkDependencies,
    SparkProgram,
    Work,
)
from zkcoord.core.model import TopicPartition
from zkcoord.errors import ZkcoordError
from zkcoord.spark.options import options_of
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.handover import Handover
from zkcoord.spark.stream.offsets import EMPTY, Offset
from zkcoord.spark.stream.options import StreamOptions
from zkcoord.spark.stream.source import Source

QUERY = "query"
JOIN_WAIT_MS = 10_000
WRITE_MS_MAX = 20
"""A file of the checkpoint."""

STOP_RATE = 0.03
"""Of the moments between two calls of the source in a storm: the query is stopped, to be started again."""

LATE_RATE = 0.1
"""Of batches that fail when all is written."""

AVAILABLE_NOW_RATE = 0.2
"""Of queries in a storm."""


@dataclass(slots=True)
class Checkpoint:
    """A query's checkpoint on disk: an offset for each batch, and the number of complete batches."""

    offsets: list[Offset] = field(default_factory=list)
    complete: int = 0


class StreamHandover(Handover):
    """The real handover. It notes in the journal when Spark takes a batch, and when the batch should be cancelled."""

    def __init__(self, program: StreamProgram) -> None:
        super().__init__()
        self._program = program
        self._told = ""  # the tag of the last batch that was told to end

    def next(self, timeout_ms: int) -> Batch | None:
        """Runs on Spark's thread: a batch is in work once it is taken."""
        with self._changed:
            batch = super().next(timeout_ms)
            if batch is not None:
                self._program.spark.begin(_work(batch.ranges))
            return batch

    def cancel(self, tag: str) -> None:
        """Note that the batch is told to end. (The source cannot cancel what Spark runs.)"""
        with self._changed:
            if self._taken is not None and tag == self._tag != self._told:
                self._told = tag
                for each in self._program.spark.in_work:
                    self._program.note("told", *each)
            super().cancel(tag)


class StreamProgram(SparkProgram):
    """One query on the main thread, until it is stopped or fails."""

    again = False  # the batch that begins is a repeated one from the checkpoint
    handover: type[StreamHandover] = StreamHandover

    def run(self) -> None:
        """Run the query."""
        self.spark = SimSpark(self)
        self.batches = self.lost = 0
        choices: dict[str, Any] = {
            "max_offsets_per_batch": 200 + int(self.draw() * 800),
            "max_batch_ms": self.settings["rebalance_timeout_ms"],
            "starting_offsets": "earliest",
            "out_of_range": "earliest",
            "warm_up": lambda frame: None,
            **self.settings,
        }
        chosen = StreamOptions(
            zookeeper=ZOOKEEPER,
            bootstrap_servers=KAFKA,
            group=GROUP,
            topics=tuple(self.topics),
            poll_timeout_ms=0,
            join_wait_ms=JOIN_WAIT_MS,
            options=options_of(choices),  # type: ignore[arg-type]
        )
        source = self.source = Source(chosen, SparkDependencies(self, choices))
        source._handover = self.handover(self)
        try:
            with self.spark.running(QUERY, ""):
                self._query(source)
        except (ZkcoordError, BrokenBatchError, CancelledJobError) as error:
            self.world.trace(self.process.client, "query ends:", error)
        finally:
            self.spark.end()
            source.stop()

    def stop(self) -> None:
        """Called on another thread: the running batch is cancelled."""
        if hasattr(self, "spark"):
            self.spark.cancel(QUERY)

    def note(self, event: str, partition: TopicPartition, start: int, end: int = -1) -> None:
        """Add a line to the journal. (Before there is a member, the source asks where logs begin; no position is reset
        then.)"""
        if event != "reset" or self.member is not None:
            super().note(event, partition, start, end)

    def handed(self, partition: TopicPartition, start: int, end: int) -> None:
        """User code was given these records, perhaps again."""
        self.note("again" if self.again else "handed", partition, start, end)

    def _query(self, source: Source) -> None:
        assert isinstance(self.process, ProgramProcess)
        checkpoint = self.process.disk = self.process.disk or Checkpoint()
        offsets = checkpoint.offsets
        ends = self.world.stormy and self.draw() < AVAILABLE_NOW_RATE
        tells = ends or self.draw() < 0.5  # Spark 4.2 passes the last offset with each call
        if ends:
            source.end_at_present()
        last = offsets[-1] if offsets else EMPTY
        if checkpoint.complete < len(offsets):
            self._run(source, offsets[-2] if len(offsets) > 1 else EMPTY, last, again=True)
        elif offsets:
            assert source.tasks(last, last) == []
        while not self._ends():
            found = _written(source.latest(last if tells else None))
            if self._ends() or (found == last and ends):
                return
            if found == last:
                self.crew.sleep(CALM_SECONDS if self.world.draining else 0)
                self.rest()
                continue
            self.nap(WRITE_MS_MAX)
            offsets.append(found)
            if self._ends():
                return
            self._run(source, last, found)
            last = found
            if not self.world.draining:
                self.rest()

    def _ends(self) -> bool:
        """True when the query is stopped now."""
        return self.leaving or (self.world.stormy and self.draw() < STOP_RATE)

    def _run(self, source: Source, start: Offset, end: Offset, *, again: bool = False) -> None:
        """Run a batch whose offset is in the checkpoint."""
        work = _work([each for task in source.tasks(start, end) for each in task])
        if again:
            self.again = True
            self.spark.begin(work)
            self.again = False
        assert work == self.spark.in_work, f"Spark is handed {self.spark.in_work}, and told to read {work}"
        for each in work:
            self._job(each)
        if self.world.stormy and self.draw() < LATE_RATE:
            raise BrokenBatchError
        self.nap(WRITE_MS_MAX)
        assert isinstance(self.process, ProgramProcess)
        self.process.disk.complete += 1


def _work(ranges: tuple[OffsetRange, ...] | list[OffsetRange]) -> list[Work]:
    return [(each.topic_partition, each.start, each.end) for each in ranges]


def _written(offset: Mapping[str, Any]) -> Offset:
    """An offset as Spark stores it."""
    found: Offset = json.loads(json.dumps(offset))
    return found
