"""A dry run: a tree that reads the real tree and sends no writes, so that the engine runs on it without a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from zkcoord.errors import invariant
from zkcoord.migrate.ports import BlockingTree
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import ANY_VERSION, CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write

NEW = Stat(version=0, czxid=0, ephemeral_owner=0)


class Rehearsal:
    """The real tree with the writes of this dry run. Writes are checked as the server would check them."""

    def __init__(self, tree: BlockingTree) -> None:
        self._tree = tree
        self._changed: dict[str, Node] = {}  # what was written; invariant: data nodes; stat None = deleted

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Read the real tree, and apply the writes of this dry run to the answer."""
        return tuple(self._over(read, node) for read, node in zip(reads, self._tree.read(reads), strict=True))

    def sync(self) -> None:
        """Sync the real tree."""
        self._tree.sync()

    def commit(self, transaction: Transaction) -> CommitDone:
        """Keep all writes of the transaction, or refuse it and keep none. Nothing is sent."""
        kept = dict(self._changed)
        for index, write in enumerate(transaction.writes):
            reason = self._apply(write)
            if reason:
                self._changed = kept
                return CommitDone(0, Outcome.REFUSED, failed_at=index, reason=reason)
        return CommitDone(0, Outcome.COMMITTED)

    def _over(self, read: Read, node: Node) -> Node:
        if read.kind is Kind.DATA:
            return self._changed.get(read.path, node)
        names = set(node.children)
        for path, changed in self._changed.items():
            parent, _, name = path.rpartition("/")
            if (parent or "/") == read.path:
                (names.add if changed.exists else names.discard)(name)
        own = self._changed.get(read.path)
        return Node(read.path, read.kind, own.stat if own else node.stat, children=tuple(sorted(names)))

    def _node(self, path: str, kind: Kind = Kind.DATA) -> Node:
        return self.read([Read(path, kind)])[0]

    def _apply(self, write: Write) -> str:
        """Keep one write and return "". If the server would refuse the write, return its reason."""
        stat = self._node(write.path).stat
        if isinstance(write, CreateNode):
            invariant(not (write.sequential or write.ephemeral), "a migration creates plain nodes only")
            parent = write.path.rpartition("/")[0] or "/"
            if stat is not None or not self._node(parent).exists:
                return "NodeExists" if stat is not None else "NoNode"
            self._changed[write.path] = Node(write.path, Kind.DATA, NEW, write.data)
            return ""
        if stat is None:
            return "NoNode"
        if write.version not in (ANY_VERSION, stat.version):
            return "BadVersion"
        match write:
            case CheckNode():
                pass
            case SetNode(path, data, _):
                self._changed[path] = Node(path, Kind.DATA, stat._replace(version=stat.version + 1), data)
            case DeleteNode(path, _):
                if self._node(path, Kind.CHILDREN).children:
                    return "NotEmpty"
                self._changed[path] = Node(path, Kind.DATA, None)
            case _:
                assert_never(write)
        return ""
