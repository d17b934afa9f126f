"""The checkers of records can complain: a checker that has never complained proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.programs import PlainProgram
from tests.sim.records import Work
from tests.sim.script import QUIET
from tests.sim.seam import simulated
from tests.sim.test_programs import ProgramScene, ProgramWorld
from tests.sim.world import SimulationError
from zkcoord.core.model import TopicPartition
from zkcoord.member.lease import Lease


@pytest.fixture
def scene() -> Iterator[ProgramScene]:
    """Two programs that hold a share each, and read."""
    world = ProgramWorld(1, QUIET)
    scene = ProgramScene(world, PlainProgram, rebalance_timeout_ms=3_000)
    assert scene.programs is not None
    with simulated(scene.programs.crews):
        for name in ("consumer0", "consumer1"):
            scene.join(name)
        world.run_until(lambda: len(scene.field.covered) == 8 and scene.records.handed > 20)
        yield scene


def held_by(scene: ProgramScene, name: str) -> TopicPartition:
    """A partition that a program holds and of which no record is in work."""
    client = scene.world.processes[name].client
    held = [p for (g, p), holding in scene.field.holdings.items() if holding.client == client]
    scene.world.run_until(lambda: any(not scene.records.work.get(("g", p)) for p in held))
    return next(p for p in held if not scene.records.work.get(("g", p)))


def hand(scene: ProgramScene, name: str, partition: TopicPartition, ahead: int = 0) -> None:
    """Note that a program was handed a record."""
    start = scene.field.covered["g", partition] + ahead
    scene.world.note(scene.world.processes[name], "handed", partition, start, start + 1)


def test_a_holders_records_in_its_turn_are_right(scene: ProgramScene) -> None:
    hand(scene, "consumer0", held_by(scene, "consumer0"))


def test_records_that_another_consumer_is_handed_are_told_of(scene: ProgramScene) -> None:
    with pytest.raises(SimulationError, match=r"consumer1#1 is handed records of .*, which consumer0#1 holds"):
        hand(scene, "consumer1", held_by(scene, "consumer0"))


def test_a_skipped_record_is_told_of(scene: ProgramScene) -> None:
    with pytest.raises(SimulationError, match="on they are skipped"):
        hand(scene, "consumer0", held_by(scene, "consumer0"), ahead=1)


def test_a_late_reset_excuses_the_committed_offset_alone(
    scene: ProgramScene,
) -> None:
    partition = held_by(scene, "consumer0")
    covered = scene.field.covered["g", partition]
    scene.field.left_behind["g", partition] = {covered}
    scene.field.covered["g", partition] = covered - 7
    hand(scene, "consumer0", partition, ahead=7)
    scene.records.work["g", partition] = []
    with pytest.raises(SimulationError, match="on they are skipped"):
        hand(scene, "consumer0", partition, ahead=6)


def test_records_that_are_handed_while_another_still_works_on_some_are_told_of(scene: ProgramScene) -> None:
    partition = held_by(scene, "consumer0")
    work = Work("consumer1#1", partition, 0, 5, scene.world.now_ms, (0, 0, 0))
    scene.records.work.setdefault(("g", partition), []).append(work)
    with pytest.raises(SimulationError, match="is in work"):
        hand(scene, "consumer0", partition)
    scene.world._failure = None
    scene.records.told.append(work)
    hand(scene, "consumer0", partition)
    assert scene.records.overlaps == 1


def test_a_hanging_programs_work_is_excused_once_its_registration_is_gone(
    scene: ProgramScene,
) -> None:
    partition = held_by(scene, "consumer0")
    hung = scene.world.processes["consumer1"]
    assert isinstance(hung.application, PlainProgram)
    hung.application.hung_ms = scene.world.now_ms
    (present,) = (c for (_, c), made in scene.field.registrations.items() if made.session.client == hung.client)
    for consumer, excused in ((present, False), ("g_consumer1-an-earlier-one", True)):
        work = Work(hung.client, partition, 0, 5, scene.world.now_ms, (0, 0, 0), consumer=consumer)
        scene.records.work["g", partition] = [work]
        if excused:
            hand(scene, "consumer0", partition)
        else:
            with pytest.raises(SimulationError, match="is in work"):
                hand(scene, "consumer0", partition)
            scene.world._failure = None


def test_work_that_was_told_to_end_stays_so_when_the_same_range_of_another_partition_is_done(
    scene: ProgramScene,
) -> None:
    partition, other = held_by(scene, "consumer0"), TopicPartition("t", 99)
    process = scene.world.processes["consumer1"]
    for each in (partition, other):
        work = Work("consumer1#1", each, 0, 5, scene.world.now_ms, (0, 0, 0))
        scene.records.work.setdefault(("g", each), []).append(work)
        scene.world.note(process, "told", each, 0, 5)
    scene.world.note(process, "processed", other, 0, 5)
    hand(scene, "consumer0", partition)


def test_records_that_nobody_has_processed_are_told_of_at_rest(scene: ProgramScene) -> None:
    scene.calm()
    assert list(scene.records.complete()) == []
    scene.field.covered["g", TopicPartition("t", 3)] -= 1
    assert [line.split(" of ")[0] for line in scene.records.complete()] == ["t-3"]


def test_a_lease_that_never_ends_lets_an_evicted_program_read_on(
    scene: ProgramScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the product without one of its rules, and not a forged line."""
    monkeypatch.setattr(Lease, "holds", lambda self, now_ms: True)
    process = scene.world.processes["consumer0"]
    for store in process.stores:
        store.break_wire("test")
    process.cut = True
    with pytest.raises(SimulationError, match=r"is handed|is in work|ms after its registration ended"):
        scene.world.run_for(60_000)
