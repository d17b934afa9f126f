"""A frozen value with some fields changed, of classes with many: a step of a coordinator makes several such values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_replace(value: T, /, **changes: Any) -> T:
    """`dataclasses.replace` of a class with slots and no `__post_init__`, in a third of its time.

    >>> from zkcoord.core.view import Channel
    >>> fast_replace(Channel(consumer_id="c", version=1), version=2) == Channel(consumer_id="c", version=2)
    True
    """
    kind: type[Any] = type(value)
    new: T = object.__new__(kind)
    for take, put in _SLOTS.get(kind) or _slots(kind):
        put(new, take(value))
    for name, now in changes.items():
        object.__setattr__(new, name, now)
    return new


Slots = tuple[tuple[Callable[[Any], Any], Callable[[Any, Any], None]], ...]
_SLOTS: dict[type[Any], Slots] = {}


def _slots(kind: type[Any]) -> Slots:
    """How to read and write each field."""
    slots = [getattr(kind, each.name) for each in fields(kind)]
    _SLOTS[kind] = found = tuple((slot.__get__, slot.__set__) for slot in slots)
    return found
