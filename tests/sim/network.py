"""Protocols: what a simulated session needs from its process and from the world."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from tests.sim.zookeeper import Ensemble, Result
from zkcoord.tree.writes import Transaction

if TYPE_CHECKING:
    from tests.sim.store import SimStore
    from tests.sim.wire import Ask


class Process(Protocol):
    """The part of a process that a store uses."""

    name: str
    client: str  # name and incarnation
    paused: bool
    cut: bool


class Network(Protocol):
    """The part of the world that a store uses."""

    rng: Random
    ensemble: Ensemble
    busy: dict[SimStore, None]  # stores with something to execute or deliver; some of them may have nothing left

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Call `action` when virtual time has come to `time_ms`."""

    def trace(self, *words: Any) -> None:
        """Add a line to the trace."""

    def before_write(self, store: SimStore, transaction: Transaction) -> str:
        """Return RUN, LOSE_REQUEST or LOSE_REPLY. May crash the store's process."""

    def after_write(self, store: SimStore, ask: Ask, result: Result) -> None:
        """The write was executed; may crash the store's process."""

    def replied(self, store: SimStore, ask: Ask) -> None:
        """The reply was delivered to the client."""

    def torn(self, count: int) -> int:
        """How many of `count` reads of one request are answered now (at least one)."""

    def reconnect_delay_ms(self) -> int:
        """How long a client looks for another server, in ms."""
