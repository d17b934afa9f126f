"""The entry to this package. Imports Prometheus' client library only if metrics are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkcoord.errors import UsageError
from zkcoord.metrics.address import parse_address
from zkcoord.metrics.measurement import Measurement

if TYPE_CHECKING:
    from zkcoord.metrics.endpoint import Endpoint


def coordinator_metrics(address: str | None) -> Measurement:
    """Return the measurement of a coordinator's loop. UsageError as `endpoint_at` raises it."""
    if address is None:
        return Measurement()
    endpoint = endpoint_at(address)
    from zkcoord.metrics.programs import MeasuredCoordinator

    return MeasuredCoordinator(endpoint)


def consumer_metrics(address: str | None, group: str) -> Measurement:
    """Return the measurement of a consumer's loop. UsageError as `endpoint_at` raises it."""
    if address is None:
        return Measurement()
    endpoint = endpoint_at(address)
    from zkcoord.metrics.programs import MeasuredConsumer

    return MeasuredConsumer(endpoint, group)


def endpoint_at(address: str) -> Endpoint:
    """Return the process's endpoint for this address. UsageError for an invalid address, and without Prometheus' client
    library."""
    parse_address(address)
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise UsageError("metrics need an extra package: pip install 'zkcoord[metrics]'") from error
    from zkcoord.metrics.endpoint import Endpoint

    return Endpoint.at(address)
