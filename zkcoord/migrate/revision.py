"""Revisions as values: finds the files `NNNN_name.py`, checks each, and checks that they form one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from zkcoord.errors import UsageError, invariant
from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

HEAD = "head"
PACKAGE = "zkcoord_migrations"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.py")

Change = Callable[[Mapping[str, Node], str], tuple[Write, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of the tree. Its file has these functions and values:

    `reads(layout name)`: the paths whose data it needs. `*` as a part of a path stands for every child
    (`/zkcoord/groups/*/state`). The snapshot has a Node for each path, also for a path that does not exist.
    `upgrade(snapshot, layout name)`: pure; returns the writes, each with the version that it was decided from. The run
    may be interrupted after any of them: for a tree that has only the first writes it returns the rest, and for a tree
    that has all of them ().
    `downgrade`: the same in the other direction.
    `serves_before`: a program at this revision serves trees at the revision before it, too.
    Only the engine writes the schema and the epoch; no revision does.
    """

    revision: str
    down_revision: str | None
    title: str  # the first line of its docstring: the line in the history
    reads: Callable[[str], tuple[str, ...]]
    upgrade: Change
    downgrade: Change
    serves_before: bool = False


def history(folder: Traversable | None = None) -> tuple[Revision, ...]:
    """Return all revisions of the installed package, or of `folder`, oldest first. InvariantError unless each follows
    the one before it."""
    return _installed() if folder is None else _load(folder)


def reach(revisions: Sequence[Revision], goal: str) -> int:
    """Return the index of the revision that `goal` names ("head": the newest); UsageError if there is no such
    revision."""
    names = [revision.revision for revision in revisions]
    if goal == HEAD:
        return len(names) - 1
    if goal not in names:
        raise UsageError(f"there is no revision {goal!r}: choose {HEAD} or one of {', '.join(names)}")
    return names.index(goal)


def served(revisions: Sequence[Revision] | None = None) -> tuple[str, ...]:
    """Return the revisions of trees that this program serves, oldest first: the newest that it knows, and earlier ones
    as long as `serves_before` allows it."""
    found: list[str] = []
    for revision in reversed(history() if revisions is None else revisions):
        found.insert(0, revision.revision)
        if not revision.serves_before:
            break
    return tuple(found)


@cache
def _installed() -> tuple[Revision, ...]:
    return _load(_folder())


def checkout_folder() -> Path | None:
    """The revisions' folder of this checkout; None: this is an installed package."""
    checkout = Path(__file__).parents[2]
    return checkout / "migrations" / "versions" if (checkout / "setup.py").is_file() else None


def _folder() -> Traversable:
    """Return the folder of the revisions. A checkout uses its own, even if the package is installed, too."""
    return checkout_folder() or files(PACKAGE) / "versions"


def _load(folder: Traversable) -> tuple[Revision, ...]:
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".py") and entry.name != "__init__.py"]
    revisions = tuple(_read(entry) for entry in sorted(found, key=lambda entry: entry.name))
    invariant(bool(revisions), f"there are no revisions in {folder}")
    before: str | None = None
    for revision in revisions:
        invariant(
            revision.down_revision == before,
            f"revision {revision.revision} follows {revision.down_revision}, but the one before it is {before}",
        )
        before = revision.revision
    return revisions


def _read(entry: Traversable) -> Revision:
    match = _FILE_NAME.fullmatch(entry.name)
    invariant(match is not None, f"{entry.name} is no name of a revision: NNNN_name.py")
    module = ModuleType(entry.name.removesuffix(".py"))
    exec(compile(entry.read_text(encoding="utf-8"), str(entry), "exec"), module.__dict__)
    known: dict[str, Any] = vars(module)
    missing = [
        name for name in ("revision", "down_revision", "reads", "upgrade", "downgrade", "__doc__") if name not in known
    ]
    invariant(
        not missing and bool(module.__doc__), f"revision {entry.name} lacks {', '.join(missing) or 'a docstring'}"
    )
    invariant(entry.name.startswith(f"{known['revision']}_"), f"{entry.name} names itself {known['revision']}")
    return Revision(
        revision=known["revision"],
        down_revision=known["down_revision"],
        title=str(module.__doc__).strip().splitlines()[0],
        reads=known["reads"],
        upgrade=known["upgrade"],
        downgrade=known["downgrade"],
        serves_before=known.get("serves_before") is True,
    )
