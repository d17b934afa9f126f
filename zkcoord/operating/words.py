"""How values are written in a line: printable, with a date."""

from __future__ import annotations

import time
from typing import Any


def cell(value: Any) -> str:
    """Format a table's cell: `-` for an unknown value. No character in it can break the line or control the terminal.

    >>> cell(None), cell(7), cell("a\\x1b[2J")
    ('-', '7', 'a\\\\x1b[2J')
    """
    text = "-" if value is None or value == "" else str(value)
    return text if text.isprintable() else printable(text)


def printable(text: str) -> str:
    """Escape every character of the text that is not printable."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def at(wall_ms: int) -> str:
    """Format a moment of the wall clock in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_ms / 1000))
