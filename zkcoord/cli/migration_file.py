"""The file of `zkcoord offsets migrate --from`: TOML, a table [groups.NAME] for each group, with `to` and `wave`."""

from __future__ import annotations

from collections.abc import Collection

from zkcoord.cli.wave_file import WAVE, Table, no_group, read_tables, wave_of, wrong_wave
from zkcoord.core.record import STORES
from zkcoord.errors import UsageError
from zkcoord.tree.codec import shown

TO = "to"


def read_goals(name: str, waves: Collection[int], goal: str | None) -> list[dict[str, str]]:
    """Return the waves in their order (only `waves`, if there are any): group -> store. `goal`: of groups without `to`.

    UsageError names each group whose table is wrong.
    """
    _, tables = read_tables(name, "write one for each group, with to and wave")
    wrong = [f"group {shown(group)}: {why}" for group, table in tables.items() if (why := _complaint(table, goal))]
    if wrong:
        raise UsageError(f"--from {name}: nothing was moved:\n" + "\n".join(wrong))
    found: dict[int, dict[str, str]] = {}
    for group, table in tables.items():
        wave = wave_of(table)
        if not waves or wave in waves:
            found.setdefault(wave, {})[group] = str(table.get(TO, goal))
    if not found:
        raise no_group(name, waves)
    return [found[wave] for wave in sorted(found)]


def _complaint(table: Table, goal: str | None) -> str:
    unknown = sorted(table.keys() - {TO, WAVE})
    if unknown:
        return f"{shown(unknown[0])} is no key: choose from {TO}, {WAVE}"
    if wrong := wrong_wave(table):
        return wrong
    store = table.get(TO, goal)
    if store is None:
        return f"{TO} is missing, or give --to"
    return "" if store in STORES else f"{TO} is {shown(store)}, allowed is {' or '.join(STORES)}"
