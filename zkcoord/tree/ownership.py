"""A partition's owner in znodes: free or owned, and how the owner changes. The only place that knows the format.

    grant     the coordinator gives an available partition to a thread
    free      the owner, or the coordinator in its place, gives it back
    withdraw  the coordinator takes back a grant whose receiver did not understand its start
    drop      the coordinator ends an owner of a topic that was deleted
    halt      the coordinator marks an owner that knows only the draft's commands: it was told to stop

Every write is guarded by the version that was read. So of two writers that decide from the same owner only one succeeds
(rule 2). The layout chooses the implementation. In `draft` owner nodes are persistent, and an empty one is free. In
`legacy` they are claims, as old consumers create them: ephemeral nodes of their consumers, and a partition without a
node is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

UNREADABLE_OWNER = "?"
"""Stands for the thread of an owner node that cannot be parsed: no living member owns it, and it is granted to
nobody."""

HALTING = "!"
"""Stands before the thread of a draft-only owner once it was told to stop. The character is illegal in a group's
name."""

THREADS_KNOWN = 10_000
"""Number of remembered owner data with their threads: few threads own many partitions."""


class Ownership(Protocol):
    """One layout's way to own a partition. `path` is the path of the partition's owner node."""

    @property
    def claimed(self) -> bool:
        """True when the consumer creates the owner node, as an ephemeral claim."""

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int | None]:
        """Return the writes that give the partition to a thread, and the owner node's version after them. None: the
        node is unchanged, and only the start says who may claim the partition."""

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """Return the writes by which a consumer creates the owner node of a partition that it was given."""

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """Return the parents of owner nodes that must be created, outermost first; none where the topics' marks are the
        parents. `owners` is the parent of all, `topics` are the parents of each topic's owners."""

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Return the checks that go with each write of a held partition's offset."""

    def free(self, path: str, version: int) -> Write:
        """Return the write that gives the partition back."""

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Return the writes that go with `free` if no other write of the multi concerns the partition's offset.
        `version` is that of the offset node as read (None: there is no node)."""

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Return the writes that take back a grant whose receiver did not understand its start."""

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Return the writes that end an owner of a deleted topic. `stays`: the new topic has the partition, too."""

    def halt(self, path: str, owner: Owner) -> Write:
        """Return the write that marks the owner."""

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Return the partitions that the mark of an evicted consumer must name. None: its owner nodes show them."""

    def why_not_mended(self, session: int) -> str:
        """Return why an operator cannot mend an owner node by setting it, and what to do instead; "": it is possible.
        `session` is the session of the node (0: none)."""


class PersistentOwners:
    """A persistent node for each partition, empty while the partition is free. Its version only grows, so a grant needs
    no further guard. The check of the registration fences its consumer.

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
        """Returns nothing: the grant sets the node."""
        return ()

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """Returns nothing: the marks are the parents."""
        return ()

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Returns nothing: only its consumer takes an owner away while its registration exists."""
        return ()

    def free(self, path: str, version: int) -> Write:
        """Set the node empty."""
        return SetNode(path, b"", version)

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Returns nothing: the owner's version distinguishes two owners."""
        return ()

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Set the node empty, since the grant had set it."""
        return [self.free(path, version)]

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Delete the node; set it empty if it stays."""
        if not stays:
            return [DeleteNode(path, owner.version)]
        return [self.free(path, owner.version)] if owner.thread else []

    def halt(self, path: str, owner: Owner) -> Write:
        """Put the mark before the thread."""
        return SetNode(path, f"{HALTING}{owner.thread}".encode(), owner.version)

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Returns None: the nodes stay."""
        return None

    def why_not_mended(self, session: int) -> str:
        """Returns "": nothing prevents it."""
        return ""


class ClaimedOwners:
    """An ephemeral node of its consumer for each claimed partition. A partition without a node is free.

    A claim that was deleted and created by another consumer has the same version, so an owner's version does not
    distinguish two claims. The partition's offset does, since each acknowledgement sets it.

    >>> ClaimedOwners().free("/o/t/0", 1)
    DeleteNode(path='/o/t/0', version=1)
    """

    claimed = True

    def grant(self, path: str, thread: str, owner: Owner | None) -> tuple[Sequence[Write], int | None]:
        """Returns nothing: the start says who may claim the partition."""
        return (), None

    def claim(self, path: str, thread: str) -> Sequence[Write]:
        """Create the node and set it once."""
        return [CreateNode(path, ephemeral=True), SetNode(path, thread.encode("utf-8"), 0)]

    def parents(self, owners: str, topics: Sequence[str]) -> Sequence[str]:
        """Returns all of them: the marks are elsewhere."""
        return [owners, *topics] if topics else ()

    def guard(self, path: str, version: int) -> Sequence[Write]:
        """Check that the claim exists."""
        return [CheckNode(path, version)]

    def free(self, path: str, version: int) -> Write:
        """Delete the node."""
        return DeleteNode(path, version)

    def guard_free(self, offset_path: str, version: int | None) -> Sequence[Write]:
        """Check that the offset is unchanged: else it may be another consumer's claim."""
        return unchanged(offset_path, version)

    def withdraw(self, path: str, version: int) -> Sequence[Write]:
        """Returns nothing: the consumer has claimed nothing of a start that it did not understand."""
        return ()

    def drop(self, path: str, owner: Owner, *, stays: bool) -> Sequence[Write]:
        """Returns nothing: claims go with their sessions."""
        return ()

    def halt(self, path: str, owner: Owner) -> Write:
        """Leave the node as it is: in this layout no member knows only the draft's commands."""
        return CheckNode(path, owner.version)

    def noted(self, owned: Sequence[TopicPartition]) -> Sequence[TopicPartition] | None:
        """Returns all of them: the claims may go while the consumer still reads."""
        return owned

    def why_not_mended(self, session: int) -> str:
        """The node belongs to its session alone; without one, old members cannot claim the partition while it is
        there, empty or not."""
        if not session:
            return "no session holds it, so it was copied or made by hand: delete it"
        return f"it is a claim: end the program with the session 0x{session:x}, and it goes"


PERSISTENT_OWNERS: Ownership = PersistentOwners()
CLAIMED_OWNERS: Ownership = ClaimedOwners()


def unchanged(path: str, version: int | None) -> Sequence[Write]:
    """Return writes that are refused if the node is not the one that was read, and that change nothing.

    The only check that a node does not exist is to create it and delete it again.

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
    """Return True for the data of an owner that `halt` has marked."""
    return data.startswith(_HALTING_BYTES)


_HALTING_BYTES = HALTING.encode()


@lru_cache(maxsize=THREADS_KNOWN)
def _thread(data: bytes) -> str:
    """Return the thread that an owner's data names: the same string object for all partitions of a thread."""
    try:
        thread = data.decode("utf-8").removeprefix(HALTING)
    except UnicodeDecodeError:
        return UNREADABLE_OWNER
    return UNREADABLE_OWNER if thread and "-" not in thread else thread
