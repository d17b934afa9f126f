"""The measurement around one loop, for a program that was not asked for metrics: it measures nothing."""

from __future__ import annotations

from typing import Any

from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Pages
from zkcoord.shell.ports import Callbacks, StoreFactory
from zkcoord.shell.role import Events


class Measurement:
    """Leaves everything as it is; the ones that measure derive from it."""

    def driver(
        self,
        sessions: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
        *,
        tells: bool = False,
    ) -> Driver:
        """Make the loop's driver (its arguments); its `events` are counted, its requests and steps measured."""
        return Driver(sessions, name, events, journal, calls, tells=tells)

    def follow(self, role: Any) -> None:
        """Read the metrics of this role, which the loop runs, at each request."""

    def begin(self) -> None:
        """Show the program, which begins. UsageError when nobody can listen at the address."""

    @property
    def port(self) -> int | None:
        """Where it is shown; None before `begin`."""
        return None

    def end(self) -> None:
        """Show the program no more: it has ended. Idempotent."""
