"""Scenes of whole programs: one moment each, struck on purpose."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.sim import faults
from tests.sim.kafka import SimKafka
from tests.sim.poll_program import PollProgram
from tests.sim.programs import Program
from tests.sim.script import QUIET, on_seeds
from tests.sim.seam import simulated
from tests.sim.spark_program import SparkProgram
from tests.sim.test_mutations_programs import (
    Patch,
    a_closed_poll_consumer_joins,
    a_loss_waits_behind_a_question_to_kafka,
)
from tests.sim.test_programs import MS_PER_MESSAGE, ProgramScene, ProgramWorld
from tests.sim.world import SimulationError

TOLD_MS = 500
LONG_MS = 60_000
GUESTS, START_MS = 12, 25


class LongProgram(SparkProgram):
    """Each job takes a minute."""

    def _job(self, each: tuple[object, int, int]) -> None:
        self.spark.job(each, LONG_MS)  # type: ignore[arg-type]


def loss_while_kafka_is_asked(seed: int, patch: Patch) -> int:
    """A long batch runs, Kafka does not answer where a new partition starts, and the link breaks for good: how long the
    batch runs on after the lease's end."""
    world = ProgramWorld(seed, replace(QUIET, session_timeout_ms=4_000))
    scene = ProgramScene(world, LongProgram, rebalance_timeout_ms=90_000)
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        scene.join("consumer0")
        world.run_until(lambda: any(scene.records.work.values()), what="a batch")
        asked = []

        def unanswered(self: SimKafka) -> bool:
            asked.append(self.world.now_ms)
            self.process.crew.sleep(12)
            return False

        patch.setattr(SimKafka, "answers", unanswered)
        scene.grow("t", 8)
        world.run_until(lambda: bool(asked), what="a question to Kafka")
        process = world.processes["consumer0"]
        assert isinstance(process.actor, Program)
        faults.cut(world, process)
        world.run_until(lambda: bool(world.events("fetch_lost")), what="the lease's end")
        lost_ms = world.now_ms
        world.run_until(lambda: any(entry.event == "told" for entry in world.journal), what="a cancellation")
        return world.now_ms - lost_ms


@on_seeds(5)
def test_a_loss_reaches_a_running_batch_while_kafka_does_not_answer_a_question(seed: int, monkeypatch: Patch) -> None:
    assert loss_while_kafka_is_asked(seed, monkeypatch) < TOLD_MS


def test_the_scene_of_a_loss_sees_one_that_waits_behind_the_question(monkeypatch: Patch) -> None:
    a_loss_waits_behind_a_question_to_kafka(monkeypatch)
    assert loss_while_kafka_is_asked(0, monkeypatch) > TOLD_MS


class ClosedProgram(PollProgram):
    """Another thread closes it."""

    outside = True


def close_while_they_start(seed: int) -> None:
    """Programs that are closed by another thread in the milliseconds in which they start: none stays a member."""
    world = ProgramWorld(seed)
    scene = ProgramScene(world, ClosedProgram, ms_per_record=MS_PER_MESSAGE)
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        for number in range(GUESTS):
            name = f"guest{number}"
            scene.join(name)
            world.at(world.now_ms + int(world.rng.random() * START_MS), partial(scene.leave, name))
        world.run_for(1_000)
        world.calm(20_000)


@on_seeds(5)
def test_whoever_is_closed_while_it_starts_is_no_member(seed: int) -> None:
    close_while_they_start(seed)


def test_programs_that_are_closed_while_they_start_find_one_that_joins_for_good(monkeypatch: Patch) -> None:
    a_closed_poll_consumer_joins(monkeypatch)
    with pytest.raises(SimulationError, match="has left, and is a member"):
        for seed in range(40):
            close_while_they_start(seed)
