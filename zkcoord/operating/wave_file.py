"""The common parts of the files of `--from`: TOML, with a table [groups.NAME] for each group, which may name its
wave."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from zkcoord.core.given import shown
from zkcoord.errors import UsageError

WAVE = "wave"
"""The key of a group's wave; 1 if it is not given."""

Table = dict[str, Any]


def read_tables(name: str, hint: str) -> tuple[str, dict[str, Table]]:
    """Return the file's text, and its tables by group. Raise UsageError if it is no such file. `hint`: how to make the
    tables."""
    try:
        text = Path(name).read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise UsageError(
            f"--from {name}: it cannot be read ({error.strerror or error}); name a file that can be read"
        ) from None
    except (ValueError, RecursionError) as error:  # also a number that is too long, and lists in too many lists
        raise UsageError(f"--from {name}: it is no TOML: {error}; whoever wrote the file must mend it") from None
    tables = found.get("groups")
    others = sorted(found.keys() - {"groups"})
    if others:
        raise UsageError(
            f"--from {name}: {shown(others[0])} is no part of such a file: a group's table is [groups.NAME]"
        )
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"--from {name}: there is no table [groups.NAME]; {hint}")
    return text, tables


def wave_of(table: Table) -> int:
    """Return the group's wave."""
    wave: int = table.get(WAVE, 1)
    return wave


def wrong_wave(table: Table) -> str:
    """Say what is wrong with the group's wave; "" if nothing is."""
    wave = table.get(WAVE, 1)
    if not isinstance(wave, int) or isinstance(wave, bool) or wave < 1:
        return f"{WAVE} is {shown(wave)}, allowed is an integer from 1"
    return ""


def refuse_waves_alone(waves: Collection[int], file: str | None) -> None:
    """Raise UsageError for `--wave` without `--from`."""
    if waves and file is None:
        raise UsageError("--wave chooses among the groups of a file: give --from, too")


def no_group(name: str, waves: Collection[int]) -> UsageError:
    """Return the error for a file without a group of these waves."""
    return UsageError(f"--from {name}: it has no group of wave {' or '.join(map(str, sorted(waves)))}")
