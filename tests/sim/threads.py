"""Threads of simulated programs: real threads, of which one runs at a time, and only when the world's seed says so.

A `Crew` is the threads of one process. Each of them has an OS thread of its own, which waits for its baton. The world
hands the baton to a thread that can go on. The thread gives it back when it waits (for a lock, a condition, an event, a
queue, a time), when it ends, or after some lines of the product's code. So a race between two lines is found, as well
as a race between two waits. Waiting takes virtual time only.

`tests/sim/seam.py` puts these primitives in the place of Python's while a scene is played.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Collection, Mapping
from itertools import count
from math import ceil
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tests.sim.process import SimProcess

SWITCHES_MAX = 20_000
"""In one millisecond of virtual time; more is a loop that waits for nothing."""

DOZE_RATE = 0.03
"""Of lines of slow functions."""

KILLED_MAX = 1_000
"""So often a thread that is killed may go on with something else; more is a loop that cannot be ended."""


class Killed(BaseException):
    """The process is killed: this is raised in each of its threads, where the thread waits."""


class _Carrier:
    """An OS thread that runs one simulated thread after the other."""

    idle: ClassVar[list[_Carrier]] = []

    def __init__(self) -> None:
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.runs: SimThread | None = None
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            self.baton.acquire()
            thread = self.runs
            assert thread is not None
            RUNNING[_thread.get_ident()] = thread
            thread.run()
            del RUNNING[_thread.get_ident()]
            self.runs = None
            back = thread.crew.world_baton
            self.idle.append(self)
            back.release()


RUNNING: dict[int, SimThread] = {}
"""By the OS thread: what it runs."""


def current() -> SimThread | None:
    """The simulated thread that calls this; None on any other thread."""
    return RUNNING.get(_thread.get_ident())


class SimThread:
    """Stands in for `threading.Thread`, in a crew."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Collection[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        crew: Crew | None = None,
    ) -> None:
        if crew is None:
            maker = current()
            assert maker is not None
            crew = maker.crew
        self.crew = crew
        self.ident = next(crew.numbers)
        self.name, self.daemon = name or f"Thread-{self.ident}", daemon
        self.error: BaseException | None = None
        self.woken = False
        self.ended = False
        self.killed = 0
        self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
        self._carrier: _Carrier | None = None
        self._joining: list[SimThread] = []

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def start(self) -> None:
        """Start the thread; it runs when the world hands it the baton."""
        if self._carrier is not None or self.ended:
            raise RuntimeError("threads can only be started once")
        if self.crew.dead:
            raise Killed
        self._carrier = _Carrier.idle.pop() if _Carrier.idle else _Carrier()
        self._carrier.runs = self
        self.crew.members[self] = None
        self.crew.process.inbox.put(self)  # type: ignore[arg-type]

    def is_alive(self) -> bool:
        """True from the thread's start to its end."""
        return self._carrier is not None and not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end; in a dead process return at once. (An open generator is closed after its thread's
        end, and may call `join` then.)"""
        if self._carrier is None:
            raise RuntimeError("cannot join thread before it is started")
        crew = self.crew
        if crew.dead:
            return
        until_ms = crew.until_ms(timeout)
        while not self.ended:
            me = crew.me()
            self._joining.append(me)
            woken = crew.park(until_ms)
            if not woken:
                self._joining.remove(me)
                return

    # called on its OS thread

    def run(self) -> None:
        """Run to the end. An error goes to the crew."""
        crew = self.crew
        followed = crew.lines_max and not crew.process.world.draining and not self.name.startswith(crew.untraced)
        sys.settrace(crew.trace_calls if followed else None)
        try:
            if not crew.dead and self._target is not None:
                self._target(*self._args, **self._kwargs)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
            crew.raised(self, error)
        finally:
            sys.settrace(None)
            self.ended = True
            crew.members.pop(self, None)
            for waiter in self._joining:
                crew.wake(waiter)

    def pass_on(self) -> None:
        """Give the baton back to the world, and wait for it."""
        assert self._carrier is not None
        self.crew.world_baton.release()
        self._carrier.baton.acquire()
        if self.crew.dead:
            self.killed += 1
            raise Killed
        if self.crew.process.world.draining:
            sys.settrace(None)  # tracing each line costs more than the line itself

    # called on the world's thread

    def go_on(self) -> None:
        """Let the thread run until it waits or ends."""
        assert self._carrier is not None
        self.crew.current = self
        self._carrier.baton.release()
        self.crew.world_baton.acquire()
        self.crew.current = None


class Crew:
    """The threads of one incarnation of a process."""

    def __init__(
        self,
        process: SimProcess,
        traced: frozenset[str],
        lines_max: int,
        untraced: tuple[str, ...],
        slow: frozenset[CodeType] = frozenset(),
    ) -> None:
        """`traced`: the files in whose lines a thread may lose the baton, after at most `lines_max` lines (0: never).
        Threads whose names begin with one of `untraced` are not traced. `slow`: functions that may take long between
        two of their lines."""
        self.slow = slow
        self.process = process
        self.world_baton = _thread.allocate_lock()
        self.world_baton.acquire()
        self.numbers = count(1)
        self.members: dict[SimThread, None] = {}  # threads that have started and not ended
        self.waiting: dict[SimThread, int | None] = {}  # thread -> its timeout, by the process's clock
        self.current: SimThread | None = None
        self.dead = False
        self.untraced = untraced
        self.lines_max = lines_max
        self.cut_short: dict[SimThread, None] = {}  # threads that lost the baton in the product's code
        self.deaths: list[tuple[SimThread, BaseException]] = []
        self._traced = traced
        self._lines_left = self._draw_lines()
        self._switches, self._at_ms = 0, -1

    def spawn(self, target: Callable[[], object], name: str) -> SimThread:
        """Start a thread from outside of the process."""
        thread = SimThread(target=target, name=name, crew=self)
        thread.start()
        return thread

    # called on its threads

    def me(self) -> SimThread:
        """The thread that runs now."""
        assert self.current is not None, "the world's own thread cannot wait"
        if self.dead:
            self._kill_again(self.current)
        return self.current

    def _kill_again(self, thread: SimThread) -> None:
        thread.killed += 1
        assert thread.killed < KILLED_MAX, f"{thread} does not end"
        raise Killed

    def now_ms(self) -> int:
        """The time by the process's clock."""
        return self.process.clock.now_ms()

    def until_ms(self, timeout_seconds: float | None) -> int | None:
        """The moment at which a timeout ends."""
        return None if timeout_seconds is None else self.now_ms() + ceil(max(0.0, timeout_seconds) * 1000)

    def park(self, until_ms: int | None) -> bool:
        """Wait to be woken; False at the timeout."""
        me = self.me()
        me.woken = False
        self.waiting[me] = until_ms
        me.pass_on()
        return me.woken

    def sleep(self, seconds: float) -> None:
        """Stands in for `time.sleep`."""
        self.park(self.until_ms(seconds))

    def wake(self, thread: SimThread) -> None:
        """Let a waiting thread go on."""
        if thread in self.waiting:
            del self.waiting[thread]
            thread.woken = True
            self.process.inbox.put(thread)  # type: ignore[arg-type]

    def raised(self, thread: SimThread, error: BaseException) -> None:
        """A thread has ended with an error."""
        self.process.world.trace(self.process.client, thread, "ends with", repr(error))
        if not self.dead:
            self.deaths.append((thread, error))

    def trace_calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For sys.settrace: trace the lines of functions in `traced` files."""
        return self._trace_lines if frame.f_code.co_filename in self._traced else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            if frame.f_code in self.slow and self.process.world.stormy:
                self._doze()
            self._lines_left -= 1
            if self._lines_left <= 0 and not self.dead:
                self._lines_left = self._draw_lines()
                me = self.current
                assert me is not None
                self.cut_short[me] = None
                self.process.inbox.put(me)  # type: ignore[arg-type]
                me.pass_on()
        return self._trace_lines

    def _doze(self) -> None:
        """Between two lines of a slow function a thread may stop for as long as two session timeouts."""
        random, options = self.process.world.rng.random, self.process.world.options
        if random() < DOZE_RATE:
            self.sleep(random() * 2 * options.session_timeout_ms / 1000)

    def _draw_lines(self) -> int:
        world = self.process.world
        return 1 + int(world.rng.random() * self.lines_max) if self.lines_max and not world.draining else 1 << 60

    # called on the world's thread

    def step(self) -> int | None:
        """Let one thread that can go on do so. Returns the time at which the next one is due, by the process's
        clock."""
        process, world = self.process, self.process.world
        now_ms = self.now_ms()
        for thread in [t for t, until_ms in self.waiting.items() if until_ms is not None and until_ms <= now_ms]:
            del self.waiting[thread]
            process.inbox.items.append(thread)  # type: ignore[arg-type]
        ready = process.inbox.items
        if ready:
            self.resume(ready.pop(int(world.rng.random() * len(ready))))  # type: ignore[arg-type]
            self._check_busy()
        if process.inbox.items:
            world.awake[process] = None
        return min((until_ms for until_ms in self.waiting.values() if until_ms is not None), default=None)

    def resume(self, thread: SimThread) -> None:
        """Hand the baton to this thread."""
        self.cut_short.pop(thread, None)
        thread.go_on()

    def to_their_waits(self) -> None:
        """Let each thread that stopped in the product's code run on until it waits: a pause stops a program only at its
        waits. (If a pause came between a question and the act that depends on the answer, no program could be
        correct.)"""
        lines_left, self._lines_left = self._lines_left, 1 << 60
        while self.cut_short:
            thread = next(iter(self.cut_short))
            self.process.inbox.items.remove(thread)  # type: ignore[arg-type]
            self.resume(thread)
        self._lines_left = lines_left

    def _check_busy(self) -> None:
        world = self.process.world
        if self._at_ms != world.now_ms:
            self._at_ms, self._switches = world.now_ms, 0
        self._switches += 1
        if self._switches > SWITCHES_MAX:
            world.fail(f"{self.process.client} asks to be called at once, {SWITCHES_MAX} times in one millisecond")

    def kill(self) -> None:
        """End all threads where they are."""
        self.dead = True
        self.waiting.clear()
        while self.members:
            thread = next(iter(self.members))
            thread.go_on()
        self.process.inbox.items = []
