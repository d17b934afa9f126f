"""How results are printed: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from zkcoord.logs import emit, json_log, plain


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


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell, left-aligned, as kafka-consumer-groups prints them.

    >>> print(table(["TOPIC", "LAG"], [["clicks", 7], ["a", None]]))
    TOPIC   LAG
    clicks  7
    a       -
    """
    lines = [list(header), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


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
