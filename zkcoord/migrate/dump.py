"""A tree that was saved in a file, for dry runs without a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkcoord.errors import InvariantError
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import Transaction

SAVED = Stat(version=0, czxid=0, ephemeral_owner=0)


class Dump:
    """The saved nodes and their parents, all of version 0. It is read-only: wrap it in a `Rehearsal`."""

    def __init__(self, saved: Iterable[tuple[str, bytes]]) -> None:
        self._data: dict[str, bytes] = {"/": b""}
        self._children: dict[str, list[str]] = {}
        for path, data in saved:
            self._add(path)
            self._data[path] = data

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Return the nodes as the saved tree would have answered."""
        return tuple(self._read(read) for read in reads)

    def sync(self) -> None:
        """Do nothing, since nobody else writes."""

    def commit(self, transaction: Transaction) -> CommitDone:
        """Never called; InvariantError."""
        raise InvariantError(f"a dump takes no writes: {transaction.why}")

    def _add(self, path: str) -> None:
        while path not in self._data:
            self._data[path] = b""
            parent, _, name = path.rpartition("/")
            path = parent or "/"
            self._children.setdefault(path, []).append(name)

    def _read(self, read: Read) -> Node:
        if read.path not in self._data:
            return Node(read.path, read.kind, None)
        if read.kind is Kind.CHILDREN:
            return Node(read.path, read.kind, SAVED, children=tuple(sorted(self._children.get(read.path, ()))))
        return Node(read.path, read.kind, SAVED, self._data[read.path])
