"""The simulated world. ONE random.Random decides everything that happens, in virtual time, one small step at a time.

`spawn` actors, `storm(steps)` with faults, then `calm(budget_steps)`: no new faults, and everything must come to rest.
To script a scenario, use `run_until`, `pause`, `crash`, `cut` and the like. A failure prints the seed, the options, the
trace's end and the one command that repeats it.
"""

from __future__ import annotations

import heapq
import os
import zlib
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.sim import faults
from tests.sim.course import NEVER_STEP, Course, told
from tests.sim.moments import CrashPlan, Entry, SimulationError
from tests.sim.options import SEED_VARIABLE, Options
from tests.sim.process import NEVER_MS, Factory, SimProcess
from tests.sim.store import LOSE_REPLY, LOSE_REQUEST, RUN, SimStore, one_of
from tests.sim.trace import LINES_SHOWN, Trace
from tests.sim.wire import COMMIT, Ask
from tests.sim.zookeeper import Ensemble, Result
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import Transaction

QUIET_MS = 5_000
"""A world is at rest when nothing is written for a session timeout and so much more: a program of which nothing is
heard has lost its session by then (a server notices within TICK_MS), and the others have written what they make of it.
No other wait that ends with a write is longer, but for those in which a rest check complains."""


class World:
    """An ensemble, processes, and the scheduler that makes one of them do one thing at a time."""

    def __init__(self, seed: int, options: Options | None = None, *, command: str | None = None) -> None:
        self.seed = seed
        self.rng = Random(int(seed))
        self.course = seed if isinstance(seed, Course) else None
        self._asks_at = NEVER_STEP if self.course is None else 1  # the step at which the course is called next
        self.options = Options.drawn(self.rng) if options is None else options
        self.ensemble = Ensemble(followers=self.options.followers, timeout_min_ms=1_000)
        self.layout = DRAFT  # set another layout before any program of the group is spawned
        self.processes: dict[str, SimProcess] = {}
        self.awake: dict[SimProcess, None] = {}  # processes with an input, or due; also some that have made their step
        self.stores: list[SimStore] = []
        self.busy: dict[SimStore, None] = {}  # stores that may have something to execute or deliver
        self.now_ms = 0
        self.steps = 0
        self.stormy = self.settled = False  # settled: the group of a swept scenario has settled once
        self.drain_from_ms: int | None = None  # calm since then: logs do not grow, applications read to their ends
        self.last_activity_ms = 0  # when a write (or read) request was executed last
        self.reads_disturb = True  # whether reads count as activity in `calm`
        self.write_counts: Counter[str] = Counter()
        self.crash_plans: dict[tuple[str, int], CrashPlan] = {}
        self.at_write: Callable[[str, int], CrashPlan | None] | None = None  # called at each process's n-th write
        self.journal: list[Entry] = []
        self.on_journal: list[Callable[[Entry], None]] = []
        self.rest_checks: list[Callable[[], list[str]]] = []
        self._failure: SimulationError | None = None
        self._command = command
        self._trace = Trace()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._armed: CrashPlan | None = None  # the plan of the write that is being executed
        self._awaited: dict[Ask, CrashPlan] = {}  # the process is killed after the step that takes the reply

    # -- actors

    def spawn(
        self, name: str, factory: Factory, *, restarts: bool = True, dies_of: tuple[type[BaseException], ...] = ()
    ) -> SimProcess:
        """Start a process; `factory` builds its actor now and after each restart.

        `restarts`: start it again after a crash. `dies_of`: errors of a step that end it as a crash does.
        """
        process = self.processes[name] = SimProcess(self, name, factory)
        process.restarts, process.dies_of = restarts, dies_of
        process.start()
        return process

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.processes[name].pause()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.processes[name].resume()

    def crash(self, name: str, *, restart_after_ms: int | None = 1_000, exact: bool = False) -> None:
        """SIGKILL. The process is started again after `restart_after_ms` if it `restarts`."""
        process = self.processes[name]
        process.kill(exact=exact)
        if restart_after_ms is not None and process.restarts:
            self.at(self.now_ms + restart_after_ms, lambda: self.restart(name))

    def restart(self, name: str) -> None:
        """Start a crashed process again; do nothing if it runs."""
        if not self.processes[name].running:
            self.processes[name].start()

    def stop(self, name: str) -> None:
        """End a process for good, like a crash without a restart."""
        self.processes[name].restarts = False
        self.processes[name].kill()

    def plan(self, *plans: CrashPlan) -> None:
        """Let these crash plans happen at their writes."""
        for plan in plans:
            self.crash_plans[plan.process, plan.at_write] = plan

    # -- calls of stores

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Call `action` when virtual time has come to `time_ms`."""
        self._timers_made += 1
        heapq.heappush(self._timers, (time_ms, self._timers_made, action))

    def trace(self, *words: Any) -> None:
        """Add a line to the trace; formatted only when it is shown."""
        self._trace.ring.append((self.now_ms, words))

    def torn(self, count: int) -> int:
        """How many of `count` reads of one request are answered now."""
        if count > 1 and self.options.torn_rate and self.rng.random() < self.options.torn_rate:
            return 1 + int(self.rng.random() * count)
        return count

    def reconnect_delay_ms(self) -> int:
        """How long a client looks for another server."""
        return 1 + int(self.rng.random() * self.options.reconnect_ms_max)

    def before_write(self, store: SimStore, transaction: Transaction) -> str:
        """Count the write, and return RUN, LOSE_REQUEST or LOSE_REPLY. A crash plan may kill the process here."""
        name = store.process.name
        self.write_counts[name] += 1
        self.last_activity_ms = self.now_ms
        plan = self.crash_plans.pop((name, self.write_counts[name]), None)
        if plan is None and self.at_write is not None:
            plan = self.at_write(name, self.write_counts[name])
        if plan is not None:
            self.trace("plan:", plan)
            self._armed = plan
            if plan.when == "before":
                self._armed = None
                self.crash(name, restart_after_ms=plan.restart_after_ms, exact=True)
            return {"request_lost": LOSE_REQUEST, "reply_lost": LOSE_REPLY}.get(plan.when, RUN)
        if self.stormy:
            draw = self.rng.random()
            if draw < self.options.request_lost_rate:
                return LOSE_REQUEST
            if draw < self.options.request_lost_rate + self.options.reply_lost_rate:
                return LOSE_REPLY
        return RUN

    def after_write(self, store: SimStore, ask: Ask, result: Result) -> None:
        """Trace the outcome; a crash plan may kill the process here."""
        self.trace(store.client, "wrote", ask.payload, result)
        plan, self._armed = self._armed, None
        if plan is None:
            return
        if plan.when == "after_applied_reply_lost":
            self.crash(plan.process, restart_after_ms=plan.restart_after_ms, exact=True)
        elif plan.when == "after":
            self._awaited[ask] = plan

    def replied(self, store: SimStore, ask: Ask) -> None:
        """A reply reached its process."""
        if self._awaited and ask in self._awaited:
            plan = self._awaited.pop(ask)
            self.processes[plan.process].dies_after_step = plan

    # -- the scheduler

    def step(self) -> bool:
        """Let one thing happen; False when nothing can happen any more."""
        self.steps += 1
        if self.steps >= self._asks_at and self.course is not None:
            self._asks_at = self.course.passed(self)
        options, random = self.options, self.rng.random
        if self.stormy and random() < options.fault_rate:
            faults.inject(self)
        elif options.time_rate and random() < options.time_rate and not self._behind():
            self._pass_time(self.now_ms + 1 + int(random() * options.time_step_ms_max))
        elif not self._work():
            if not self._jump():
                return False
            if self.draining:
                self._work()  # a calm is mostly waits: the wait and the work after it are one step
        if self._failure is not None:
            raise self._failure
        return True

    def _behind(self) -> bool:
        """True while slow servers would be a fault: then time passes only for the servers' own work."""
        return self.draining and any(store.behind for store in self.busy)

    def _work(self) -> bool:
        """Do one thing that can be done now; False when there is none. (Called at every step.)"""
        ensemble = self.ensemble
        followers = ensemble.followers
        if not (self.awake or self.busy or followers):
            return False
        now_ms, options, random = self.now_ms, self.options, self.rng.random
        steps, executes, delivers, ghosts = [], [], [], []
        idle = asleep = None
        for process in self.awake:
            if process.wake_ms > now_ms and not process.inbox.items:
                asleep = process
            elif process.running and not process.paused:
                steps.append(process)
        if asleep is not None:
            del self.awake[asleep]  # removing one at a time is enough, here and below
        for store in self.busy:
            wire = store.wire
            if wire is not None and (wire.requests or wire.replies):
                if wire.requests and wire.up and store.can_execute():
                    executes.append(store)
                if store.local or (wire.replies and wire.down and store.can_deliver()):
                    delivers.append(store)
            elif store.local:
                delivers.append(store)
            elif not store.ghosts:
                idle = store
            if store.ghosts and ensemble.serving:
                ghosts.append(store)
        if idle is not None:
            del self.busy[idle]
        of_steps = options.weight_step if steps else 0
        of_executes = of_steps + options.weight_execute if executes else of_steps
        of_delivers = of_executes + options.weight_deliver if delivers else of_executes
        behind = ensemble.behind() if followers else followers
        of_behind = of_delivers + options.weight_replicate if behind else of_delivers
        total = of_behind + 1 if ghosts else of_behind
        if not total:
            return False
        draw = int(random() * total)
        if draw < of_steps:
            self._step(one_of(steps, random()))
        elif draw < of_executes:
            store = one_of(executes, random())
            if self.reads_disturb and store.reads_next:
                self.last_activity_ms = now_ms
            store.execute()
        elif draw < of_delivers:
            self._deliver(one_of(delivers, random()))
        elif draw < of_behind:
            replica = behind[int(random() * len(behind))]
            replica.apply(ensemble.log[replica.position])
        else:
            one_of(ghosts, random()).execute_ghost()
        return True

    def _step(self, process: SimProcess) -> None:
        process.step()
        if process.dies_after_step is not None:
            self.crash(process.name, restart_after_ms=process.dies_after_step.restart_after_ms, exact=True)
        if process.wake_ms > self.now_ms and not process.inbox.items:
            self.awake.pop(process, None)
            if self.draining and not self.awake and len(self.busy) == 1:
                self._answer_lone_sync(process)

    def _answer_lone_sync(self, process: SimProcess) -> None:
        """In a calm a sync and its answer are one step if nothing else is on its way."""
        (store,) = self.busy
        if store.process is process and store.execute_lone_sync():
            self._step(process)

    def _deliver(self, store: SimStore) -> None:
        store.deliver()
        if self.rng.random() < self.options.burst_rate:
            while store.can_deliver():
                store.deliver()

    def _jump(self) -> bool:
        """There is nothing to do now: let time pass to the next timer (or a little further)."""
        due_ms = self._timers[0][0] if self._timers else NEVER_MS
        for process in self.processes.values():
            if process.wake_ms < due_ms and process.running and not process.paused:
                due_ms = process.wake_ms
        if self.ensemble.starving:
            due_ms = min(due_ms, self.ensemble.next_expiry_ms() or due_ms)
        if due_ms == NEVER_MS:
            return False
        late_ms = int(self.rng.random() * (self.options.timer_late_ms_max + 1))
        self._pass_time(max(self.now_ms, due_ms) + late_ms)
        return True

    def _pass_time(self, now_ms: int) -> None:
        self.now_ms = self.ensemble.now_ms = now_ms
        for process in self.processes.values():
            if process.wake_ms <= now_ms:
                self.awake[process] = None
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            heapq.heappop(timers)[2]()
        for session in self.ensemble.expire_due() if self.ensemble.starving else ():
            self.trace("session of", session.client, "expires")
            for store in self.stores:
                if store.session is session:
                    store.refresh()
        if len(self.stores) > len(self.processes):
            self.stores = [s for s in self.stores if not s.over or s.ghosts]

    # -- running

    def run(self, steps: int) -> None:
        """Make that many steps, with faults only while `stormy`."""
        for _ in range(steps):
            if not self.step():
                self._pass_time(self.now_ms + 1_000)

    def run_until(self, holds: Callable[[], bool], budget_steps: int = 20_000, what: str = "condition") -> None:
        """Run without new faults until `holds()` is true; fail when the budget of steps is used up."""
        for _ in range(budget_steps):
            if holds():
                return
            if not self.step():
                self._pass_time(self.now_ms + 1_000)
        if not holds():
            self.fail(f"{what} did not come within {budget_steps} steps")

    def run_for(self, duration_ms: int, budget_steps: int = 100_000) -> None:
        """Run without new faults until that much virtual time has passed."""
        end_ms = self.now_ms + duration_ms
        self.at(end_ms, lambda: None)
        self.run_until(lambda: self.now_ms >= end_ms, budget_steps, f"{duration_ms} ms of virtual time")

    @property
    def draining(self) -> bool:
        """True once the world is calm: applications read to the logs' ends and stop."""
        return self.drain_from_ms is not None

    def storm(self, steps: int) -> None:
        """Make that many steps in which any fault of the options may happen."""
        self.stormy, self.drain_from_ms = True, None
        self.run(steps)
        self.stormy = False

    def calm(self, budget_steps: int, *, quiet_ms: int | None = None) -> None:
        """End all faults. Then everything must come to rest.

        At rest: no write (no read, while `reads_disturb`) for `quiet_ms` of virtual time (by default a session timeout
        and QUIET_MS), and no rest check complains. While a check complains, time goes on, since some waits are
        documented. The budget limits the time.
        """
        self.stormy = False
        faults.heal(self)
        self.drain_from_ms = self.now_ms
        self.last_activity_ms = self.now_ms
        quiet_ms = self.options.session_timeout_ms + QUIET_MS if quiet_ms is None else quiet_ms
        complaints = ["never quiet"]
        for _ in range(budget_steps):
            if self.now_ms - self.last_activity_ms >= quiet_ms:
                complaints = [line for check in self.rest_checks for line in check()]
                if not complaints and not self._waiting():
                    return
                self.last_activity_ms = self.now_ms  # it may be a documented wait: look again after the same time
            if not self.step():
                self._pass_time(self.now_ms + 1_000)
        self.fail("did not come to rest: " + "; ".join(complaints[:10]))

    def _waiting(self) -> bool:
        """True while a living process has inputs, or a write is on its way."""
        if any(p.inbox.items for p in self.processes.values() if p.running):
            return True
        return any(ask.kind is COMMIT for s in self.stores if s.wire for ask in s.wire.requests)

    # -- results

    def note(self, process: SimProcess, event: str, partition: Any = None, start: int = -1, end: int = -1) -> None:
        """Add a line to the applications' journal."""
        entry = Entry(self.now_ms, process.name, process.client, process.group, event, partition, start, end)
        self.journal.append(entry)
        self._trace.ring.append((self.now_ms, entry[2:]))
        for hook in self.on_journal:
            hook(entry)

    def random_fingerprint(self) -> tuple[int, int, int, int]:
        """Equal for two runs of one seed under any PYTHONHASHSEED: random numbers, every write, steps, time."""
        return zlib.crc32(repr(self.rng.getstate()).encode()), self.ensemble.digest, self.steps, self.now_ms

    def trace_lines(self, count: int = LINES_SHOWN) -> list[str]:
        """The last lines of the trace."""
        return self._trace.lines(count)

    def fail(self, complaint: str) -> None:
        """Raise SimulationError now, and again at the end of this step if somebody catches it."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "tests/sim").split(" ")[0]
        command = self._command or f"{SEED_VARIABLE}={told(self.seed)} python -m pytest '{test}'"
        lines = "\n".join(self.trace_lines())
        self._failure = SimulationError(
            f"{complaint}\n{lines}\n"
            f"seed {told(self.seed)}, step {self.steps}, {self.now_ms} ms\noptions {self.options}\n"
            f"repeat with: {command}"
        )
        raise self._failure
