"""How results are printed: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from zkcoord.logs import emit, json_log, plain

CUT_TO = 12
"""A column of text is not cut below so many characters."""


def cell(value: Any) -> str:
    """Format a table's cell: `-` for an unknown value. Nothing in it can break the line or steer the terminal.

    >>> cell(None), cell(7), cell("a\\x1b[2J")
    ('-', '7', 'a\\\\x1b[2J')
    """
    text = "-" if value is None or value == "" else str(value)
    return text if text.isprintable() else printable(text)


def printable(text: str) -> str:
    """Escape everything in the text that is no printable character."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], right: Collection[str] = (), width: int | None = None
) -> str:
    """Columns as wide as their widest cell, left-aligned, as kafka-consumer-groups prints them; `right`: those that
    stand at the right.

    `width`: the most that a line may take (default: the terminal's, if standard output is one). Text is cut in its
    middle for that, numbers never.

    >>> print(table(["TOPIC", "LAG"], [["clicks", 7], ["a", None]], right=["LAG"]))
    TOPIC   LAG
    clicks    7
    a         -
    >>> print(table(["CONSUMER-ID", "LAG"], [["etl_host-1795229172529-931c1cca", 7]], width=24))
    CONSUMER-ID          LAG
    etl_host-…-931c1cca  7
    """
    lines = [list(header), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    numbers = {column for column, name in enumerate(header) if name in right}
    room = _terminal_columns() if width is None else width
    if room is not None:
        widths = _fitted(widths, [len(name) for name in header], numbers, room)
    return "\n".join(
        "  ".join(
            _cut(text, size).rjust(size) if column in numbers else _cut(text, size).ljust(size)
            for column, (text, size) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _terminal_columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(widths: Sequence[int], least: Sequence[int], fixed: Collection[int], room: int) -> list[int]:
    """Take from the widest columns that may be cut until a line fits, but not below `least` nor CUT_TO."""
    found = list(widths)
    floors = [max(least[n], CUT_TO) for n in range(len(found))]
    excess = sum(found) + 2 * (len(found) - 1) - room
    while excess > 0:
        cuttable = [n for n in range(len(found)) if n not in fixed and found[n] > floors[n]]
        if not cuttable:
            break
        widest = max(cuttable, key=lambda n: found[n])
        found[widest] -= 1
        excess -= 1
    return found


def _cut(text: str, size: int) -> str:
    """The text in so many characters: what is left out of its middle is told by an ellipsis.

    >>> _cut("abcdefgh", 5), _cut("abc", 5)
    ('ab…gh', 'abc')
    """
    if len(text) <= size:
        return text
    end = (size - 1) // 2
    return f"{text[: size - 1 - end]}…{text[len(text) - end :]}"


def print_json(document: Mapping[str, Any]) -> None:
    """One object, one line."""
    click.echo(_json(document))


def print_json_list(documents: Iterable[Mapping[str, Any]]) -> None:
    """One list, one line."""
    click.echo(f"[{','.join(map(_json, documents))}]")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(plain(document), separators=(",", ":"))


def warn(text: str) -> None:
    """A line on standard error about something that does not end the command."""
    say("warning", text)


def say(kind: str, text: str, **fields: Any) -> None:
    """`kind: text` on standard error; with a log in JSON the event `kind` with the text and these fields.

    Further lines of the text stand indented below the first.
    """
    if json_log():
        emit(kind, level=kind, message=text, **fields)
        return
    lines = [printable(line.expandtabs()).rstrip() for line in text.strip().splitlines()]
    click.echo("\n  ".join([f"{kind}: {lines[0] if lines else ''}", *lines[1:]]), err=True)
