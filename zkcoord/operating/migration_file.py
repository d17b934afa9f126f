"""The files of `offsets migrate --from` and `migrate move --from`: TOML, a table [groups.NAME] for each group.

Both have `wave`; that of `offsets migrate` has `to` besides, the group's store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zkcoord.core.given import shown
from zkcoord.core.record import STORES
from zkcoord.errors import UsageError
from zkcoord.operating.wave_file import WAVE, Table, no_group, read_tables, wave_of, wrong_wave

TO = "to"


def read_goals(name: str, waves: Collection[int], goal: str | None) -> list[dict[str, str]]:
    """Return the waves in their order (only `waves`, if there are any): group -> store. `goal`: of groups without `to`.

    UsageError names each group whose table is wrong.
    """
    found = _waves(name, waves, (TO, WAVE), lambda table: _wrong_store(table.get(TO, goal)))
    return [{group: str(table.get(TO, goal)) for group, table in wave.items()} for wave in found]


def read_moves(name: str, waves: Collection[int]) -> list[str]:
    """Return the groups wave by wave (only those of `waves`, if there are any). UsageError as above."""
    return [group for wave in _waves(name, waves, (WAVE,), lambda _: "") for group in wave]


def _waves(
    name: str, waves: Collection[int], keys: Collection[str], complaint: Callable[[Table], str]
) -> list[dict[str, Table]]:
    """Return the tables by group, wave by wave; UsageError with what is wrong with any of them."""
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
