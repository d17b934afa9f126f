"""Temporary signal handlers: which one is called, which signals stay ignored, and that everything is restored
afterwards."""

import signal
import threading

import pytest

from zkcoord.signals import at_signals

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def before(number: int, _frame: object) -> None:
    """The handler that was installed before."""


@pytest.fixture(autouse=True)
def handlers() -> object:
    """Install `before` for all three signals; after the test, this process's own handlers are restored."""
    kept = {number: signal.signal(number, before) for number in NUMBERS}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_within_it_the_signals_are_told_and_afterwards_the_handlers_are_as_before() -> None:
    told: list[tuple[int, object]] = []

    with at_signals(NUMBERS, lambda number, handlers: told.append((number, handlers[number]))):
        for number in NUMBERS:
            signal.raise_signal(number)

    assert told == [(number, before) for number in NUMBERS]
    assert [signal.getsignal(number) for number in NUMBERS] == [before] * 3


def test_ignored_signals_stay_ignored_but_sigterm_is_told() -> None:
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    told: list[int] = []

    with at_signals(NUMBERS, lambda number, _: told.append(number)):
        for number in NUMBERS:
            signal.raise_signal(number)

    assert told == [signal.SIGTERM]
    assert [signal.getsignal(number) for number in NUMBERS] == [signal.SIG_IGN] * 3


def test_on_another_thread_nothing_is_installed() -> None:
    seen: list[object] = []

    def look() -> None:
        with at_signals(NUMBERS, lambda *_: None):
            seen.extend(signal.getsignal(number) for number in NUMBERS)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert seen == [before] * 3


def test_the_handlers_come_back_when_what_runs_raises() -> None:
    with pytest.raises(KeyboardInterrupt), at_signals([signal.SIGHUP], lambda *_: None):
        raise KeyboardInterrupt

    assert signal.getsignal(signal.SIGHUP) is before
