"""The file of `zkcoord offsets migrate --from`: TOML, a table [groups.NAME] for each group, with `to` and `wave`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from zkcoord.cli.adoption_file import WAVE
from zkcoord.core.record import STORES
from zkcoord.errors import UsageError
from zkcoord.tree.codec import shown

TO = "to"


def read_goals(name: str, waves: Collection[int], goal: str | None) -> list[dict[str, str]]:
    """Return the waves in their order (only `waves`, if there are any): group -> store. `goal`: of groups without `to`.

    UsageError names each group whose table is wrong.
    """
    try:
        tables = tomllib.loads(Path(name).read_text(encoding="utf-8")).get("groups")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--from {name}: {error}") from None
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"--from {name}: there is no table [groups.NAME]; write one for each group, with to and wave")
    wrong = [f"group {shown(group)}: {why}" for group, table in tables.items() if (why := _complaint(table, goal))]
    if wrong:
        raise UsageError(f"--from {name}: nothing was moved:\n" + "\n".join(wrong))
    found: dict[int, dict[str, str]] = {}
    for group, table in tables.items():
        wave = table.get(WAVE, 1)
        if not waves or wave in waves:
            found.setdefault(wave, {})[group] = table.get(TO, goal)
    if not found:
        raise UsageError(f"--from {name}: it has no group of wave {' or '.join(map(str, sorted(waves)))}")
    return [found[wave] for wave in sorted(found)]


def _complaint(table: dict[str, Any], goal: str | None) -> str:
    unknown = sorted(table.keys() - {TO, WAVE})
    if unknown:
        return f"{shown(unknown[0])} is no key: choose from {TO}, {WAVE}"
    wave = table.get(WAVE, 1)
    if not isinstance(wave, int) or isinstance(wave, bool) or wave < 1:
        return f"{WAVE} is {shown(wave)}, allowed is an integer from 1"
    store = table.get(TO, goal)
    if store is None:
        return f"{TO} is missing, or give --to"
    return "" if store in STORES else f"{TO} is {shown(store)}, allowed is {' or '.join(STORES)}"
