"""Mutations: what a rule of the product is worth is seen when it is taken away.

A mutation patches one place of the product. It is caught when a storm, or the script of its failure case, breaks a
checker or an assertion, or does not come to rest; an exception of the mutated product counts, too. A case has several
times the seeds that it needs: any change of the product is another draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.sim.garbage import collect_between
from tests.sim.script import Script

STORM_STEPS = 2_500
Patch = pytest.MonkeyPatch
Play = Callable[[int], object]


def group_storm(seed: int) -> None:
    """A group that has settled, a storm, the calm."""
    script = Script(seed, None, topics={"t": 8, "u": 3})
    script.settle()
    script.world.storm(STORM_STEPS)
    script.calm()


class Case(NamedTuple):
    """A mutation is missed by `play` within so many seeds."""

    mutate: Callable[[Patch], None]
    play: Play
    seeds: int = 1


def must_be_missed(mutate: Callable[[Patch], None], play: Play, seeds: int) -> None:
    """Fail unless a play of one of the first seeds breaks under the mutation."""
    for seed in range(seeds):
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            try:
                play(seed)
            except Exception:  # a checker, an assertion of the script, or the mutated product itself
                return
        collect_between()
    pytest.fail(f"not missed within {seeds} seeds: {mutate.__doc__}")
