"""What is put around one loop. As it stands here it measures nothing: nobody asked for metrics."""

from __future__ import annotations

from typing import Any

from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Pages
from zkcoord.shell.loop import Events
from zkcoord.shell.ports import Callbacks, StoreFactory


class Measurement:
    """Leaves everything as it is; the ones that measure derive from it."""

    def driver(
        self,
        sessions: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
    ) -> Driver:
        """Make the loop's driver; its `events` are counted, its requests and steps measured."""
        return Driver(sessions, name, events, journal, calls)

    def follow(self, role: Any) -> None:
        """Look this role of the loop up whenever somebody asks."""

    def begin(self) -> None:
        """The program begins: show it. UsageError when nobody can listen at the address."""

    def end(self) -> None:
        """The program has ended. Idempotent."""
