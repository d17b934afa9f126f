"""Replaces fields of a frozen value quickly. It is for classes with many fields, of which a coordinator makes several
values in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["fast_replace"]

if TYPE_CHECKING:  # so that a type checker compares each change with its field
    from dataclasses import replace as fast_replace
else:
    T = TypeVar("T")

    def fast_replace(value: T, /, **changes: Any) -> T:
        """Do the same as `dataclasses.replace` in a fraction of the time, for a class without slots and
        `__post_init__`.

        >>> from zkcoord.core.view import Channel
        >>> fast_replace(Channel(consumer_id="c", version=1), version=2) == Channel(consumer_id="c", version=2)
        True
        """
        new = object.__new__(type(value))
        known = value.__dict__.copy()
        known.update(changes)
        object.__setattr__(new, "__dict__", known)  # filling the existing dict takes more than twice as long
        return new
