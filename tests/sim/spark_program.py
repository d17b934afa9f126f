"""A simulated program around `SparkConsumer`. Its jobs take time, and a cancelled job ends late, or never.

Its sink is keyed by ranges: a range is written (`processed`) when its job has ended, committed or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.kafka import SimClient
from tests.sim.programs import ZOOKEEPER, Program
from tests.sim.sync import SimCondition
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.incarnations import cluster_id_in, incarnations_in
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import options_of
from zkcoord.spark.ports import Report
from zkcoord.spark.ranges import Batch, OffsetRange

KAFKA = "kafka:9092"
CANCEL_MS_MAX = 2_000
"""How late a cancellation takes effect; more than `cancel_wait_ms` when it never does."""

CALM_SECONDS = 2.0
NEVER_RATE = 0.05
"""Of jobs that nothing cancels: code outside of Spark."""

Work = tuple[TopicPartition, int, int]


class CancelledJobError(Exception):
    """A job was cancelled."""


class SimSpark:
    """Spark as a program sees it: runs the jobs of one batch at a time, and cancels them."""

    def __init__(self, program: SparkProgram) -> None:
        self._program = program
        self._changed = SimCondition()
        self._tag = ""
        self._cancelled = False
        self.in_work: list[Work] = []
        self.told = False  # the jobs in work were told to end

    # -- ports.Jobs

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        """Jobs that this thread starts in this context carry the tag."""
        self._tag, self._cancelled = tag, False
        try:
            yield
        finally:
            self._tag = ""

    def cancel(self, tag: str) -> None:
        """Ask the active jobs to end. They end sooner or later, or never."""
        if tag != self._tag or not self.in_work or self.told:
            return
        self.told = True
        for work in self.in_work:
            self._program.note("told", *work)
        if self._program.draw() >= NEVER_RATE:
            self._program.process.after(int(self._program.draw() ** 3 * CANCEL_MS_MAX), self._end)

    def _end(self) -> None:
        """End the cancelled jobs; runs on the world's thread."""
        if self.told:
            self._cancelled = True
            self._changed.notify_all()

    # -- calls of the user's code

    def begin(self, work: list[Work]) -> None:
        """User code was given a batch."""
        self.in_work, self.told, self._cancelled = list(work), False, False
        for each in work:
            self._program.handed(*each)

    def job(self, each: Work, ms: int) -> None:
        """Read and write one range; raises CancelledJobError."""
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled, ms / 1000)
            if self._cancelled:
                raise CancelledJobError
        self.in_work.remove(each)
        self._program.processed(*each)

    def end(self) -> None:
        """The batch is over: its ranges that are not written yet never will be."""
        for each in self.in_work:
            self._program.note("broken", *each)
        self.in_work = []


class SparkDependencies(RealDependencies):
    """The real membership; everything else is simulated."""

    def __init__(self, program: SparkProgram, choices: dict[str, Any]) -> None:
        super().__init__(None, ZOOKEEPER, KAFKA, GROUP, dict(program.topics), options_of(choices))  # type: ignore[arg-type]
        self._program = program
        self._idle = False

    def membership(self, **callbacks: Any) -> Any:
        """Make the real membership, and let the program know it."""
        self._program.member = super().membership(**callbacks)
        return self._program.member

    def log_ends(self) -> SimClient:
        return self._program.process.kafka.client()

    def incarnations(self, topics: Collection[str]) -> Mapping[str, int]:
        leader = self._program.world.ensemble.leader
        return incarnations_in(lambda reads: [leader.answer(each, None) for each in reads], GROUP, topics)

    def tree_cluster(self) -> str | None:
        leader = self._program.world.ensemble.leader
        return cluster_id_in(lambda reads: [leader.answer(each, None) for each in reads])

    def reader(self) -> SparkDependencies:
        return self

    def jobs(self) -> SimSpark:
        return self._program.spark

    def meter(self) -> SparkMeter:
        return SparkMeter()

    def progress(self) -> SparkDependencies:
        return self

    def await_turn(self) -> None:
        """Return at once. In a calm, wait first if there was nothing to read."""
        if self._idle and self._program.world.draining:
            self._program.crew.sleep(CALM_SECONDS)
        self._idle = False

    # -- ports.Reader; its DataFrame is None

    def read(self, ranges: Collection[OffsetRange]) -> Any:
        return None

    def lacks(self, error: Exception) -> str | None:
        return None

    def away(self, error: Exception) -> bool:
        return isinstance(error, UnavailableError)

    def of_cluster(self, told: Any) -> None:
        """Do nothing: a simulated reader cannot tell the cluster."""

    def elsewhere(self, error: Exception) -> str | None:
        return None

    # -- ports.Progress

    def batch_done(self, report: Report) -> None:
        self._program.batches += 1

    def batch_lost(self) -> None:
        self._program.lost += 1

    def idle(self, lag: int) -> None:
        """There is nothing to read."""
        self._idle = True

    def unheld(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


class SparkMeter:
    """Jobs make progress as long as they run."""

    def __init__(self) -> None:
        self._looks = 0

    def watch(self, df: Any) -> Any:
        return df

    def read(self, tag: str) -> tuple[None, None]:
        return None, None

    def activity(self, tag: str) -> object:
        self._looks += 1
        return self._looks


class SparkProgram(Program):
    """A driver program: `run` is called on its main thread, `stop` on another one."""

    def run(self) -> None:
        """Run until the program is told to stop."""
        self.spark = SimSpark(self)
        self.batches = self.lost = 0
        timeout_ms = self.settings["rebalance_timeout_ms"]
        self.patience_ms = timeout_ms + SparkDependencies.limits.cancel_wait_ms
        choices = {
            "max_offsets_per_batch": 50 + int(self.draw() * 500),
            "max_batch_ms": timeout_ms // 2,
            "at_stop": "cancel" if self.draw() < 0.3 else "finish",
            "at_rebalance": "cancel" if self.draw() < 0.3 else "finish",
            "warm_up": lambda frame: None,
            **self.settings,
        }
        self.consumer = SparkConsumer(
            None,  # type: ignore[arg-type]
            ZOOKEEPER,
            KAFKA,
            GROUP,
            dict(self.topics),
            dependencies=SparkDependencies(self, choices),
            **choices,  # type: ignore[arg-type]
        )
        if self.leaving:
            return
        try:
            self.consumer.run(self._batch)
        except (ZkcoordError, BrokenBatchError) as error:
            self.world.trace(self.process.client, "program ends:", error)

    def stop(self) -> None:
        """Called on another thread."""
        if hasattr(self, "consumer"):
            self.consumer.stop()

    def _batch(self, frame: object, batch: Batch) -> None:
        work = [(each.topic_partition, each.start, each.end) for each in batch.ranges]
        self.spark.begin(work)
        try:
            for each in work:
                self._job(each)
        finally:
            self.spark.end()

    def _job(self, each: Work) -> None:
        options = self.world.options
        longest = options.read_ms_max * (8 if self.draw() < 0.1 else 1)
        if self.world.stormy and self.draw() < self.hang_rate:
            longest = HANG_MS_MAX
            self.hangs += 1
        if self.world.stormy and self.draw() < options.start_raises_rate / 4:
            raise BrokenBatchError
        self.spark.job(each, int(self.draw() * longest))


HANG_MS_MAX = 40_000


class BrokenBatchError(Exception):
    """An error of the user's code."""
