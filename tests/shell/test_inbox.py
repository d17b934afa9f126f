"""The inbox of a loop. Its waits use the loop's clock, which may go on while the machine is suspended."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from zkcoord import clock
from zkcoord.shell.inbox import ThreadInbox
from zkcoord.shell.ports import CallDone, Input

DEADLINE_SECONDS = 60.0
HOUR_MS = 3_600_000


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.ms = 0
        self.looked_at = threading.Event()

    def now_ms(self) -> int:
        """The time that the test has set."""
        self.looked_at.set()
        return self.ms


def test_f58_a_wait_ends_when_the_clock_has_gone_on_while_the_machine_was_suspended() -> None:
    moments, answers = Clock(), list[list[Input]]()
    inbox = ThreadInbox(moments)
    thread = threading.Thread(target=lambda: (inbox.wait(HOUR_MS), answers.append(inbox.take())), daemon=True)
    thread.start()
    assert moments.looked_at.wait(DEADLINE_SECONDS)
    moments.ms = HOUR_MS
    thread.join(DEADLINE_SECONDS)
    assert answers == [[]]


def test_f103_a_signal_that_does_not_interrupt_the_wait_is_handled_all_the_same() -> None:
    """The system may deliver the signal to another thread, or before the main thread sleeps. Then nothing wakes the
    main thread."""
    inbox, stopped = ThreadInbox(Clock()), CallDone(1)
    over = threading.Event()
    other = threading.Thread(target=over.wait, args=[DEADLINE_SECONDS], daemon=True)
    too_late = threading.Timer(DEADLINE_SECONDS, inbox.put, [CallDone(2)])
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: inbox.put(stopped))
    try:
        other.start()
        too_late.start()
        strike = threading.Timer(0.1, lambda: signal.pthread_kill(other.ident or 0, signal.SIGUSR1))
        strike.start()
        inbox.wait(None)
        assert inbox.take() == [stopped]
    finally:
        signal.signal(signal.SIGUSR1, before)
        too_late.cancel()
        over.set()


def test_waiting_inputs_are_taken_at_once_in_order() -> None:
    inbox = ThreadInbox(Clock())
    for token in (1, 2, 3):
        inbox.put(CallDone(token))
    inbox.add(CallDone(4))
    inbox.wait(None)
    assert inbox.take() == [CallDone(token) for token in (1, 2, 3, 4)]
    inbox.wait(0)  # nothing has woken it since
    assert inbox.take() == []


@pytest.mark.skipif(clock.BOOTTIME is None, reason="this machine has no clock that goes on while it is suspended")
def test_f58_the_clock_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as the kernel does: the monotonic clock plus the time of suspension."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    before_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    assert before_ms <= clock.mono_ms() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def test_a_machine_without_such_a_clock_has_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "BOOTTIME", None)
    before_ms = time.monotonic_ns() // 1_000_000
    assert before_ms <= clock.mono_ms() <= time.monotonic_ns() // 1_000_000
