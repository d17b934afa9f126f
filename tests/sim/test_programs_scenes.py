"""Scenes of whole programs. Each one produces one moment on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zkcoord
from tests.sim import faults
from tests.sim.kafka import SimKafka
from tests.sim.mutations import Patch, must_be_missed
from tests.sim.poll_program import PollProgram
from tests.sim.programs import PlainProgram, Program
from tests.sim.script import QUIET, on_seeds
from tests.sim.seam import simulated, traced_files
from tests.sim.spark_program import SparkProgram, Work
from tests.sim.stream_program import StreamHandover, StreamProgram
from tests.sim.sync import SimEvent
from tests.sim.test_mutations_programs import (
    a_closed_poll_consumer_joins,
    a_commit_of_polled_messages_names_no_starts,
    a_loss_waits_behind_a_question_to_kafka,
    a_withdrawn_batch_stays_on_offer,
)
from tests.sim.test_programs import MS_PER_MESSAGE, TOPICS, ProgramScene, ProgramWorld, play
from tests.sim.threads import Crew
from tests.sim.world import SimulationError
from zkcoord.consumer import Consumer
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError

PACKAGE = Path(zkcoord.__file__).parent
TOLD_MS = 500
LONG_MS = 60_000
GUESTS, START_MS = 12, 25
SLOW_SECONDS = 1.5


class LongProgram(SparkProgram):
    """Each job takes a minute."""

    def _job(self, each: tuple[object, int, int]) -> None:
        self.spark.job(each, LONG_MS)  # type: ignore[arg-type]


def loss_while_kafka_is_asked(seed: int, patch: pytest.MonkeyPatch) -> int:
    """A long batch runs, Kafka does not answer where a new partition starts, and the link breaks for good. Returns how
    long the batch runs on after the lease's end."""
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
def test_a_loss_reaches_a_running_batch_while_kafka_does_not_answer_a_question(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loss_while_kafka_is_asked(seed, monkeypatch) < TOLD_MS


def test_the_scene_of_a_loss_sees_one_that_waits_behind_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    a_loss_waits_behind_a_question_to_kafka(Patch(monkeypatch))
    assert loss_while_kafka_is_asked(0, monkeypatch) > TOLD_MS


class ClosedProgram(PollProgram):
    """A program that another thread closes."""

    outside = True


def close_while_they_start(seed: int) -> None:
    """Programs are closed by another thread in the milliseconds in which they start. None may stay a member."""
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
def test_a_program_closed_at_its_start_is_no_member(seed: int) -> None:
    close_while_they_start(seed)


def test_programs_that_are_closed_while_they_start_find_one_that_joins_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_closed_poll_consumer_joins(Patch(monkeypatch))
    with pytest.raises(SimulationError, match="has left, and is a member"):
        for seed in range(300):  # one of 40 seeds shows it
            close_while_they_start(seed)


class LateCommits(PollProgram):
    """While `held` is set, the thread that commits stops for long after it has decided what to commit."""

    held = False
    waiting = 0  # commits that wait for `held` to end
    refused = 0  # commits that were refused

    def _membership(self, *args: Any, **fields: Any) -> Consumer:
        member = super()._membership(*args, **fields)
        commit = member.commit

        def later(offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None) -> None:
            while self.held:
                self.waiting = 1
                self.crew.sleep(TOLD_MS / 1000)
            try:
                commit(offsets, starts)
            except FencedError:
                self.refused += 1
                raise

        member.commit = later  # type: ignore[method-assign]
        return member


def late_commit_of_polled_messages(seed: int) -> None:
    """A consumer's commit takes so long that its registration is lost. Another consumer reads on, commits and leaves.
    Then the first one is started again at the other's offset."""
    world = ProgramWorld(seed, replace(QUIET, session_timeout_ms=4_000))
    scene = ProgramScene(world, LateCommits, ms_per_record=MS_PER_MESSAGE)
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        scene.join("consumer0")
        process = world.processes["consumer0"]
        first = process.actor
        assert isinstance(first, LateCommits)
        world.run_until(lambda: scene.records.handed > 0 and bool(scene.held()), what="records")
        first.held = True
        world.run_until(lambda: first.waiting == 1, what="a commit that waits")
        faults.cut(world, process)
        scene.join("consumer1")
        world.run_until(lambda: _reads(world, "consumer1"), what="another one who reads")
        world.run_for(LONG_MS)
        faults.uncut(world, process)
        scene.leave("consumer1")
        members = scene.field.registrations
        world.run_until(lambda: [r.session.client for r in members.values()] == [process.client], what="it is back")
        world.run_until(lambda: len(scene.held()) == sum(TOPICS.values()), what="it has all again")
        first.held = False
        world.run_for(LONG_MS)
        assert first.refused > 0
        world.calm(20_000)


@on_seeds(5)
def test_f240_a_commit_that_was_decided_before_its_partitions_were_started_again_is_refused(seed: int) -> None:
    late_commit_of_polled_messages(seed)


def test_the_scene_of_a_late_commit_finds_one_that_names_no_starts() -> None:
    must_be_missed(a_commit_of_polled_messages_names_no_starts, late_commit_of_polled_messages, 5)


def _pure(path: Path) -> bool:
    """True if the module has only values and functions."""
    room = path.relative_to(PACKAGE).parts[0]
    return room in ("core", "tree") or (path.parent == PACKAGE and path.name != "consumer.py")


WORKERS = ("zkcoord-callbacks", "zkcoord-questions")
ONE_AT_A_TIME = str(PACKAGE / "shell" / "loop.py")
"""Whose steps the driver, which is followed, lets one thread make at a time."""


@pytest.mark.parametrize("kind", [PlainProgram, PollProgram, SparkProgram, StreamProgram])
def test_threads_may_lose_the_baton_in_all_code_that_a_worker_shares_with_others(
    kind: type[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_calls, runs = Crew.trace_calls, dict[str, set[str]]()

    def noting(self: Crew, frame: FrameType, event: str, argument: object) -> object:
        path = Path(frame.f_code.co_filename)
        if self.current is not None and path.is_relative_to(PACKAGE) and not _pure(path):
            runs.setdefault(str(path), set()).add(self.current.name)
        return trace_calls(self, frame, event, argument)

    monkeypatch.setattr(Crew, "trace_calls", noting)
    play(1, kind, **({"exact": True} if issubclass(kind, SparkProgram) else {}))
    shared = {path for path, names in runs.items() if names.intersection(WORKERS) and names.difference(WORKERS)}
    assert "worker.py" in {Path(path).name for path in shared}
    assert shared - {ONE_AT_A_TIME} <= traced_files()


class TellingHandover(StreamHandover):
    """A handover that lets Spark ask again at the moment when a batch is withdrawn."""

    def cancel(self, tag: str) -> None:
        """After this, both the loop's thread and Spark's thread may go on."""
        super().cancel(tag)
        assert isinstance(self._program, LateProgram)
        self._program.asks.set()


class LateProgram(StreamProgram):
    """A query whose Kafka answers too late. In the first such program, Spark asks again when the batch on offer is
    withdrawn."""

    handover = TellingHandover

    def run(self) -> None:
        """Run the query."""
        self.asks = SimEvent()
        self.late = False
        super().run()

    def rest(self) -> None:
        """Wait between two triggers."""
        self.crew.sleep(SLOW_SECONDS)
        if not self.late and self.process.name == "consumer0" and self.source._handover._offered is not None:
            self.late = True
            self.asks.wait()

    def _job(self, each: Work) -> None:
        self.spark.job(each, LONG_MS if self.late else 0)


def withdrawn_while_spark_asks(seed: int, patch: pytest.MonkeyPatch) -> None:
    """A batch is on offer, and a stop has waited for it and withdraws it. At this moment Spark asks for a batch. Then
    another member reads these partitions."""

    def slowly(self: SimKafka) -> bool:
        self.process.crew.sleep(SLOW_SECONDS)
        return True

    patch.setattr(SimKafka, "answers", slowly)
    world = ProgramWorld(seed, QUIET)
    scene = ProgramScene(world, LateProgram, exact=True, rebalance_timeout_ms=8_000)
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        scene.join("consumer0")
        first = world.processes["consumer0"].actor
        assert isinstance(first, LateProgram)
        world.run_until(lambda: getattr(first, "late", False), what="a batch on offer")
        scene.join("consumer1")
        world.run_until(first.asks.is_set, what="its withdrawal")
        world.run_until(partial(_reads, world, "consumer1"), what="another one who reads")


def _reads(world: ProgramWorld, name: str) -> bool:
    return any(each.process == name and each.event == "handed" for each in world.journal)


@on_seeds(5)
def test_f60_a_batch_that_is_withdrawn_while_spark_asks_is_read_by_the_next_owner_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn_while_spark_asks(seed, monkeypatch)


def test_the_scene_of_a_withdrawal_finds_a_batch_that_stays_on_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    a_withdrawn_batch_stays_on_offer(Patch(monkeypatch))
    with pytest.raises(SimulationError, match="in work"):
        for seed in range(10):
            withdrawn_while_spark_asks(seed, monkeypatch)
