"""The migration's phases. A phase ends when the group is at rest and all records are processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.demo.migration.counting import Counted, count
from zkcoord.demo.migration.options import AUTO_COMMIT_MS, BACKOFF_MS, OLD, OLD_VERSION, RETRIES, SPARK
from zkcoord.demo.migration.stage import MigrationStage
from zkcoord.demo.options import GROUP, TOPIC
from zkcoord.demo.programs import PRODUCER

CALM_MS = 2_000  # how long records flow at the end of each phase, while nothing else happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase. `killed`: the programs that were killed in it."""

    name: str
    took_ms: int
    records: int  # how many were processed in this phase
    killed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """Everything that the demo reports at its end.

    `ends`: how many records each partition has. `in_kafka`: the group's offsets as Kafka's own tool shows them.
    """

    counted: Counted
    phases: Sequence[Phase]
    ends: Mapping[TopicPartition, int]
    in_kafka: Mapping[TopicPartition, int]

    @property
    def fine(self) -> bool:
        """True when the demo shows what it promises."""
        return self.counted.fine and self.in_kafka == self.ends


def play(stage: MigrationStage) -> MigrationResult:
    """Play the whole migration with the servers and programs of `stage`, which run already."""
    drama = _Drama(stage)
    stage.places.go(PRODUCER).touch()
    phases: tuple[tuple[str, Callable[[], None]], ...] = (
        ("old consumers alone", lambda: None),
        ("zkcoord comes in", drama.comes_in),
        ("consumers are replaced", drama.replaces),
        ("the coordinator is killed", drama.fails_over),
        ("offsets go to both stores", drama.to_both),
        ("offsets go to Kafka", drama.to_kafka),
        ("and back to ZooKeeper", drama.to_zookeeper),
        ("and to Kafka again", drama.to_kafka_again),
    )
    for name, happens in phases:
        with drama.phase(name):
            happens()
    ends = end_of_records(stage)
    stage.group.catch_up()
    stage.await_commits(GROUP, ends)
    stage.zkcoord("offsets", "verify", GROUP)
    in_kafka = stage.offsets_in_kafka(GROUP)
    stage.voice.say("counting")
    produced = {p.partition: size for p, size in ends.items()}
    counted = count(produced, stage.group.read_by(), killed=drama.killed, old=OLD)
    return MigrationResult(counted=counted, phases=tuple(drama.phases), ends=ends, in_kafka=in_kafka)


def end_of_records(stage: MigrationStage) -> dict[TopicPartition, int]:
    """End the producer; return how many records each partition has."""
    said = stage.end_producer()
    return {TopicPartition(TOPIC, int(partition)): size for partition, size in said["records"].items()}


class _Drama:
    """The phases."""

    def __init__(self, stage: MigrationStage) -> None:
        self._stage = stage
        self.phases: list[Phase] = []
        self.killed: list[str] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase: the block's events, then some calm."""
        stage, began_ms, killed = self._stage, mono_ms(), len(self.killed)
        group, before = stage.group, stage.group.processed()
        stage.voice.say(f"PHASE {len(self.phases) + 1}: {name}")
        yield
        stage.flow(CALM_MS)
        group.catch_up()
        took_ms, records = mono_ms() - began_ms, group.processed() - before
        self.phases.append(Phase(name=name, took_ms=took_ms, records=records, killed=self.killed[killed:]))
        stage.voice.say(f"{records:,} records in {took_ms / 1000:.1f} s · {group.describe()}")

    def comes_in(self) -> None:
        """Make an inventory, start coordinators, and adopt the group: no partition moves."""
        stage = self._stage
        stage.zkcoord("inventory")
        stage.start_coordinators()
        what = ["--offsets", "zookeeper", "--strategy", "range", "--kafka", OLD_VERSION.rpartition(".")[0]]
        how = ["--retries", str(RETRIES), "--backoff-ms", str(BACKOFF_MS)]
        stage.zkcoord("group", "adopt", GROUP, *what, *how, "--auto-commit-interval-ms", str(AUTO_COMMIT_MS))
        stage.zkcoord("group", "describe", GROUP, "--state")

    def replaces(self) -> None:
        """Replace the three old consumers: one leaves, one is killed, and one leaves after PySpark has joined."""
        stage, group = self._stage, self._stage.group
        a, b, c = OLD
        group.start_ours("x")
        group.settle(4)
        group.leave(a)
        group.settle(3)
        self._kill(b)
        group.settle(2)
        group.start_ours("y")
        group.settle(3)
        stage.places.go(SPARK).touch()
        group.settle(4)
        group.leave(c)
        group.settle(3)

    def fails_over(self) -> None:
        """The coordinator that serves is killed; consumers read on, and the standby serves. The killed one is started
        again as a standby."""
        self.killed.append(self._stage.fail_over())

    def to_both(self) -> None:
        """Move the offsets to both stores. Meanwhile a consumer is killed, and another one takes its place."""
        with self._moving("dual"):
            self._kill("y")
        self._stage.group.settle(2)
        self._stage.group.start_ours("y2")
        self._stage.group.settle(3)

    def to_kafka(self) -> None:
        """Move the offsets to Kafka. Meanwhile the coordinator is killed."""
        with self._moving("kafka"):
            self.fails_over()

    def to_zookeeper(self) -> None:
        """Move the offsets back to ZooKeeper. Meanwhile a consumer is killed, and another one takes its place."""
        with self._moving("zookeeper"):
            self._kill("x")
        self._stage.group.settle(2)
        self._stage.group.start_ours("x2")
        self._stage.group.settle(3)

    def to_kafka_again(self) -> None:
        """Move the offsets to Kafka once more, and kill nothing."""
        with self._moving("kafka"):
            pass

    @contextmanager
    def _moving(self, store: str) -> Iterator[None]:
        """Move the group's offsets to another store while the block runs."""
        with ThreadPoolExecutor(1) as pool:
            moving = pool.submit(self._stage.zkcoord, "offsets", "migrate", GROUP, "--to", store)
            yield
            moving.result()

    def _kill(self, name: str) -> None:
        self.killed.append(name)
        self._stage.kill(name)
