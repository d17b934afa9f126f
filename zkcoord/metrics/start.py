"""The door to this package: imports Prometheus' client library only for who asked for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from zkcoord.errors import UsageError
from zkcoord.metrics.address import parse_address
from zkcoord.shell.driver import Driver
from zkcoord.shell.journal.recorder import Pages
from zkcoord.shell.loop import Events
from zkcoord.shell.ports import Callbacks, StoreFactory

if TYPE_CHECKING:
    from zkcoord.metrics.endpoint import Endpoint


class Measurement(Protocol):
    """What is put around one loop."""

    def driver(
        self,
        sessions: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
    ) -> Driver:
        """Make the loop's driver; its `events` are counted, its requests and steps measured."""

    def follow(self, role: Any) -> None:
        """Look this role of the loop up whenever somebody asks."""

    def begin(self) -> None:
        """The program begins: show it. UsageError when nobody can listen at the address."""

    def end(self) -> None:
        """The program has ended. Idempotent."""


class NotMeasured:
    """Nobody asked for metrics: everything stays as it is."""

    def driver(
        self,
        sessions: StoreFactory,
        name: str,
        events: Events,
        journal: Pages | None = None,
        calls: Callbacks | None = None,
    ) -> Driver:
        """A driver as it is."""
        return Driver(sessions, name, events, journal, calls)

    def follow(self, role: Any) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def coordinator_metrics(address: str | None) -> Measurement:
    """Return what is put around a coordinator's loop. UsageError as of `endpoint_at`."""
    if address is None:
        return NotMeasured()
    endpoint = endpoint_at(address)
    from zkcoord.metrics.programs import MeasuredCoordinator

    return MeasuredCoordinator(endpoint)


def consumer_metrics(address: str | None, group: str) -> Measurement:
    """Return what is put around a consumer's loop. UsageError as of `endpoint_at`."""
    if address is None:
        return NotMeasured()
    endpoint = endpoint_at(address)
    from zkcoord.metrics.programs import MeasuredConsumer

    return MeasuredConsumer(endpoint, group)


def endpoint_at(address: str) -> Endpoint:
    """Return the process's endpoint of this address. UsageError for an impossible one, and without the library."""
    parse_address(address)
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise UsageError("metrics need an extra package: pip install 'zkcoord[metrics]'") from error
    from zkcoord.metrics.endpoint import Endpoint

    return Endpoint.at(address)
