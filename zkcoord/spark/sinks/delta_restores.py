"""Finds the RESTORE from which a Delta table's state comes.

A RESTORE takes back rows, but not the versions of application transactions: those stay as high as they were. So ends
that were written after a RESTORE have names of their own. A partition without such a name has the end that it had in
the restored version.

A commit of this sink says which RESTORE it knew, and there is no other RESTORE before it: a RESTORE sets the table's
metadata, and Delta refuses a commit that was decided before that. So only the commits after the sink's last one are
looked through, usually one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from zkcoord.errors import UsageError

RESTORED = "zkcoordRestored"  # in a commit's own information: the RESTORE that it knew, "" for none
RESTORE = "RESTORE"
Commits = Callable[[int], Mapping[str, Any] | None]
"""Returns the information in the commit of a version. None: the log does not have it any more."""


def last_restore(commits: Commits, version: int) -> int | None:
    """Return the version that the newest RESTORE up to `version` has made. None: there is none.

    >>> log = {3: {"operation": "RESTORE"}, 4: {RESTORED: "3"}, 5: {}}
    >>> last_restore(log.get, 5), last_restore(log.get, 2)
    (3, None)
    """
    while (found := commits(version)) is not None:
        if _tells_restore(found):
            return restore_behind(found, version, None)
        version -= 1
    return None


def restore_behind(told: Mapping[str, Any], version: int, before: int | None) -> int | None:
    """Return the newest RESTORE up to the commit of this version. `before` is that of the version before it."""
    if told.get("operation") == RESTORE:
        return version
    return int(told[RESTORED]) if told.get(RESTORED) else before


def _tells_restore(told: Mapping[str, Any]) -> bool:
    return told.get("operation") == RESTORE or RESTORED in told


def restored_to(commits: Commits, restore: int, uri: str) -> int | datetime | None:
    """Return the version, or the time, to which this RESTORE took the table back.

    None: the log does not tell any more. Raises UsageError for a time without a zone, as Spark writes it.
    """
    found = commits(restore)
    if found is None:
        return None
    told = found.get("operationParameters", {})
    if told.get("version") not in (None, ""):
        return int(told["version"])
    if str(told.get("datetime", "")).isdigit():  # delta-rs: ms
        return datetime.fromtimestamp(int(told["datetime"]) / 1000, UTC)
    raise UsageError(
        f"the table {uri} was restored to a time (version {restore}), and its log does not say to which version: "
        "restore it once more, to that version by its number"
    )


class Commit(NamedTuple):
    """A commit's information, and the application transactions in it, by name."""

    told: Mapping[str, Any]
    ends: Mapping[str, int]


def commit_in(text: str) -> Commit:
    """Read a commit, a file of JSON lines.

    >>> commit_in('{"commitInfo":{"operation":"WRITE"}}\\n{"txn":{"appId":"a","version":7}}')
    Commit(told={'operation': 'WRITE'}, ends={'a': 7})
    """
    told: Mapping[str, Any] = {}
    ends: dict[str, int] = {}
    for line in text.splitlines():
        if '"commitInfo"' in line or '"txn"' in line:
            found = json.loads(line)
            told = found.get("commitInfo", told)
            if "txn" in found:
                ends[found["txn"]["appId"]] = found["txn"]["version"]
    return Commit(told, ends)


def since(name: str, restore: int | None) -> str:
    """Return the name of a partition's end that was written after this RESTORE.

    >>> since("zkcoord/etl/clicks-3", None), since("zkcoord/etl/clicks-3", 17)
    ('zkcoord/etl/clicks-3', 'zkcoord/etl/clicks-3~17')
    """
    return name if restore is None else f"{name}~{restore}"
