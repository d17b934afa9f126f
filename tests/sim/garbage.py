"""A world is made of many small objects that live as long as it does: looking through them for garbage is in vain.

It took a sixth of a storm's time, most of it long after their end, when nothing of them is in the processor's caches
any more. So nobody looks while a world is played; between two of them, when there is something to be found.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 5_000
"""As many as a storm leaves. Fewer wait for the next."""


def collect_never() -> None:
    """From now on, in this process; what it has made so far stays."""
    gc.freeze()
    gc.disable()


def collect_between() -> None:
    """A world has been played, or a few small ones: it goes. What stays is not looked through again."""
    if gc.get_count()[0] > OBJECTS:
        gc.collect()
        gc.freeze()


@contextmanager
def collected_between() -> Iterator[None]:
    """`collect_never` for a while; who is in it says where something ends."""
    enabled = gc.isenabled()
    collect_never()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
