"""The options that a seed draws before anything happens: sizes, speeds, and which faults this world has, and how often.

A few faults often find more than all faults rarely (FoundationDB). So each world has some kinds of faults and not
others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from tests.sim.course import course

FAULTS = (
    "disconnect",  # the TCP connection breaks; the client may reconnect in its session
    "black_hole",  # nothing gets through until it heals; some never heal, and their clients must leave them
    "deaf",  # one direction only: the server hears the client, the client hears nothing
    "cut",  # a process reaches no server for a while
    "pause",  # SIGSTOP, later SIGCONT
    "crash",  # SIGKILL, later a new incarnation
    "follower_cut",  # a follower loses its leader and goes on answering reads and pings
    "outage",  # no quorum: every connection breaks, sessions wait
    "flap",  # a connection breaks, and so do the next ones, each after a few answers
    "hang",  # a program obeys no command, and reads on
)
"""What any world may draw. `faults.INJECTORS` has more, for worlds that ask for them."""

SEED_VARIABLE = "ZKCOORD_SIM_SEED"
COUNT_VARIABLE = "ZKCOORD_SIM_SEEDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Rates are per step of the scheduler. The defaults are a world without faults."""

    followers: int = 0
    session_timeout_ms: int = 10_000
    # relative weights of the scheduler's kinds of work
    weight_step: int = 4
    weight_execute: int = 4
    weight_deliver: int = 4
    weight_replicate: int = 2
    burst_rate: float = 0.5  # deliver all waiting inputs instead of one
    torn_rate: float = 0.0  # answer a part of a large read, and the rest later
    time_rate: float = 0.02  # let time pass although there is work
    time_step_ms_max: int = 20
    timer_late_ms_max: int = 5
    clock_skew_permille_max: int = 0
    reconnect_ms_max: int = 500
    # the application behind a consumer
    call_ms_max: int = 50
    start_raises_rate: float = 0.0
    read_ms_max: int = 2_000
    eager_rate: float = 0.0  # of groups that become eager, and of groups that become cooperative
    request_rate: float = 0.0  # of requests: hold, pause, rebalance; later somebody resumes the group
    # faults
    fault_rate: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)  # kind -> weight
    fault_sessions_max: float = 1.0  # how long a fault may last, in session timeouts
    request_lost_rate: float = 0.0  # of writes
    reply_lost_rate: float = 0.0

    @classmethod
    def drawn(cls, rng: Random, **fixed: Any) -> Options:
        """Draw a world's options from its own random numbers; `fixed` overrides the draws."""
        choice = rng.choice
        kinds = [kind for kind in FAULTS if rng.random() < 0.35] or [choice(FAULTS)]
        options = cls(
            followers=choice((0, 0, 1, 2)),
            session_timeout_ms=choice((4_000, 6_000, 10_000)),
            weight_step=choice((1, 4, 16)),
            weight_execute=choice((1, 4, 16)),
            weight_deliver=choice((1, 4, 16)),
            weight_replicate=choice((1, 4)),
            burst_rate=choice((0.0, 0.5, 0.9)),
            torn_rate=choice((0.0, 0.0, 0.1, 0.5)),
            time_rate=choice((0.0, 0.02, 0.1)),
            time_step_ms_max=choice((5, 50, 500)),
            timer_late_ms_max=choice((0, 5, 200)),
            clock_skew_permille_max=choice((0, 0, 1, 50)),
            reconnect_ms_max=choice((20, 500, 3_000)),
            call_ms_max=choice((0, 20, 1_000)),
            start_raises_rate=choice((0.0, 0.0, 0.05)),
            read_ms_max=choice((300, 2_000)),
            eager_rate=choice((0.0, 0.0, 0.5, 1.0)),
            request_rate=choice((0.0, 0.0, 0.0, 0.7)),
            fault_rate=choice((0.002, 0.005, 0.02)),
            faults={kind: choice((1, 3)) for kind in kinds},
            fault_sessions_max=choice((0.2, 1.0, 3.0)),
            request_lost_rate=choice((0.0, 0.0, 0.02, 0.1)),
            reply_lost_rate=choice((0.0, 0.0, 0.02, 0.1)),
        )
        return replace(options, **fixed)

    def with_other_faults(self, rng: Random, fault_rate: float) -> Options:
        """The same world with this fault rate from now on, and with some other kinds of faults."""
        choice = rng.choice
        kinds = {kind: weight for kind, weight in self.faults.items() if rng.random() < 0.8}
        kinds |= {kind: choice((1, 3, 9)) for kind in FAULTS if rng.random() < 0.2}
        return replace(
            self,
            faults=kinds or self.faults,
            fault_rate=fault_rate,
            fault_sessions_max=choice((0.2, 1.0, 3.0)),
            reconnect_ms_max=choice((20, 500, 3_000)),
            burst_rate=choice((0.0, 0.5, 0.9)),
        )

    def __str__(self) -> str:
        """Every drawn option as `name=value`, faults by kind."""
        return " ".join(f"{f.name}={_shown(getattr(self, f.name))}" for f in fields(self))


def _shown(value: Any) -> str:
    return "{" + ",".join(f"{k}:{v}" for k, v in value.items()) + "}" if isinstance(value, Mapping) else str(value)


def seeds(count: int, first: int = 0) -> list[int]:
    """The seeds of a test: `count` of them, or those that the environment names (one seed or course, or another
    count)."""
    if SEED_VARIABLE in os.environ:
        return [course(os.environ[SEED_VARIABLE])]
    return list(range(first, first + int(os.environ.get(COUNT_VARIABLE, count))))
