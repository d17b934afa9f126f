"""A world is made of many small objects that live as long as it does: looking through them for garbage is in vain.

It took a fifth of a storm's time. What is dead by the end of a world is found when a few worlds have been played.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 200_000
"""So many more than went are made before the young ones are looked through: a storm leaves some ten thousand."""


def collect_seldom() -> None:
    """From now on, in this process; what it has made so far stays."""
    gc.freeze()
    gc.set_threshold(OBJECTS, 5, 5)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """`collect_seldom` for a while."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
