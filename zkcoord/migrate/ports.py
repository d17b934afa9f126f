"""The operations of ZooKeeper that a migration needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkcoord.shell.ports import CommitDone
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction


class BlockingTree(Protocol):
    """Each call waits for its answer, or raises UnavailableError or UsageError."""

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]: ...

    def commit(self, transaction: Transaction) -> CommitDone: ...

    def sync(self) -> None: ...
