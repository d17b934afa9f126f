"""One of the two trees between which a group is moved, and the writes to it: by version, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.offsets.ports import OffsetTree
from zkcoord.offsets.writing import ATTEMPTS_MAX, Change, RecordChangedError, write_offsets
from zkcoord.shell.ports import Outcome
from zkcoord.tree.bulk import data
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Node, parents
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write, parts

WHY = "a move"

Guard = Callable[[], CheckNode]
"""Returns a check of the record that allows the writing, or raises an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A tree. `address` is for people."""

    tree: OffsetTree
    layout: Layout
    tree_id: str
    address: str

    def record(self, group: str) -> tuple[Node, GroupRecord | None]:
        """Return the group's record and its node; None if there is no record. Raises CorruptError with the path."""
        (node,) = data(self.tree.read, [self.layout.record(group)])
        if not node.exists:
            return node, None
        try:
            return node, decode_record(node.data)
        except CorruptError as error:
            raise CorruptError(f"{node.path} at {self.address}: {error}; an operator must mend it") from error

    def edit(
        self,
        group: str,
        change: Callable[[GroupRecord | None], GroupRecord],
        more: Callable[[], Sequence[Write]] = tuple,
    ) -> GroupRecord:
        """Change the record, and return it. `more` returns writes of the same multi; it is called again at each
        attempt."""
        for _ in range(ATTEMPTS_MAX):
            node, before = self.record(group)
            after = change(before)
            if after == before:
                return after
            text = encode_record(after)
            write: Write = (
                CreateNode(node.path, text) if node.stat is None else SetNode(node.path, text, node.stat.version)
            )
            if self.commit((write, *more())):
                return after
            self.tree.sync()
        raise UnavailableError(f"{self.layout.record(group)} at {self.address}: others changed it meanwhile: try again")

    def put(
        self, wanted: Mapping[str, bytes], guard: Guard, due: Callable[[Node], bool] = lambda node: not node.exists
    ) -> int:
        """Create or set the nodes that are `due`, and their parents, once each. Return how many were due."""
        done: set[str] = set()
        for _ in range(ATTEMPTS_MAX):
            nodes = {node.path: node for node in data(self.tree.read, list(wanted)) if node.path not in done}
            left = [node for node in nodes.values() if due(node)]
            if not left:
                return len(done)
            above = dict.fromkeys(path for node in left for path in parents(node.path))
            missing = [node.path for node in data(self.tree.read, list(above)) if not node.exists]
            for path in missing:
                self.commit((guard(), self._create(path, b"")))
            writes = [
                self._create(node.path, wanted[node.path])
                if node.stat is None
                else SetNode(node.path, wanted[node.path], node.stat.version)
                for node in left
            ]
            for part in parts(writes, lambda write: len(write.path) + WRITE_BYTES + len(wanted[write.path])):
                if self.commit((guard(), *part)):
                    done.update(write.path for write in part)
            self.tree.sync()
        raise UnavailableError(f"{self.address}: others write the same nodes meanwhile: try again")

    def put_offsets(
        self,
        group: str,
        wanted: Mapping[TopicPartition, int],
        guard: Guard,
        due: Callable[[Change], bool] = lambda change: True,
    ) -> None:
        """Make the group's offsets count here; `due` is as for `write_offsets`. The coordinator's answer to the pause
        changes the record, too, and for a group without members nobody waits for that answer: then the `guard` is
        called again."""
        for _ in range(ATTEMPTS_MAX):
            try:
                write_offsets(self.tree, self.layout, group, wanted, guard=[guard()], why=WHY, due=due)
                return
            except RecordChangedError:
                self.tree.sync()
        raise UnavailableError(f"{self.layout.record(group)} at {self.address}: others changed it meanwhile: try again")

    def removal(self, path: str) -> Sequence[Write]:
        """Return the writes that remove a node without children, if it exists."""
        (node,) = data(self.tree.read, [path])
        return () if node.stat is None else (DeleteNode(path, node.stat.version),)

    def commit(self, writes: tuple[Write, ...]) -> bool:
        """Send one multi. False: read again. Raises UsageError if another attempt would be useless."""
        done = self.tree.commit(Transaction(writes=writes, why=WHY))
        if done.reason == "NoAuth":
            path = writes[max(done.failed_at, 0)].path
            raise UsageError(f"{path} at {self.address}: no right to write there; log in as who may")
        return done.outcome is Outcome.COMMITTED

    def _create(self, path: str, text: bytes) -> CreateNode:
        return CreateNode(path, text, shared=self.layout.shared(path))
