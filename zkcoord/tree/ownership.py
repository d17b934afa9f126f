"""A partition's owner in znodes: free or owned, and how it changes hands. The only place that spells it.

    grant     the coordinator gives an available partition to a thread
    free      whoever owns it, or the coordinator in its place, gives it back
    withdraw  the coordinator takes back what was granted to a consumer that did not understand its start
    drop      the coordinator ends an owner of a topic that was deleted
    halt      the coordinator marks an owner that knows only the draft's commands: it was told to stop

Every write is guarded by the version that was read, so two that decide on the same owner never both succeed (rule 2).
The layout chooses: in `draft` owner nodes are persistent, and an empty one is free. In `legacy` they are claims, as old
consumers make them: ephemeral nodes of their consumers, and a partition without one is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

UNREADABLE_OWNER = "?"
"""Stands for the thread of an owner node that nobody can parse: owned by nobody alive, granted to nobody."""

HALTING = "!"
"""Before the thread of an owner that knows only the draft, once it was told to stop: illegal in a group's name."""

THREADS_KNOWN = 10_000
"""Owners' data that are kept with their threads: few threads own many partitions."""


class Ownership(Protocol):
    """One layout's way to own a partition. `path` is that of the partition's owner node."""

    @property
    def claimed(self) -> bool:
        """True when the consumer makes the owner node, as an ephemeral claim."""

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int | None]:
        """Return the writes that give the partition to a thread, and the owner node's version after them (None: it
        stays as it is, the start alone says who may claim the partition)."""

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """Return the writes by which a consumer makes the owner node of a partition that it was given."""

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """Return the parents of owner nodes that must be made, outermost first; none where the topics' marks are these.
        `owners`: the parent of all; `topics`: the parents of each topic's owners."""

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Return the checks that go along with each offset of a partition that is held."""

    def free(self, path: str, version: int) -> Write:
        """Return the write that gives the partition back."""

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Return the writes that go along with `free` where nothing else in the multi says anything of the partition's
        offset. `version`: of the offset's node as read (None: there is none)."""

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Return the writes that take back what was granted to a consumer that did not understand its start."""

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Return the writes that end an owner of a deleted topic. `stays`: the topic that follows has the partition."""

    def halt(self, path: str, owner: Owner) -> Write:
        """Return the write that marks the owner."""

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Return what the mark of an evicted consumer says that it owned; None: its owner nodes say so."""

    def why_not_mended(self, session: int) -> str:
        """Return why an operator cannot mend an owner node by setting it, and what to do instead; "": that is possible.
        `session`: the one that the node belongs to (0: none)."""


class PersistentOwners:
    """A persistent node for each partition, empty while the partition is free. Its version only grows, so a grant
    needs no further guard, and the registration's check fences its consumer.

    >>> PersistentOwners().grant("/o/t/0", "g_a-1-0", Owner("", 3))
    ([SetNode(path='/o/t/0', data=b'g_a-1-0', version=3)], 4)
    """

    claimed = False

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int | None]:
        """Create the node, or set the empty one."""
        data = thread.encode("utf-8")
        if owner is None:
            return [CreateNode(path, data)], 0
        return [SetNode(path, data, owner.version)], owner.version + 1

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """Nothing: the grant set it."""
        return ()

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """None: the marks are their parents."""
        return ()

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Nothing: nobody but its consumer takes an owner away while its registration stands."""
        return ()

    def free(self, path: str, version: int) -> Write:
        """Set the node empty."""
        return SetNode(path, b"", version)

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Nothing: the owner's version tells two owners apart."""
        return ()

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Set the node empty: the grant set it."""
        return [self.free(path, version)]

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Delete the node, or set one that stays empty."""
        if not stays:
            return [DeleteNode(path, owner.version)]
        return [self.free(path, owner.version)] if owner.thread else []

    def halt(self, path: str, owner: Owner) -> Write:
        """Put the mark before the thread."""
        return SetNode(path, f"{HALTING}{owner.thread}".encode(), owner.version)

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """None: the nodes stay."""
        return None

    def why_not_mended(self, session: int) -> str:
        """Nothing prevents it."""
        return ""


class ClaimedOwners:
    """An ephemeral node of its consumer for each claimed partition; a partition without one is free.

    A claim that was deleted and made by another one has the same version, so no version of an owner tells two claims
    apart: the partition's offset does, which each acknowledgement sets.

    >>> ClaimedOwners().free("/o/t/0", 1)
    DeleteNode(path='/o/t/0', version=1)
    """

    claimed = True

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int | None]:
        """Nothing: the start says who may claim it."""
        return (), None

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """Create the node and set it once."""
        return [CreateNode(path, ephemeral=True), SetNode(path, thread.encode("utf-8"), 0)]

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """All of them: the marks stand elsewhere."""
        return [owners, *topics] if topics else ()

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Check that the claim stands."""
        return [CheckNode(path, version)]

    def free(self, path: str, version: int) -> Write:
        """Delete the node."""
        return DeleteNode(path, version)

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Check that the offset is the one that was read: else the claim may be another consumer's by now."""
        return unchanged(offset_path, version)

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Nothing: it has not claimed what it did not understand."""
        return ()

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Nothing: claims go with their sessions."""
        return ()

    def halt(self, path: str, owner: Owner) -> Write:
        """Leave the node as it is: nobody here knows only the draft's commands."""
        return CheckNode(path, owner.version)

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """All of it: the claims may go while it still reads."""
        return owned

    def why_not_mended(self, session: int) -> str:
        """It is its session's alone."""
        return f"it is a claim: end the program with the session 0x{session:x}, and it goes"


PERSISTENT_OWNERS: Ownership = PersistentOwners()
CLAIMED_OWNERS: Ownership = ClaimedOwners()


def unchanged(path: str, version: int | None) -> Sequence[Write]:
    """Return writes that are refused once the node is not the one that was read, and change nothing.

    Nothing checks that there is no node but making it, and removing it again.

    >>> unchanged("/offsets/t/0", 3)
    [CheckNode(path='/offsets/t/0', version=3)]
    """
    return [CreateNode(path), DeleteNode(path, 0)] if version is None else [CheckNode(path, version)]


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
