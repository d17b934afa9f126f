"""A driver steps its loop on only one thread at a time, wherever an input arrives, and loses no input."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zkcoord.shell.driver import Driver
from zkcoord.shell.ports import CallDone, Input

DEADLINE_S = 60.0
HOUR_MS = 3_600_000


class Steps:
    """Stands in for a loop's step. It notes the inputs of each step, and the step's thread."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.taken = driver, list[Input]()
        self.threads = list[str]()
        self.wake_at_ms: int | None = None
        self.then: Callable[[], None] = lambda: None
        self.overlapped = False
        self._inside = False
        self._changed = threading.Condition()
        driver.measured_by(lambda _step: self.step)
        driver.loop.run_role(Role())

    def step(self, inputs: Sequence[Input], now_ms: int) -> int | None:
        """One step."""
        self.overlapped |= self._inside
        self._inside = True
        with self._changed:
            self.taken += inputs
            self.threads.append(threading.current_thread().name)
            self._changed.notify_all()
        try:
            self.then()
        finally:
            self._inside = False
        return self.wake_at_ms

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a step makes the condition true, and is over: until then, inputs are left to the own thread."""
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)
        with self.driver._stepping:
            """No step is under way."""

    def end(self) -> None:
        """End the loop."""
        self.driver.loop.finished = True
        self.driver.put(CallDone(0))
        assert self.driver.ended.wait(DEADLINE_S)


class Role:
    """A role that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **fields: None


def answer(steps: Steps, item: CallDone) -> None:
    """Deliver an answer, as a store does on its connection's thread."""
    steps.driver.inbox.add(item)
    steps.driver.told(True)


def made() -> Steps:
    def no_session(sink: object) -> Any:
        raise AssertionError("the loop itself does not step")

    return Steps(Driver(no_session, "own", lambda name, fields: None, tells=True))


def test_nothing_is_taken_in_before_the_driver_runs() -> None:
    """A step would open a session that nobody would close."""
    steps = made()
    answer(steps, CallDone(1))
    steps.driver.answered(CallDone(2))
    assert steps.taken == []
    steps.driver.start()
    steps.wait(lambda: steps.taken == [CallDone(1), CallDone(2)])
    assert set(steps.threads) == {"own"}
    steps.end()


def test_inputs_are_taken_in_where_they_arrive() -> None:
    steps = made()
    steps.driver.start()
    steps.wait(lambda: steps.threads == ["own"])
    steps.driver.inbox.add(CallDone(1))
    steps.driver.inbox.add(CallDone(2))
    steps.driver.told(True)
    assert (steps.taken, steps.threads[1:]) == ([CallDone(1), CallDone(2)], [threading.current_thread().name])
    answer(steps, CallDone(3))
    assert steps.threads[2:] == [threading.current_thread().name]
    steps.driver.inbox.add(CallDone(4))
    steps.driver.told(False)
    steps.wait(lambda: len(steps.taken) == 4)
    assert steps.threads[3:] == ["own"]
    steps.end()


def test_inputs_during_a_step_are_taken_in_by_the_own_thread() -> None:
    steps = made()
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        if steps.taken:
            entered.set()
            assert go_on.wait(DEADLINE_S)
            steps.then = lambda: None

    steps.driver.start()
    steps.wait(lambda: bool(steps.threads))
    steps.then = hold
    other = threading.Thread(target=answer, args=[steps, CallDone(1)], name="other")
    other.start()
    assert entered.wait(DEADLINE_S)
    answer(steps, CallDone(2))  # it returns at once
    go_on.set()
    steps.wait(lambda: len(steps.taken) == 2)
    assert steps.threads == ["own", "other", "own"]
    other.join(DEADLINE_S)
    steps.end()


def test_many_threads_lose_no_input_and_one_steps_at_a_time() -> None:
    steps = made()
    steps.driver.start()

    def put(number: int) -> None:
        for n in range(2_000):
            (partial(answer, steps), steps.driver.put)[n % 2](CallDone(number * 10_000 + n))

    threads = [threading.Thread(target=put, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    steps.wait(lambda: len(steps.taken) == 8_000)
    tokens = [item.token for item in steps.taken if isinstance(item, CallDone)]
    assert not steps.overlapped
    for number in range(4):
        assert [token for token in tokens if token // 10_000 == number] == [number * 10_000 + n for n in range(2_000)]
    steps.end()


def test_the_own_thread_wakes_when_a_step_elsewhere_sets_an_earlier_time() -> None:
    steps = made()
    steps.wake_at_ms = steps.driver.clock.now_ms() + HOUR_MS
    steps.driver.start()
    steps.wait(lambda: steps.threads == ["own"])
    steps.wake_at_ms = steps.driver.clock.now_ms()
    answer(steps, CallDone(1))
    steps.wait(lambda: "own" in steps.threads[2:])
    steps.end()


def test_an_error_elsewhere_ends_the_loop_on_its_own_thread(monkeypatch: Any) -> None:
    raised = list[BaseException | None]()
    monkeypatch.setattr(threading, "excepthook", lambda given: raised.append(given.exc_value))
    steps = made()
    steps.driver.start()
    steps.wait(lambda: bool(steps.threads))
    steps.then = lambda: 1 // 0  # type: ignore[assignment, return-value]
    answer(steps, CallDone(1))
    assert steps.driver.ended.wait(DEADLINE_S)
    steps.driver.join()
    assert isinstance(steps.driver.loop.fatal, ZeroDivisionError)
    assert raised == [steps.driver.loop.fatal]
    answer(steps, CallDone(2))
    assert steps.taken == [CallDone(1)]


def test_a_loop_that_finishes_elsewhere_ends_its_own_thread() -> None:
    steps = made()
    steps.driver.start()
    steps.wait(lambda: bool(steps.threads))
    steps.then = lambda: setattr(steps.driver.loop, "finished", True)
    answer(steps, CallDone(1))
    assert steps.driver.ended.wait(DEADLINE_S)


def test_an_answer_of_the_application_is_taken_in_on_the_thread_that_gives_it_but_for_a_part() -> None:
    steps = made()
    steps.driver.start()
    steps.wait(lambda: bool(steps.threads))
    steps.driver.answered(CallDone(1))
    assert steps.threads[1:] == [threading.current_thread().name]
    steps.driver.answered(CallDone(2, part=True))
    steps.wait(lambda: len(steps.taken) == 2)
    assert steps.threads[2:] == ["own"]
    steps.end()
