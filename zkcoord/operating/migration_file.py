"""The TOML files of `offsets migrate --from` and `migrate move --from`, with a table [groups.NAME] for each group.

Both files have the key `wave`. The file of `offsets migrate` has also `to`, the group's store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zkcoord.core.given import shown
from zkcoord.core.offset_store import STORES
from zkcoord.errors import UsageError
from zkcoord.operating.wave_file import WAVE, Table, no_group, read_tables, wave_of, wrong_wave

TO = "to"


def read_goals(name: str, waves: Collection[int], goal: str | None) -> list[dict[str, str]]:
    """Return group -> store for each wave, in order of the waves. `waves`: only these; empty: all. `goal`: the store
    for groups without `to`.

    UsageError names each group whose table is wrong.
    """
    found = _waves(name, waves, (TO, WAVE), lambda table: _wrong_store(table.get(TO, goal)))
    return [{group: str(table.get(TO, goal)) for group, table in wave.items()} for wave in found]


def read_moves(name: str, waves: Collection[int]) -> list[str]:
    """Return the groups, wave by wave. `waves`: only these; empty: all. UsageError names each group whose table is
    wrong."""
    return [group for wave in _waves(name, waves, (WAVE,), lambda _: "") for group in wave]


def _waves(
    name: str, waves: Collection[int], keys: Collection[str], complaint: Callable[[Table], str]
) -> list[dict[str, Table]]:
    """Return group -> table for each wave. UsageError says what is wrong with each table."""
    _, tables = read_tables(name, f"write one for each group, with {' and '.join(keys)}")
    wrong: list[str] = []
    found: dict[int, dict[str, Table]] = {}
    for group, table in tables.items():
        unknown = sorted(table.keys() - keys)
        why = f"{shown(unknown[0])} is no key: choose from {', '.join(keys)}" if unknown else ""
        if why := why or wrong_wave(table) or complaint(table):
            wrong.append(f"group {shown(group)}: {why}")
        elif not waves or wave_of(table) in waves:
            found.setdefault(wave_of(table), {})[group] = table
    if wrong:
        raise UsageError(f"--from {name}: nothing was moved:\n" + "\n".join(wrong))
    if not found:
        raise no_group(name, waves)
    return [found[wave] for wave in sorted(found)]


def _wrong_store(store: object) -> str:
    if store is None:
        return f"{TO} is missing, or give --to"
    return "" if store in STORES else f"{TO} is {shown(store)}, allowed is {' or '.join(STORES)}"
