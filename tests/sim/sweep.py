"""Crash points and hash seeds: a scenario run once to count, then once for each place where it could be cut off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.sim.options import Options
from tests.sim.world import CrashPlan, World

KILLS = ("before", "after_applied_reply_lost", "after")
LOSSES = ("request_lost", "reply_lost")

Scenario = Callable[[World], None]
"""Spawns, runs and judges one world; raises when something is wrong."""


def crash_points(
    scenario: Scenario,
    seed: int = 0,
    options: Options | None = None,
    *,
    processes: Iterable[str] | None = None,
    moments: Iterable[str] = KILLS + LOSSES,
) -> Iterator[CrashPlan]:
    """Run the scenario once; then every write of the named processes (None: of all) at every moment."""
    world = World(seed, options or Options())
    scenario(world)
    names = sorted(world.write_counts) if processes is None else list(processes)
    for name in names:
        for at_write in range(1, world.write_counts[name] + 1):
            for when in moments:
                yield CrashPlan(name, at_write, when)


def sweep(
    scenario: Scenario,
    seed: int = 0,
    options: Options | None = None,
    *,
    processes: Iterable[str] | None = None,
    moments: Iterable[str] = KILLS + LOSSES,
) -> int:
    """Run the scenario once per crash point; the number of points. A failure names its plan in the trace."""
    count = 0
    for plan in crash_points(scenario, seed, options, processes=processes, moments=moments):
        world = World(seed, options or Options())
        world.plan(plan)
        try:
            scenario(world)
        except Exception as error:
            error.add_note(f"at the crash point {plan}")
            raise
        count += 1
    return count


def fingerprints(entry: str, seeds: Iterable[int], hash_seeds: Iterable[int] = (0, 1, 2)) -> dict[int, list[str]]:
    """What `entry` ("module:function", called with each seed) returns in processes of several PYTHONHASHSEEDs.

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
