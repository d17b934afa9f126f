"""Prints results: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from zkcoord.cli.columns import fit
from zkcoord.cli.options import Settings
from zkcoord.core.words import shortened
from zkcoord.logs import plain
from zkcoord.operating.saying import Tone, say, toned
from zkcoord.operating.words import cell

MORE = "--output json has all"
_in_lines = partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False)


class Drawn(NamedTuple):
    """A table's lines, the header first, and the columns that did not fit."""

    lines: list[str]
    left_out: Sequence[str]


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Collection[str] = (),
    width: int | None = None,
    tones: Sequence[Tone | None] = (),
) -> str:
    """Return a table with columns as wide as their widest cell, like that of kafka-consumer-groups. Columns are aligned
    left, those in `right` are aligned right.

    `width`: the longest line (default: the terminal's width, if standard output is a terminal). To fit, text is cut in
    its middle, and numbers are never cut. A column that does not fit is named below the table. `tones`: the tones of
    the rows.

    >>> print(table(["TOPIC", "LAG"], [["clicks", 7], ["a", None]], right=["LAG"]))
    TOPIC   LAG
    clicks    7
    a         -
    >>> print(table(["CONSUMER-ID", "LAG"], [["etl_host-1795229172529-931c1cca", 7]], width=24))
    CONSUMER-ID          LAG
    etl_host-…-931c1cca  7
    """
    width = _terminal_width() if width is None else width
    lines, left_out = drawn(header, rows, right, width)
    if tones:
        lines[1:] = [toned(line, tone) for line, tone in zip(lines[1:], tones, strict=True)]
    if left_out and width is not None:
        lines += _in_lines(f"left out: {', '.join(left_out)}; {MORE}", width)
    return "\n".join(lines)


def _terminal_width() -> int | None:
    """Return the terminal's width; None if standard output is not a terminal, so that lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, hang: int = 0, tone: Tone | None = None) -> str:
    """Wrap a line for people to the terminal's width. Each line after the first is indented by `hang` spaces."""
    width = _terminal_width()
    if width is None:
        return toned(cell(text), tone)
    lines = _in_lines(cell(text), width, subsequent_indent=" " * hang)
    return "\n".join(toned(line, tone) for line in lines)


def drawn(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Collection[str] = (),
    width: int | None = None,
    names: Sequence[str] | None = None,
) -> Drawn:
    """Return the lines of a table in this width. `names`: the bare names of the columns, if the header adds something
    to them."""
    names = header if names is None else names
    lines = [list(header), *([cell(value) for value in row] for row in rows)]
    kept, widths = fit(names, lines, right, width)
    numbers = {column for column, name in enumerate(names) if name in right}
    found = []
    for line in lines:
        cells = [(column, shortened(line[column], size), size) for column, size in zip(kept, widths, strict=True)]
        found.append("  ".join(t.rjust(size) if n in numbers else t.ljust(size) for n, t, size in cells).rstrip())
    return Drawn(found, [name for column, name in enumerate(names) if column not in kept])


def print_json(document: Mapping[str, Any]) -> None:
    """Print one object on one line."""
    click.echo(_json(document))


def tell(settings: Settings, document: Mapping[str, Any], text: str) -> None:
    """Print one result: the document for programs, or the text for people."""
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
    """Print the documents for programs, one a line, or the rows for people. `nothing`: printed instead of an empty
    table."""
    if settings.json:
        for document in documents:
            print_json(document)
    elif rows or nothing is None:
        click.echo(table(header, rows, right, tones=tones))
    elif nothing:
        say("notice", nothing)


def print_json_list(documents: Iterable[Mapping[str, Any]]) -> None:
    """Print one list on one line."""
    click.echo(f"[{','.join(map(_json, documents))}]")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(plain(document), separators=(",", ":"))
