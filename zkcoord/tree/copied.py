"""Maps that a fold changes: each is copied once, at its first change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def own(copy: dict[K, V] | None, known: Mapping[K, V]) -> dict[K, V]:
    """Return the copy of the known map that may be changed; make it if there is none yet.

    >>> known, copy = {"a": 1}, None
    >>> copy = own(copy, known)
    >>> copy["b"] = 2
    >>> known, own(copy, known)
    ({'a': 1}, {'a': 1, 'b': 2})
    """
    return dict(known) if copy is None else copy


def now(copy: Mapping[K, V] | None, known: Mapping[K, V]) -> Mapping[K, V]:
    """Return the map with its changes: the known one while there are none.

    >>> now(None, {"a": 1}), now({}, {"a": 1})
    ({'a': 1}, {})
    """
    return known if copy is None else copy
