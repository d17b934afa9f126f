"""Moves the offsets of many groups between stores at the same time, and reports the progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from zkcoord.core.words import count
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.operating.requesting import PROGRESS_SECONDS
from zkcoord.operating.saying import say, warn
from zkcoord.operating.store_migration import Migration, Stage, Turn, steps

TURN_SECONDS = 0.3
NAMED_MAX = 20  # differences that are printed one by one
MOVED, UNCHANGED, PLANNED, REFUSED, UNFINISHED = "moved", "unchanged", "would be moved", "refused", "not finished"


class Result(NamedTuple):
    """The result for one group. `before`: its store at the beginning."""

    group: str
    before: str
    goal: str
    store: str
    step: int
    result: str
    why: str = ""


class Movers:
    """The runs of one wave, which go on at the same time. `serving` says which coordinator serves."""

    def __init__(self, runs: Sequence[Migration], timeout_ms: int, serving: Callable[[], str]) -> None:
        self._runs, self._timeout_ms, self._serving = runs, timeout_ms, serving
        self._before: dict[str, str] = {}  # group -> its store at the beginning
        self._results: dict[str, Result] = {}
        self._last: dict[str, tuple[Turn, float]] = {}
        # group -> its last turn that differed from the turn before, and when that was
        self._said = time.monotonic()

    def plan(self) -> list[Result]:
        """Look at each group, and write nothing."""
        for run in self._runs:
            try:
                view, why = run.look()
            except UnavailableError:
                raise
            except ZkcoordError as error:
                self._end(run, Turn(Stage.REFUSED, "", 0, str(error)), REFUSED)
                continue
            store, step = view.record.store_name, view.record.store_step
            self._before[run.group] = store
            left = [] if why else steps(store, run.goal)
            plan = f"{' > '.join([store, *left])}; {count(len(view.members), 'consumer')}"
            result = REFUSED if why else PLANNED if left else UNCHANGED
            self._end(run, Turn(Stage.WAITING, store, step, why or plan), result)
        return self._all()

    def carry_out(self) -> list[Result]:
        """Take turns of all runs until every run has ended."""
        try:
            while active := [run for run in self._runs if run.group not in self._results]:
                began = time.monotonic()
                waiting = {run.group: why for run in active if (why := self._turn(run))}
                self._tell(waiting)
                if waiting:
                    time.sleep(max(TURN_SECONDS, time.monotonic() - began))  # so large groups are read less often
        except KeyboardInterrupt:
            say("notice", "broken off: run it again to go on")
            raise
        return self._all()

    def _turn(self, run: Migration) -> str:
        """Take one turn of one run. Return what the run waits for; "" if it has ended."""
        try:
            turn = run.turn(int(time.time() * 1000))
        except UnavailableError as error:
            turn = Turn(Stage.WAITING, "", 0, str(error))
        except ZkcoordError as error:
            turn = Turn(Stage.REFUSED, "", 0, str(error))
        if turn.store:
            self._before.setdefault(run.group, turn.store)
        if turn.stage is Stage.WAITING:
            return self._waits(run, turn)
        if turn.stage is Stage.DONE:
            self._print_differences(run)
            self._end(run, turn, UNCHANGED if self._before[run.group] == turn.store else MOVED)
        else:
            self._end(run, turn, REFUSED)
            run.give_up()
        return ""

    def _waits(self, run: Migration, turn: Turn) -> str:
        last, since = self._last.get(run.group, (None, 0.0))
        now = time.monotonic()
        if turn != last:
            if last is not None and last.store and turn.step > last.step:
                say("moved", f"group {run.group}: offsets are kept in {turn.store} from now on (step {turn.step})")
            self._last[run.group] = turn, now
        elif now - since >= self._timeout_ms / 1000:
            self._print_differences(run)
            self._end(run, turn, UNFINISHED)
            return ""
        return turn.why

    def _tell(self, waiting: Mapping[str, str]) -> None:
        if not waiting or time.monotonic() - self._said < PROGRESS_SECONDS:
            return
        self._said = time.monotonic()
        group = min(waiting)
        more = f"; {count(len(waiting) - 1, 'further group')}" if len(waiting) > 1 else ""
        say("waiting", f"group {group}: {waiting[group]} ({self._serving()}){more}")

    def _print_differences(self, run: Migration) -> None:
        """Print the offsets that differ."""
        for each in run.differences[:NAMED_MAX]:
            stands = f"ZooKeeper has {each.zookeeper}, Kafka {each.kafka}, {each.counts} counts"
            warn(f"group {run.group}: {each.partition}: {stands}{each.why and f': {each.why}'}")
        if len(run.differences) > NAMED_MAX:
            warn(f"group {run.group}: {len(run.differences) - NAMED_MAX} more; `zkcoord offsets verify` shows them")

    def _end(self, run: Migration, turn: Turn, result: str) -> None:
        before = self._before.get(run.group, "")
        self._results[run.group] = Result(run.group, before, run.goal, turn.store, turn.step, result, turn.why)

    def _all(self) -> list[Result]:
        return [self._results[run.group] for run in self._runs]
