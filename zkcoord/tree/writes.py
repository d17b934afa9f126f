"""Decisions as znode operations: check, create, set, delete, each with the version it was decided from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zkcoord.tree.snapshot import Kind

ANY_VERSION = -1
"""`check` with it asks only that the node exists. A `SetNode` or `DeleteNode` with it needs a reason beside it."""


class CheckNode(NamedTuple):
    """Refuse the transaction unless the node exists and its data has this version (-1: exists)."""

    path: str
    version: int


class CreateNode(NamedTuple):
    """Create a node. With `sequential`, `path` is the PARENT: the node is named by ten digits of its counter."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetNode(NamedTuple):
    """Replace a node's data if it still has `version`."""

    path: str
    data: bytes
    version: int


class DeleteNode(NamedTuple):
    """Delete a node without children if its data still has `version` (-1: whatever it is)."""

    path: str
    version: int


Write = CheckNode | CreateNode | SetNode | DeleteNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One multi: all of it happens, or nothing. `why` is for the journal and for people."""

    writes: tuple[Write, ...]
    why: str = ""

    def touched(self) -> list[tuple[str, Kind]]:
        """What this changes, in order and once each: data of what is set, lists of what is created in or deleted."""
        touched: dict[tuple[str, Kind], None] = {}
        for write in self.writes:
            if isinstance(write, CheckNode):
                continue
            if isinstance(write, CreateNode) and write.sequential:
                touched[(write.path, Kind.CHILDREN)] = None
                continue
            touched[(write.path, Kind.DATA)] = None
            if not isinstance(write, SetNode):
                touched[(write.path, Kind.CHILDREN)] = None
                touched[(write.path.rpartition("/")[0] or "/", Kind.CHILDREN)] = None
        return list(touched)

    def payload_bytes(self) -> int:
        """An upper estimate of the request's size on the wire, in bytes."""
        return sum(len(w.path) + 40 + (len(w.data) if isinstance(w, CreateNode | SetNode) else 0) for w in self.writes)
