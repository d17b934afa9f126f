"""The measurement of one loop in a program without metrics: it measures nothing."""

from __future__ import annotations

from typing import Any

from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Pages
from zkcoord.shell.ports import Callbacks, StoreFactory
from zkcoord.shell.role import Events


class Measurement:
    """Measures nothing, and changes nothing. Classes that measure derive from it: their contract stands here."""

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
        """Make the loop's driver with these arguments. Its `events` are counted; its requests and steps are
        measured."""
        return Driver(sessions, name, events, journal, calls, tells=tells)

    def follow(self, role: Any) -> None:
        """Read the metrics of this role at each request. The loop runs the role."""

    def begin(self) -> None:
        """Show the program at the endpoint, since it begins. UsageError if its address cannot be listened on."""

    @property
    def port(self) -> int | None:
        """The endpoint's port; None before `begin`."""
        return None

    def end(self) -> None:
        """Remove the program from the endpoint, since it has ended. Idempotent."""
