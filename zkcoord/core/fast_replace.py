"""A frozen value with some fields changed, of classes with many: a step of a coordinator makes several such values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_replace(value: T, /, **changes: Any) -> T:
    """`dataclasses.replace` of a class with slots and no `__post_init__`, in an eighth of its time.

    >>> from zkcoord.core.view import Channel
    >>> fast_replace(Channel(consumer_id="c", version=1), version=2) == Channel(consumer_id="c", version=2)
    True
    """
    kind: type[Any] = type(value)
    copy = _COPIES.get(kind)
    if copy is None:
        copy = _COPIES[kind] = _copier(kind)
    new: T = copy(value)
    for name, now in changes.items():
        _set(new, name, now)
    return new


_set = object.__setattr__
_COPIES: dict[type[Any], Callable[[Any], Any]] = {}


def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    """A function that copies a value field by field, without a loop, as `dataclasses` makes `__init__`."""
    names = [each.name for each in fields(kind)]
    known: dict[str, Any] = {f"put_{name}": getattr(kind, name).__set__ for name in names}
    known |= {"make": object.__new__, "kind": kind}
    lines = ["def copy(value):", " new = make(kind)", *(f" put_{n}(new, value.{n})" for n in names), " return new"]
    exec("\n".join(lines), known)
    copy: Callable[[Any], Any] = known["copy"]
    return copy
