"""How results are printed: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from zkcoord.cli.options import Settings
from zkcoord.logs import plain
from zkcoord.operating.saying import Tone, say, toned
from zkcoord.operating.words import cell

CUT_TO = 12
"""A column of text is not cut below so many characters."""


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Collection[str] = (),
    width: int | None = None,
    tones: Sequence[Tone | None] = (),
) -> str:
    """Columns as wide as their widest cell, left-aligned, as kafka-consumer-groups prints them; `right`: those that
    stand at the right.

    `width`: the most that a line may take (default: the terminal's, if standard output is one). Text is cut in its
    middle for that, numbers never. `tones`: of the rows.

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
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    if width is not None:
        widths = _fitted(widths, [len(name) for name in header], numbers, width)
    drawn = [
        "  ".join(
            _cut(text, size).rjust(size) if column in numbers else _cut(text, size).ljust(size)
            for column, (text, size) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    if tones:
        drawn[1:] = [toned(line, tone) for line, tone in zip(drawn[1:], tones, strict=True)]
    return "\n".join(drawn)


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


def tell(settings: Settings, document: Mapping[str, Any], text: str) -> None:
    """One result: the document for programs, the text for people."""
    if settings.json:
        print_json(document)
    else:
        click.echo(text)


def show(
    settings: Settings,
    documents: Iterable[Mapping[str, Any]],
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Collection[str] = (),
    *,
    tones: Sequence[Tone | None] = (),
    nothing: str | None = None,
) -> None:
    """The documents for programs, a line each, or the rows for people. `nothing`: said in place of an empty table."""
    if settings.json:
        for document in documents:
            print_json(document)
    elif rows or nothing is None:
        click.echo(table(header, rows, right, tones=tones))
    elif nothing:
        say("notice", nothing)


def print_json_list(documents: Iterable[Mapping[str, Any]]) -> None:
    """One list, one line."""
    click.echo(f"[{','.join(map(_json, documents))}]")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(plain(document), separators=(",", ":"))
