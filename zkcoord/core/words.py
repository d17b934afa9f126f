"""Texts that tell numbers of things."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "command"), count(2, "command")
    ('1 command', '2 commands')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def some(things: Collection[object], most: int = 5) -> str:
    """Name the first things, and say how many more there are.

    >>> some("ab"), some("abcde", 3)
    ('a, b', 'a, b, c and 2 more')
    """
    more = len(things) - most
    return ", ".join(map(str, islice(things, most))) + (f" and {more} more" if more > 0 else "")


def shortened(text: str, most: int) -> str:
    """The text in `most` characters. An ellipsis stands for the part that is left out of its middle.

    >>> shortened("abcdefgh", 5), shortened("abc", 5)
    ('ab…gh', 'abc')
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
