"""Garbage collection is off while a world is played. A world has many small objects that live as long as the world
does, so looking through them finds nothing.

The collector took a sixth of a storm's time, most of it long after the storm's objects had left the processor's caches.
So it runs only between two worlds, and only if there is enough garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 5_000
"""As many as a storm leaves. Fewer wait for the next."""


def collect_never() -> None:
    """Turn the collector off in this process. Objects that exist now are never collected."""
    gc.freeze()
    gc.disable()


def collect_between() -> None:
    """Called after a world, or a few small ones: collect their objects. The objects that remain are not looked through
    again."""
    if gc.get_count()[0] > OBJECTS:
        gc.collect()
        gc.freeze()


@contextmanager
def collected_between() -> Iterator[None]:
    """Turn the collector off for a while; the caller decides when to collect (`collect_between`)."""
    enabled = gc.isenabled()
    collect_never()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
