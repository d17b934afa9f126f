"""Storms over whole programs: the real `Consumer` with its threads, user code that reads, callbacks that take long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from random import Random
from typing import Any

import pytest

from tests.sim.application import MS_PER_RECORD, Logs
from tests.sim.batches import Sink
from tests.sim.options import Options, seeds
from tests.sim.poll_program import PollProgram
from tests.sim.programs import PlainProgram, Program, Programs
from tests.sim.records import Records
from tests.sim.scenarios import STORM_MS, Scene
from tests.sim.script import ScriptWorld
from tests.sim.seam import simulated
from tests.sim.spark_program import SparkProgram
from tests.sim.stream_program import StreamProgram
from tests.sim.sweep import fingerprints
from tests.sim.world import World

SEEDS = 15
STREAMS = 14
TOPICS = {"t": 6, "u": 2}
MS_PER_MESSAGE = 200
CALM_STEPS = 60_000
GROWTHS, GROW_MS = 14, 3_000


class ProgramWorld(ScriptWorld):
    """Programs take no time except their waits: no time passes while one of them can go on."""

    def _behind(self) -> bool:
        return super()._behind() or any(p.inbox.items and not p.paused for p in self.processes.values())


class ProgramScene(Scene):
    """A group of programs, with the checkers of records."""

    def __init__(
        self,
        world: World,
        kind: Callable[..., Program],
        *,
        ms_per_record: int = MS_PER_RECORD,
        exact: bool = False,
        **settings: Any,
    ) -> None:
        self._kind, self._settings = kind, settings
        self.programs: Programs | None = None
        super().__init__(world, consumers=0, topics=TOPICS)
        self.logs = Logs(world, ms_per_record)
        self.programs = Programs(world, self.logs, dict.fromkeys(TOPICS, 1))
        self.records = Records(world, self.field, self.logs, self._sink() if exact else None)

    def _sink(self) -> Sink:
        sink = Sink(self.world, lambda group, topic: self.field.incarnations.get((group, topic), 0))
        self.world.rest_checks.append(sink.complete)
        return sink

    def join(self, name: str) -> None:
        """One more program starts."""
        assert self.programs is not None
        self.programs.spawn(name, self._kind, **self._settings)

    def visit(self, name: str) -> None:
        """A program starts, and is asked to leave at once, or soon."""
        self.join(name)
        later_ms = int(self.world.rng.random() ** 4 * 5_000)
        self.world.at(self.world.now_ms + later_ms, lambda: self.leave(name))

    def leave(self, name: str) -> None:
        """A program is asked to leave."""
        program = self.world.processes[name].actor
        self.world.processes[name].restarts = False
        if isinstance(program, Program):
            program.leave()


def play(
    seed: int, kind: Callable[..., Program], *, options: Options | None = None, away_rate: float = 0.1, **settings: Any
) -> Records:
    """One seed of a group of programs in a storm, and the calm after it."""
    world = ProgramWorld(seed, options)
    settings = {"hang_rate": (0.0, 0.02)[seed // 2 % 2], "rebalance_timeout_ms": 8_000, **settings}
    scene = ProgramScene(world, kind, **settings)
    scene.logs.away_rate = away_rate
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        for n in range(3):
            scene.join(f"consumer{n}")
        if seed % 2:
            world.run_for(5_000)
        for action in (
            lambda: scene.join("late"),
            lambda: scene.leave("consumer0"),
            *(partial(scene.visit, f"guest{n}") for n in range(3)),
            lambda: scene.grow("t", TOPICS["t"] + 2),
            lambda: scene.delete_topic("u"),
            lambda: scene.create_topic("u", TOPICS["u"]),
        ):
            world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
        for more in range(3, 3 + GROWTHS if away_rate > 0.3 else 3):
            world.at(world.now_ms + (more - 2) * GROW_MS, partial(scene.grow, "t", TOPICS["t"] + more))
        world.storm(4_000)
        world.calm(CALM_STEPS)
    return scene.records


@cache
def plain(seed: int) -> Records:
    """Members that use `zkcoord.Consumer`."""
    return play(seed, PlainProgram)


@cache
def polling(seed: int) -> Records:
    """Members that use `zkcoord.kafka.KafkaConsumer`."""
    return play(seed, PollProgram, ms_per_record=MS_PER_MESSAGE)


@cache
def sparkling(seed: int) -> Records:
    """Members that use `SparkConsumer`, with a sink keyed by ranges."""
    return play(seed, SparkProgram, exact=True)


@cache
def streaming(seed: int) -> Records:
    """Members that use `format("zkcoord")`, with a sink keyed by ranges."""
    return play(seed, StreamProgram, exact=True)


@cache
def away(seed: int) -> Records:
    """Long batches while brokers hardly answer, the topic grows, and links break for about as long as a lease."""
    kind = (PollProgram, SparkProgram, SparkProgram)[seed % 3]
    timeout_ms = (4_000, 6_000)[seed // 3 % 2]
    options = Options.drawn(Random(f"away {seed}"), session_timeout_ms=timeout_ms, fault_rate=0.02)
    options = replace(options, faults={"cut": 3, "black_hole": 1}, fault_sessions_max=3.0, start_raises_rate=0.0)
    settings = {"options": options, "away_rate": 0.9, "ms_per_record": MS_PER_MESSAGE, "rebalance_timeout_ms": 30_000}
    return play(seed, kind, exact=kind is SparkProgram, hang_rate=0.3 if kind is SparkProgram else 0.0, **settings)


def plain_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """Values by which two runs of one seed are compared."""
    return plain(seed)._world.random_fingerprint()


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_plain_programs_ends_in_a_calm(seed: int) -> None:
    plain(seed)


def test_a_seed_of_programs_is_the_same_world_under_every_hash_seed() -> None:
    by_hash_seed = fingerprints("tests.sim.test_programs:plain_fingerprint", range(3))
    assert len({tuple(prints) for prints in by_hash_seed.values()}) == 1, by_hash_seed


def test_storms_of_programs_reach_work_that_was_told_to_end_and_programs_that_hang() -> None:
    reached = [plain(seed) for seed in range(SEEDS)]
    assert sum(each.handed > 100 for each in reached) >= SEEDS // 2
    more = (plain(seed) for seed in range(SEEDS, 10 * SEEDS))  # rare; it depends on each line of the product
    assert any(each.overlaps > 0 for each in chain(reached, more))


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_polling_programs_ends_in_a_calm(seed: int) -> None:
    polling(seed)


def test_storms_of_polling_programs_reach_work_that_outlives_its_registration() -> None:
    reached = [polling(seed) for seed in range(SEEDS)]
    assert sum(each.overlaps > 0 for each in reached) >= 1
    assert sum(each.handed > 100 for each in reached) >= SEEDS // 2


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_spark_programs_ends_in_a_calm(seed: int) -> None:
    sparkling(seed)


def test_storms_of_spark_programs_reach_jobs_that_end_late_and_ranges_that_are_read_again() -> None:
    reached = [sparkling(seed) for seed in range(SEEDS)]
    assert sum(each.overlaps > 0 for each in reached) >= 1  # a few; it depends on each line of the product
    assert sum(each.sink is not None and each.sink.again > 0 for each in reached) >= 5
    assert sum(each.handed > 100 for each in reached) >= SEEDS // 2


@pytest.mark.parametrize("seed", seeds(STREAMS))
def test_a_storm_of_streaming_queries_ends_in_a_calm(seed: int) -> None:
    streaming(seed)


def test_storms_of_streaming_queries_reach_batches_that_are_lost_or_run_again() -> None:
    reached = [streaming(seed) for seed in range(STREAMS)]
    assert sum(each.overlaps > 0 for each in reached) >= 1
    assert sum(each.again > 0 for each in reached) >= 3
    assert sum(each.sink is not None and each.sink.again > 0 for each in reached) >= 5
    assert sum(each.handed > 50 for each in reached) >= STREAMS // 2


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_while_brokers_hardly_answer_ends_in_a_calm(seed: int) -> None:
    away(seed)
