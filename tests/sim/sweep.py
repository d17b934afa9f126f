"""Crash points and hash seeds: a scenario runs once, and is cut off at each of its writes.

At each write the scenario forks one child for each moment. In the child the role dies or loses its connection at that
moment, and the child plays on to its end. The scenario itself goes on undisturbed. A child is the same world as one
that is played from the start with that `CrashPlan` (`play_again`; a test compares them), but it need not play the part
before the crash point. If that part is short, it is played again instead: this is quicker than a fork, whose child
copies memory.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.sim.garbage import collect_between, collect_never, collected_between
from tests.sim.options import Options
from tests.sim.world import CrashPlan, World

KILLS = ("before", "after_applied_reply_lost", "after")
LOSSES = ("request_lost", "reply_lost")

Scenario = Callable[[World], None]
"""Spawns, runs and judges one world; raises when something is wrong."""
Make = Callable[[int, Options], World]
"""What kind of world a scenario is played on."""

CHILDREN_MAX = os.cpu_count() or 1
ANSWER_SECONDS = 900
"""A point takes some hundredths of a second; a child that says nothing for so long hangs."""
OK, FAILED = b"+", b"-"
NEAR_STEPS = 350
"""So many steps of a world take as long as a child takes to come to its own memory."""


class Point(NamedTuple):
    """One crash point that was played to its end, with the fingerprint of its world."""

    plan: CrashPlan
    fingerprint: str


class CrashPointError(AssertionError):
    """The scenario failed at a crash point. The text has the trace and the crash plan."""


class Forks:
    """Forks a world at each of its writes. The parent, which runs undisturbed, collects every child's answer."""

    def __init__(
        self, world: World, moments: Iterable[str], processes: Iterable[str] | None, near_steps: int, own: bool
    ) -> None:
        self.points: list[Point] = []
        self.near: list[CrashPlan] = []  # crash points that are played from the start
        self.plan: CrashPlan | None = None  # in a child: its crash plan
        self._world, self._moments = world, tuple(moments)
        self._processes = None if processes is None else frozenset(processes)
        self._near_steps, self._own = near_steps, own
        self._pipe = -1  # in a child: the pipe for its answer
        self._running: dict[int, tuple[int, CrashPlan, bytearray]] = {}  # pipe -> pid, plan, its answer so far

    def at_write(self, process: str, number: int) -> CrashPlan | None:
        """Called when a process is about to write. Returns None in the parent, and in each child that child's plan."""
        if (self._own and not self._world.settled) or (self._processes is not None and process not in self._processes):
            return None
        for when in self._moments:
            plan = CrashPlan(process, number, when)
            if self._world.steps <= self._near_steps:
                self.near.append(plan)
            elif self._fork(plan):
                return plan
        return None

    def _fork(self, plan: CrashPlan) -> bool:
        """Returns True in the child."""
        while len(self._running) >= CHILDREN_MAX:
            self._listen()
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            collect_never()  # the parent's memory is shared until something writes to it, as the collector does
            self.plan, self._pipe, self._running, self._world.at_write = plan, writes, {}, None
            return True
        os.close(writes)
        self._running[reads] = (pid, plan, bytearray())
        return False

    def _listen(self) -> None:
        """Read the children's answers. For a child that has ended, keep its point, or raise its failure."""
        ready, _, _ = select.select(list(self._running), [], [], ANSWER_SECONDS)
        if not ready:
            silent = [plan for _, plan, _ in self._running.values()]
            raise CrashPointError(f"no answer within {ANSWER_SECONDS} s from {silent}")
        for pipe in ready:
            pid, plan, said = self._running[pipe]
            data = os.read(pipe, 1 << 16)
            said += data
            if data:
                continue
            del self._running[pipe]
            os.close(pipe)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            text = said[1:].decode()
            if status or said[:1] != OK:
                raise CrashPointError(f"{text or f'exit code {status}'}\nat the crash point {plan}")
            self.points.append(Point(plan, text))

    def collect(self, again: Callable[[CrashPlan], Point]) -> list[Point]:
        """Wait until all children have ended, play the near crash points (`again`), and return every point in the order
        of the writes."""
        while self._running:
            self._listen()
        for plan in self.near:
            try:
                self.points.append(again(plan))
            except Exception as error:
                raise CrashPointError(f"{_told(error)}\nat the crash point {plan}") from error
            collect_between()
        return sorted(self.points, key=lambda p: (p.plan.process, p.plan.at_write, self._moments.index(p.plan.when)))

    def abandon(self) -> None:
        """End the children that still run."""
        for pipe, (pid, _, _) in self._running.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(pipe)
        self._running = {}

    def answer(self, error: BaseException | None) -> None:
        """In a child: send the result and exit, without any of the parent's clean-up."""
        try:
            text = str(self._world.random_fingerprint()) if error is None else _told(error)
            data = (OK if error is None else FAILED) + text.encode()
            while data:
                data = data[os.write(self._pipe, data) :]
        finally:
            os._exit(0)


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def crash_points(
    scenario: Scenario,
    seed: int = 0,
    options: Options | None = None,
    *,
    processes: Iterable[str] | None = None,
    moments: Iterable[str] = KILLS + LOSSES,
    make: Make = World,
    near_steps: int = NEAR_STEPS,
    own: bool = False,
) -> list[Point]:
    """Play the scenario; for every write of the named processes (None: of all) and every moment, play the world to its
    end.

    `near_steps`: a write within so many steps is not forked, but played again from the start.

    `own`: leave out the writes before its group has settled for the first time (`settle`, in `sweep_scene.py`). All
    scenarios that begin with this group have the same writes there; one of these scenarios is played whole.

    The scenario is played in a process of its own, since a fork of a process with a whole test suite in its memory
    takes as long as playing a point. So the scenario must be a function of a module, or a partial of one.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "pytest"])  # every scenario imports this
    with ProcessPoolExecutor(1, mp_context=context) as apart:
        world = partial(make, seed, options or Options())
        return apart.submit(_played, scenario, world, processes, tuple(moments), near_steps, own).result()


def _played(
    scenario: Scenario,
    make: Callable[[], World],
    processes: Iterable[str] | None,
    moments: tuple[str, ...],
    near_steps: int,
    own: bool,
) -> list[Point]:
    world = make()
    forks = Forks(world, moments, processes, near_steps, own)
    world.at_write = forks.at_write
    try:
        scenario(world)
    except BaseException as error:
        if forks.plan is not None:
            forks.answer(error)
        raise
    else:
        if forks.plan is not None:
            forks.answer(None)
        with collected_between():
            return forks.collect(partial(_again, scenario, make))
    finally:
        forks.abandon()


def play_again(
    scenario: Scenario, plan: CrashPlan, seed: int = 0, options: Options | None = None, make: Make = World
) -> Point:
    """Play one crash point from the start, in this process, to look into it."""
    return _again(scenario, partial(make, seed, options or Options()), plan)


def _again(scenario: Scenario, make: Callable[[], World], plan: CrashPlan) -> Point:
    world = make()
    world.plan(plan)
    scenario(world)
    return Point(plan, str(world.random_fingerprint()))


def fingerprints(entry: str, seeds: Iterable[int], hash_seeds: Iterable[int] = (0, 1, 2)) -> dict[int, list[str]]:
    """Call `entry` ("module:function") with each seed, in processes with several PYTHONHASHSEEDs.

    The unseed check: `{hash seed: [str(result) for each seed]}`; every list must be equal.
    """
    module, _, function = entry.partition(":")
    code = f"from {module} import {function}\nfor seed in {list(seeds)}: print({function}(seed))"
    root = Path(__file__).parents[2]
    found = {}
    for hash_seed in hash_seeds:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found[hash_seed] = done.stdout.splitlines()
    return found
