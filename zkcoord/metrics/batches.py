"""The metrics of a Spark consumer's batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from zkcoord.metrics import names
from zkcoord.metrics.names import Sample
from zkcoord.metrics.start import endpoint_at


class Sums(Protocol):
    """Sums over a consumer's batches; times in milliseconds."""

    @property
    def batches(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def offsets(self) -> int: ...
    @property
    def drain_ms(self) -> int: ...
    @property
    def plan_ms(self) -> int: ...
    @property
    def process_ms(self) -> int: ...
    @property
    def commit_ms(self) -> int: ...
    @property
    def acknowledge_ms(self) -> int: ...


@contextmanager
def batch_metrics(address: str | None, group: str, sums: Callable[[], Sums]) -> Iterator[None]:
    """Show these sums at the endpoint of `address` while the block runs. Do nothing if `address` is None."""
    if address is None:
        yield
        return
    sources = endpoint_at(address).looked_up.sources

    def samples() -> Iterator[Sample]:
        now = sums()
        yield names.BATCHES, (group, "committed"), now.batches
        yield names.BATCHES, (group, "lost"), now.lost
        yield names.OFFSETS, (group,), now.offsets
        for part in ("drain", "plan", "process", "commit", "acknowledge"):
            yield names.BATCH_TIME, (group, part), getattr(now, f"{part}_ms") / 1000

    sources.append(samples)
    try:
        yield
    finally:
        sources.remove(samples)
