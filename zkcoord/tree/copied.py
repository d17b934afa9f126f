"""Mappings that a fold changes. Each is copied once, at its first change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def own(copy: dict[K, V] | None, known: Mapping[K, V]) -> dict[K, V]:
    """Return the copy of the known mapping, which may be changed. Make the copy if there is none yet.

    >>> known, copy = {"a": 1}, None
    >>> copy = own(copy, known)
    >>> copy["b"] = 2
    >>> known, own(copy, known)
    ({'a': 1}, {'a': 1, 'b': 2})
    """
    return dict(known) if copy is None else copy


def now(copy: Mapping[K, V] | None, known: Mapping[K, V]) -> Mapping[K, V]:
    """Return the mapping with its changes; the known one if there are none.

    >>> now(None, {"a": 1}), now({}, {"a": 1})
    ({'a': 1}, {})
    """
    return known if copy is None else copy
