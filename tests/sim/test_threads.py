"""The simulated threads: one runs at a time, waits take virtual time, the seed decides the order, and a kill ends
them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest

from tests.sim.application import Logs
from tests.sim.options import Options
from tests.sim.process import SimProcess
from tests.sim.programs import ProgramProcess
from tests.sim.seam import QUEUE, THREADING, TIME, simulated
from tests.sim.threads import Crew, Killed
from tests.sim.world import World

HERE = frozenset({__file__})


class Alone:
    """One process with threads, and nothing else."""

    def __init__(self, seed: int, lines_max: int = 0) -> None:
        self.world = World(seed, Options(timer_late_ms_max=0, time_rate=0.0))
        self.crews: list[Crew] = []
        self.process = ProgramProcess(self.world, "p", lambda process: None, self.crews, Logs(self.world))
        self.world.processes["p"] = self.process
        self.process.start()
        self.crew = self.process.crew = Crew(self.process, HERE, lines_max, ())
        self.crews.append(self.crew)

    def play(self, *targets: Callable[[], object], until: Callable[[], bool] = lambda: False) -> None:
        """Run each of these on a thread of its own, to their ends or until `until()`."""
        with simulated(self.crews):
            for number, target in enumerate(targets):
                self.crew.spawn(target, f"t{number}")
            while self.world.step() and not until():
                pass


def test_waiting_takes_virtual_time_only() -> None:
    alone, told = Alone(1), []

    def wait() -> None:
        began = TIME.monotonic()
        condition = THREADING.Condition()
        with condition:
            told.append(condition.wait_for(lambda: False, 3_600))
        told.append(TIME.monotonic() - began)

    real = time.monotonic()
    alone.play(wait)
    assert told == [False, 3_600.0]
    assert time.monotonic() - real < 60


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_keeps_its_order_and_an_empty_one_times_out(seed: int) -> None:
    alone, taken = Alone(seed, lines_max=5), []
    made: list[object] = []

    def take() -> None:
        made.append(QUEUE.SimpleQueue())
        try:
            while True:
                taken.append(made[0].get(timeout=10))  # type: ignore[attr-defined]
        except queue.Empty:
            taken.append("empty")

    def put() -> None:
        TIME.sleep(1)
        for number in range(20):
            made[0].put(number)  # type: ignore[attr-defined]

    alone.play(take, put)
    assert taken == [*range(20), "empty"]


def lost_updates(seed: int, locked: bool) -> int:
    """Two threads count together. Returns how many of their steps were lost."""
    alone, count, lock = Alone(seed, lines_max=10), [0], []

    def add() -> None:
        for _ in range(50):
            before = count[0]
            count[0] = before + 1

    def add_alone() -> None:
        for _ in range(50):
            with lock[0]:
                before = count[0]
                count[0] = before + 1

    def begin() -> None:
        lock.append(THREADING.Lock())
        threads = [THREADING.Thread(target=add_alone if locked else add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    alone.play(begin)
    return 100 - count[0]


def test_a_race_of_two_lines_is_found_and_a_lock_mends_it() -> None:
    assert sum(lost_updates(seed, locked=False) > 0 for seed in range(10)) >= 8
    assert [lost_updates(seed, locked=True) for seed in range(10)] == [0] * 10
    assert len({lost_updates(seed, locked=False) for seed in range(10)}) > 3
    assert lost_updates(7, locked=False) == lost_updates(7, locked=False)


def test_a_kill_ends_every_thread_where_it_waits_and_nothing_of_the_program_goes_on() -> None:
    alone, told = Alone(1), []

    def hang() -> None:
        try:
            THREADING.Event().wait()
        except Killed:
            told.append("killed")
            raise
        finally:
            with THREADING.Condition() as taken:  # as a clean-up does, when nobody can be waited for any more
                told.append(taken)
            TIME.sleep(1)
            told.append("went on")

    alone.play(hang, hang, until=lambda: len(alone.crew.waiting) == 2)
    assert told == ["killed", True] * 2
    assert not alone.crew.members


def test_a_killed_thread_joins_nobody() -> None:
    alone, told = Alone(1), []

    def wait() -> None:
        other = THREADING.Thread(target=lambda: TIME.sleep(60))
        other.start()
        try:
            TIME.sleep(60)
        finally:
            other.join()
            told.append(other.is_alive())

    alone.play(wait, until=lambda: len(alone.crew.waiting) == 2)
    assert told == [True]


def test_real_threads_are_given_the_real_things() -> None:
    alone = Alone(1)
    seen: list[object] = []
    alone.play(lambda: seen.append(THREADING.Lock()))
    assert type(seen[0]) is not type(threading.Lock())
    assert type(THREADING.Lock()) is type(threading.Lock())
    assert abs(TIME.monotonic() - time.monotonic()) < 10


def test_a_process_that_is_stopped_stops_where_its_threads_wait() -> None:
    """Otherwise, in any program, time could pass between a question ("may I read?") and the act that depends on it."""
    alone, steps = Alone(3, lines_max=1), []

    def work() -> None:
        for number in range(100):
            steps.append(number)

    alone.play(work, until=lambda: len(steps) == 5)
    assert steps == [*range(5)]
    again: list[int] = []
    other = Alone(3, lines_max=1)

    def stop() -> bool:
        if len(again) == 5:
            other.process.pause()
            return True
        return False

    def work_again() -> None:
        for number in range(100):
            again.append(number)

    other.play(work_again, until=stop)
    assert again == [*range(100)]
    assert isinstance(other.process, SimProcess)
