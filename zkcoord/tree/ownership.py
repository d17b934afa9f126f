"""A partition's owner in znodes: free or owned, and how it changes hands. The only place that spells it.

    grant     the coordinator gives an available partition to a thread
    free      whoever owns it, or the coordinator in its place, gives it back
    halt      the coordinator marks an owner that knows only the draft's commands: it was told to stop

Every write is guarded by the version that was read, so two that decide on the same owner never both succeed (rule 2).
Here owner nodes are persistent, and an empty one is free: the draft's layout. A layout with other owners brings another
`Ownership`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from zkcoord.core.view import Owner
from zkcoord.tree.writes import CreateNode, SetNode, Write

UNREADABLE_OWNER = "?"
"""Stands for the thread of an owner node that nobody can parse: owned by nobody alive, granted to nobody."""

HALTING = "!"
"""Before the thread of an owner that knows only the draft, once it was told to stop: illegal in a group's name."""

THREADS_KNOWN = 10_000
"""Owners' data that are kept with their threads: few threads own many partitions."""


class Ownership(Protocol):
    """One layout's way to own a partition. `path` is that of the partition's owner node."""

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int]:
        """Return the writes that give the partition to a thread, and the owner node's version after them."""

    def free(self, path: str, version: int) -> Write:
        """Return the write that gives the partition back."""

    def halt(self, path: str, owner: Owner) -> Write:
        """Return the write that marks the owner."""


class PersistentOwners:
    """A persistent node for each partition, empty while the partition is free.

    >>> PersistentOwners().grant("/o/t/0", "g_a-1-0", Owner("", 3))
    ([SetNode(path='/o/t/0', data=b'g_a-1-0', version=3)], 4)
    """

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int]:
        """Create the node, or set the empty one."""
        data = thread.encode("utf-8")
        if owner is None:
            return [CreateNode(path, data)], 0
        return [SetNode(path, data, owner.version)], owner.version + 1

    def free(self, path: str, version: int) -> Write:
        """Set the node empty."""
        return SetNode(path, b"", version)

    def halt(self, path: str, owner: Owner) -> Write:
        """Put the mark before the thread."""
        return SetNode(path, f"{HALTING}{owner.thread}".encode(), owner.version)


PERSISTENT_OWNERS: Ownership = PersistentOwners()


def owner_of(data: bytes, version: int) -> Owner:
    """Return the owner that a node names, marked or not.

    >>> owner_of(b"!g_a-1-0", 3), owner_of(b"nobody", 4)
    (Owner(thread='g_a-1-0', version=3), Owner(thread='?', version=4))
    """
    return Owner(_thread(data), version)


def is_draft_stop(data: bytes) -> bool:
    """Return True of the data of an owner that is marked by `halt`."""
    return data.startswith(_HALTING_BYTES)


_HALTING_BYTES = HALTING.encode()


@lru_cache(maxsize=THREADS_KNOWN)
def _thread(data: bytes) -> str:
    """Return the thread that an owner's data names: one text for all partitions of a thread."""
    try:
        thread = data.decode("utf-8").removeprefix(HALTING)
    except UnicodeDecodeError:
        return UNREADABLE_OWNER
    return UNREADABLE_OWNER if thread and "-" not in thread else thread
