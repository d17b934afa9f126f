"""The TOML file that `zkcoord inventory --write` makes and people complete. It has a table for each group."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from zkcoord.core.adoption import Adoption
from zkcoord.core.given import shown
from zkcoord.errors import CorruptError, UsageError
from zkcoord.operating.wave_file import WAVE, no_group, read_tables, wave_of, wrong_wave
from zkcoord.tree.adoption import KEYS, read_adoption
from zkcoord.tree.codec import Document, corrupt

UNTOLD = "?"
"""Stands in the file for a value that somebody must fill in."""

VERSIONS = ("kafka", "broker")
"""Keys whose values look like numbers without their quotes. As a number, 0.10 would be 0.1."""

_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""")


class Told(NamedTuple):
    """What the file says about one group."""

    adoption: Adoption
    wave: int


def read_adoptions(name: str, waves: Collection[int]) -> dict[str, Told]:
    """Return the groups of `waves` in the file's order; empty `waves`: all groups. UsageError names the line and the
    key of each value that is wrong."""
    text, tables = read_tables(name, "`zkcoord inventory --write FILE` makes them")
    lines = _lines(text)
    found, wrong = dict[str, Told](), list[str]()
    for group, table in tables.items():
        told = {key: value for key, value in table.items() if key != WAVE}
        complaints: dict[str, str] = {}  # key -> what is wrong with its value
        if wrong_one := wrong_wave(table):
            complaints[WAVE] = wrong_one
        elif not waves or wave_of(table) in waves:
            complaints = _complaints(told)
            if not complaints:
                found[group] = Told(adoption_of(told), wave_of(table))
        table_line = lines.get((group, ""), "?")
        wrong += [f"line {lines.get((group, k), table_line)}: group {shown(group)}: {c}" for k, c in complaints.items()]
    if wrong:
        raise UsageError(f"--from {name}: nothing was adopted:\n" + "\n".join(wrong))
    if not found:
        raise no_group(name, waves)
    return found


def _complaints(told: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with a group's table, by key."""
    wrong: dict[str, str] = {}
    for key, value in told.items():
        if key not in KEYS:
            wrong[key] = f"{shown(key)} is no key: choose from {', '.join((*KEYS, WAVE))}"
        elif key in VERSIONS and not isinstance(value, str):
            wrong[key] = f'{key} is {shown(value)}, a number: write the version in quotes, as in "0.10"'
        elif value == UNTOLD:
            wrong[key] = f"{key} is still {UNTOLD!r}: somebody who knows the group's configuration must fill it in"
    if not wrong:
        try:
            adoption_of(told)
        except UsageError as error:
            wrong[str(error).partition(" ")[0]] = str(error)
    return wrong


def adoption_of(told: Mapping[str, Any]) -> Adoption:
    """Return the adoption that the file tells. The message of UsageError begins with the key that is wrong."""
    try:
        adoption = read_adoption(Document(what="", data=b"", fields=told))
    except CorruptError as error:
        raise UsageError(str(error).removeprefix(str(corrupt("", b"", "")))) from None
    if adoption is None:
        raise UsageError("offsets is missing: tell what the group's old members are configured with")
    return adoption


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Return (group, key) -> the number of the key's line, from 1. (group, "") -> the line of the group's table."""
    found: dict[tuple[str, str], int] = {}
    group = None
    for number, line in enumerate(text.splitlines(), 1):
        header = _header(line) if line.lstrip().startswith("[") else None
        if header is not None:
            group = header
            found[group, ""] = number
        elif group is not None and (key := _KEY.match(line)) is not None:
            found[group, key[1]] = number
    return found


def _header(line: str) -> str | None:
    """Return the group whose table begins on this line; None if no table begins there."""
    try:
        tables = tomllib.loads(line).get("groups")
    except tomllib.TOMLDecodeError:
        return None
    return next(iter(tables), None) if isinstance(tables, dict) else None
