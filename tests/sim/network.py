"""What a simulated session asks of the process that it belongs to, and of the world."""

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
    """What a store knows of the process it belongs to."""

    name: str
    client: str  # name and incarnation
    paused: bool
    cut: bool


class Network(Protocol):
    """What a store needs of the world."""

    rng: Random
    ensemble: Ensemble
    busy: dict[SimStore, None]  # stores in which something waits; some in which nothing does any more

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Call `action` when virtual time has come to `time_ms`."""

    def trace(self, *words: Any) -> None:
        """Add a line to the trace."""

    def before_write(self, store: SimStore, transaction: Transaction) -> str:
        """RUN, LOSE_REQUEST or LOSE_REPLY; may crash the store's process."""

    def after_write(self, store: SimStore, ask: Ask, result: Result) -> None:
        """The write was executed; may crash the store's process."""

    def replied(self, store: SimStore, ask: Ask) -> None:
        """The reply was delivered to the client."""

    def torn(self, count: int) -> int:
        """How many of `count` reads of one request are answered now (at least one)."""

    def reconnect_delay_ms(self) -> int:
        """How long a client looks for another server."""
