"""A tree in memory that answers as ZooKeeper does, with faults a test chooses; and revisions for tests only."""

from collections.abc import Callable, Sequence
from pathlib import Path

from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction, Write


class CrashError(Exception):
    """The operator's process died here."""


class MemoryTree:
    """Blocking tree: path -> (data, version). `fault(n)` is asked before the n-th commit for what happens to it:

    "" nothing, "before" the request is lost, "after" its answer is lost, "crash-before", "crash-after".
    """

    def __init__(self, *paths: str) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = dict.fromkeys(("/", *paths), (b"", 0))
        self.fault: Callable[[int], str] = lambda _: ""
        self.meanwhile: Callable[[int], None] = lambda _: None
        self.before_read: Callable[[Sequence[Read]], None] = lambda _: None
        self.commits: list[Transaction] = []
        self.refusals: list[str] = []

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        self.before_read(reads)
        return tuple(self._read(read) for read in reads)

    def act_at_read(self, number: int, act: Callable[[], None]) -> Callable[[], int]:
        """Call `act` right before the read of this number, from 1 on. Returns what tells how many reads there were."""
        count = 0

        def look(_: Sequence[Read]) -> None:
            nonlocal count
            count += 1
            if count == number:
                act()

        self.before_read = look
        return lambda: count

    def sync(self) -> None:
        pass

    def commit(self, transaction: Transaction) -> CommitDone:
        number = len(self.commits)
        self.commits.append(transaction)
        self.meanwhile(number)
        fault = self.fault(number)
        if fault == "crash-before":
            raise CrashError
        done = CommitDone(number, Outcome.UNKNOWN) if fault == "before" else self._apply(number, transaction)
        if fault == "crash-after":
            raise CrashError
        return CommitDone(number, Outcome.UNKNOWN) if fault == "after" else done

    def set(self, path: str, data: bytes) -> None:
        """Somebody else writes."""
        _, version = self.nodes.get(path, (b"", -1))
        self.nodes[path] = (data, version + 1)

    def data(self) -> dict[str, bytes]:
        """What a person sees."""
        return {path: data for path, (data, _) in self.nodes.items() if path != "/"}

    def children(self, path: str) -> tuple[str, ...]:
        below = "/" if path == "/" else f"{path}/"
        return tuple(
            sorted(
                p[len(below) :] for p in self.nodes if p.startswith(below) and "/" not in p[len(below) :] if p != "/"
            )
        )

    def _read(self, read: Read) -> Node:
        if read.path not in self.nodes:
            return Node(read.path, read.kind, None)
        data, version = self.nodes[read.path]
        stat = Stat(version=version, czxid=1, ephemeral_owner=0)
        if read.kind is Kind.CHILDREN:
            return Node(read.path, read.kind, stat, children=self.children(read.path))
        return Node(read.path, read.kind, stat, data)

    def _apply(self, number: int, transaction: Transaction) -> CommitDone:
        before = dict(self.nodes)
        for index, write in enumerate(transaction.writes):
            reason = self._refusal(write)
            if reason:
                self.nodes = before
                self.refusals.append(f"{reason} {write.path}")
                return CommitDone(number, Outcome.REFUSED, failed_at=index, reason=reason)
            if isinstance(write, CreateNode):
                self.nodes[write.path] = (write.data, 0)
            elif isinstance(write, SetNode):
                self.nodes[write.path] = (write.data, self.nodes[write.path][1] + 1)
            elif isinstance(write, DeleteNode):
                del self.nodes[write.path]
        return CommitDone(number, Outcome.COMMITTED)

    def _refusal(self, write: Write) -> str:
        if isinstance(write, CreateNode):
            if write.path in self.nodes:
                return "NodeExists"
            return "" if (write.path.rpartition("/")[0] or "/") in self.nodes else "NoNode"
        if write.path not in self.nodes:
            return "NoNode"
        if write.version not in (-1, self.nodes[write.path][1]):
            return "BadVersion"
        return "NotEmpty" if isinstance(write, DeleteNode) and self.children(write.path) else ""


REVISION = '''"""{title}

Made by a test.
"""

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode

revision = "{revision}"
down_revision = {down!r}


def reads(layout_name):
    return {reads}


def upgrade(snapshot, layout_name):
    {upgrade}


def downgrade(snapshot, layout_name):
    {downgrade}
'''


def write_revision(
    folder: Path,
    revision: str,
    down: str | None,
    *,
    reads: str = "()",
    upgrade: str = "return ()",
    downgrade: str = "return ()",
    title: str = "A change.",
) -> None:
    """A revision's file with these bodies."""
    text = REVISION.format(revision=revision, down=down, reads=reads, upgrade=upgrade, downgrade=downgrade, title=title)
    (folder / f"{revision}_test.py").write_text(text, encoding="utf-8")
