"""The simulated application: answers in order, reads only what it may, journals what it did."""

from __future__ import annotations

from itertools import pairwise

from tests.sim.application import Application, Logs
from tests.sim.batches import Sink
from tests.sim.options import Options
from tests.sim.process import SimProcess
from tests.sim.world import Entry, World
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.shell.ports import CallDone, Input, Request

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Holder:
    """An actor that keeps its inputs and has an application."""

    def __init__(self, process: SimProcess, reset: str) -> None:
        self.application = Application(process, Logs(process.world), "g", reset=reset)
        self.inputs: list[Input] = []

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        self.inputs += inputs
        return None

    def answers(self) -> list[CallDone]:
        return [item for item in self.inputs if isinstance(item, CallDone)]


def holder(options: Options, reset: str = "latest") -> tuple[World, Holder]:
    world = World(1, options)
    actor = world.spawn("a", lambda process: Holder(process, reset)).actor
    assert isinstance(actor, Holder)
    return world, actor


def events(world: World) -> list[tuple[str, TopicPartition, int]]:
    return [(entry.event, entry.partition, entry.start) for entry in world.journal if entry.event != "read"]


def reads(world: World) -> list[Entry]:
    return [entry for entry in world.journal if entry.event == "read"]


def test_calls_are_answered_in_their_order_after_a_while() -> None:
    world, actor = holder(Options(call_ms_max=100), reset="earliest")
    actor.application.call(1, "reset", (P0,))
    actor.application.call(2, "start", Starting({P0: 0, P1: 7}, 2))
    actor.application.call(3, "stop", (P1,))
    actor.application.call(4, "lost", (P0,))
    assert actor.answers() == []
    world.run_until(lambda: len(actor.answers()) == 4)
    assert actor.answers() == [CallDone(1, {P0: 0}), CallDone(2), CallDone(3, {P1: 7}), CallDone(4)]
    assert events(world) == [("reset", P0, 0), ("start", P0, 0), ("start", P1, 7), ("stop", P1, 7), ("lost", P0, 0)]


def test_a_start_may_raise_in_a_storm() -> None:
    world, actor = holder(Options(start_raises_rate=1.0))
    world.stormy = True
    actor.application.call(1, "start", Starting({P0: 0}, 1))
    world.run_until(lambda: len(actor.answers()) == 1)
    assert actor.answers()[0].error is not None
    assert actor.application.positions == {}


def test_a_range_that_is_handed_over_counts_for_the_next_start_only_also_if_that_raises() -> None:
    """A consumer's callbacks do the same. Otherwise the range would later be processed in another incarnation of the
    topic."""
    world, actor = holder(Options(start_raises_rate=1.0))
    world.stormy = True
    actor.application.call(1, "replay", {P0: (0, 28)})
    actor.application.call(2, "start", Starting({P0: 0}, 2))
    world.run_until(lambda: len(actor.answers()) == 2)
    world.stormy = False
    actor.application.call(3, "start", Starting({P0: 0, P1: 0}, 3))
    world.run_until(lambda: len(actor.answers()) == 3)
    assert actor.application.replays == {}

    actor.application.call(4, "replay", {P1: (5, 7)})
    actor.application.call(5, "start", Starting({P1: 5}, 5))
    world.run_until(lambda: len(actor.answers()) == 5)
    assert actor.application.replays == {P1: (5, 7)}


def test_it_reads_only_what_it_started_and_what_is_allowed_then() -> None:
    world, actor = holder(Options(read_ms_max=100))
    world.run_for(1_000)
    allowed = {P1}
    actor.application.allowed = allowed.__contains__
    actor.application.commits = False
    actor.application.call(1, "start", Starting({P0: 0}, 1))
    world.run_for(5_000)
    assert reads(world) == []
    allowed.add(P0)
    world.run_for(5_000)
    assert {entry.partition for entry in reads(world)} == {P0}
    ranges = [(entry.start, entry.end) for entry in reads(world)]
    assert ranges[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    allowed.discard(P0)
    count = len(ranges)
    world.run_for(5_000)
    assert len(reads(world)) == count


def test_a_stopped_process_reads_nothing_and_a_killed_one_never_again() -> None:
    world, actor = holder(Options(read_ms_max=100))
    actor.application.allowed = lambda partition: True
    actor.application.commits = False
    actor.application.call(1, "start", Starting({P0: 0}, 1))
    world.run_for(1_000)
    count = len(reads(world))
    assert count > 0
    world.pause("a")
    world.run_for(3_000)
    assert len(reads(world)) == count
    world.resume("a")
    world.run_for(3_000)
    assert len(reads(world)) > count
    world.crash("a", restart_after_ms=None)
    count = len(reads(world))
    world.run_for(3_000)
    assert len(reads(world)) == count


def test_in_a_calm_it_reads_to_the_end_commits_that_and_is_silent() -> None:
    world, actor = holder(Options(read_ms_max=100))
    actor.application.allowed = lambda partition: True
    actor.application.call(1, "start", Starting({P0: 0}, 1))
    world.run_for(1_000)
    committed: list[Request] = []

    def answer() -> bool:
        for item in actor.inputs:
            if isinstance(item, Request) and not item.future.done():
                committed.append(item)
                item.future.set_result(None)
        return actor.application.lag(P0) == 0 and committed[-1].argument.offsets == actor.application.positions

    world.drain_from_ms = world.now_ms
    world.run_until(answer)
    count = len(committed)
    world.run_for(10_000)
    answer()
    assert len(committed) == count


def test_a_sink_complains_of_ranges_that_overlap_and_of_gaps_within_one_incarnation_of_a_topic() -> None:
    number = 1
    sink = Sink(World(1, Options()), lambda group, topic: number)

    def write(start: int, end: int) -> list[str]:
        return list(sink.write(Entry(0, "a", "a#1", "g", "read", P0, start, end)))

    assert write(0, 9) == write(0, 9) == write(9, 12) == []
    assert (sink.again, sink.incarnations, sink.complete()) == (1, 1, [])
    assert write(5, 9) == ["a#1 processes t-0 5..9 beside 0..9"]
    number = 2
    assert write(5, 9) == []
    assert (sink.incarnations, sink.complete()) == (2, [])
    assert write(20, 30) == []
    assert sink.complete() == ["t-0 9..20 of g was never processed"]


def test_a_sink_takes_ranges_that_are_cut_anew_once_where_a_commit_was_taken_back() -> None:
    sink = Sink(World(1, Options()), lambda group, topic: 1)

    def write(start: int, end: int) -> list[str]:
        return list(sink.write(Entry(0, "a", "a#1", "g", "read", P0, start, end)))

    assert write(0, 5) == write(5, 9) == write(9, 12) == []
    sink.taken_back("g", P0, 5)
    assert write(12, 15) == []  # the new owner goes on without reading anything again
    assert (write(5, 7), write(7, 15), sink.complete()) == ([], [], [])
    assert write(5, 6) == ["a#1 processes t-0 5..6 beside 5..7"]
    sink.taken_back("g", P0, 7)
    assert write(6, 8) == ["a#1 processes t-0 6..8 beside 7..15"]
