"""Storms over whole programs whose group keeps its offsets in both stores, or in Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import pytest

from tests.sim.application import MS_PER_RECORD
from tests.sim.log_checkers import Ledger
from tests.sim.offset_log import LogFaults, OffsetLog
from tests.sim.options import seeds
from tests.sim.poll_program import PollProgram
from tests.sim.programs import PlainProgram, Program
from tests.sim.records import Records
from tests.sim.scenarios import STORM_MS
from tests.sim.seam import simulated
from tests.sim.spark_program import SparkProgram
from tests.sim.store_scene import CHECKPOINT_MS, Steps
from tests.sim.stream_program import StreamProgram
from tests.sim.test_programs import CALM_STEPS, MS_PER_MESSAGE, TOPICS, ProgramScene, ProgramWorld
from tests.sim.world import Entry

SEEDS = 8
SERVERS = "kafka:9092"
REBALANCE_MS = 9_000  # Kafka has a third of this time to answer


class StoredPrograms(Steps, ProgramScene):
    """Programs that can keep offsets in Kafka."""

    def begins(self) -> None:
        """Kafka exists from the beginning."""
        super().begins()
        self.log = OffsetLog(self.world)
        self.ledger = Ledger(self.world, self.field, self.log)
        self.world.on_journal.append(self._journaled)

    def _journaled(self, entry: Entry) -> None:
        if entry.event == "reset":
            self.ledger.reset(entry.partition, self.logs.end(entry.partition))

    def delete_topic(self, topic: str) -> None:
        """The topic's commits are deleted with it."""
        super().delete_topic(topic)
        self.log.delete_topic(topic)


class Played(NamedTuple):
    """The result of a storm."""

    records: Records
    log: OffsetLog
    store: str  # the store at the end
    events: Counter[str]  # event -> how often members reported it

    def sent(self, name: str) -> int:
        """How many requests of this kind have arrived in Kafka."""
        return sum(request[2] == name for request in self.log.requests)


def play(seed: int, store: str, kind: Callable[..., Program], **settings: Any) -> Played:
    """One seed of a group of programs that keeps its offsets in this store: a storm of ZooKeeper and Kafka, and the
    calm.

    With an exact sink no stranger commits and Kafka loses nothing, since both would lead to other ranges. Ranges may be
    cut anew once a former owner's commit has replaced a newer one.
    """
    world = ProgramWorld(seed, None)
    told = {"hang_rate": (0.0, 0.02)[seed // 2 % 2], "rebalance_timeout_ms": REBALANCE_MS}
    scene = StoredPrograms(world, kind, **told, offset_checkpoint_ms=CHECKPOINT_MS, **settings)
    assert scene.programs is not None
    scene.programs.log = scene.log
    if scene.records.sink is not None:
        scene.ledger.on_taken_back.append(scene.records.sink.taken_back)
    with simulated(scene.programs.crews):
        for n in range(3):
            scene.join(f"consumer{n}")
        scene.share()
        scene.move(*{"dual": ("dual",), "kafka": ("dual", "kafka")}[store])
        faults = LogFaults.drawn(seed)
        scene.log.faults = replace(faults, strangers=0, expiries=0) if settings.get("exact") else faults
        stay = [p for p in scene.partitions() if p.topic == "t"]  # in a new topic a stranger would skip records
        scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, stay)
        for action in (
            lambda: scene.join("late"),
            lambda: scene.leave("consumer0"),
            partial(scene.visit, "guest"),
            lambda: scene.grow("t", TOPICS["t"] + 2),
            lambda: scene.delete_topic("u"),
            lambda: scene.create_topic("u", TOPICS["u"]),
        ):
            world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
        world.storm(4_000)
        world.calm(CALM_STEPS)
    return Played(scene.records, scene.log, scene.store()[0], Counter(told.name for told in world.told))


def kind_of(seed: int) -> tuple[Callable[..., Program], dict[str, Any]]:
    """A kind of program, each in turn, with the settings that its scene needs."""
    plain = {"ms_per_record": MS_PER_RECORD, "bootstrap_servers": SERVERS}
    kinds: tuple[tuple[Callable[..., Program], dict[str, Any]], ...] = (
        (PlainProgram, plain),
        (PollProgram, {"ms_per_record": MS_PER_MESSAGE}),
        (SparkProgram, {"exact": True}),
        (StreamProgram, {"exact": True}),
    )
    return kinds[seed % len(kinds)]


@cache
def in_dual(seed: int) -> Played:
    """Programs in the store `dual`."""
    kind, settings = kind_of(seed)
    return play(seed, "dual", kind, **settings)


@cache
def in_kafka(seed: int) -> Played:
    """Programs in the store `kafka`."""
    kind, settings = kind_of(seed)
    return play(seed, "kafka", kind, **settings)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_programs_in_dual_ends_in_a_calm(seed: int) -> None:
    in_dual(seed)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_programs_in_kafka_ends_in_a_calm(seed: int) -> None:
    in_kafka(seed)


@pytest.mark.parametrize(("play_in", "store"), [(in_dual, "dual"), (in_kafka, "kafka")])
def test_storms_of_programs_reach_commits_that_kafka_does_not_take_and_takes_again(
    play_in: Callable[[int], Played], store: str
) -> None:
    reached = [play_in(seed) for seed in range(SEEDS)]
    assert {each.store for each in reached} == {store}
    assert sum(each.records.handed > 100 for each in reached) >= SEEDS // 2
    assert sum(each.sent("commit") > 20 and each.sent("read") > 3 for each in reached) >= SEEDS // 2
    assert sum(each.events["kafka_commits_work"] > 0 for each in reached) >= SEEDS // 2


def test_storms_of_programs_in_kafka_reach_what_strangers_have_set_back() -> None:
    reached = (in_kafka(seed) for seed in range(10 * SEEDS))  # rare; it depends on each line of the product
    assert any(each.events["foreign_offset"] > 0 for each in reached)
