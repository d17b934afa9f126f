"""The four znode operations (check, create, set, delete), each with the version from which it was decided; transactions
of them, and the limits of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeVar

from zkcoord.tree.snapshot import LIST, Key, Kind, Node, Stat

ANY_VERSION = -1
"""A check with it only requires that the node exists. A `SetNode` or `DeleteNode` with it needs a comment that says
why."""


class CheckNode(NamedTuple):
    """Refuse the transaction unless the node exists and its data has this version (-1: exists)."""

    path: str
    version: int


class CreateNode(NamedTuple):
    """Create a node. With `sequential`, `path` is the PARENT, and the server names the node by ten digits of its
    counter.

    `shared`: everybody may use the node, whatever ACL is configured, since old consumers create nodes below it.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    shared: bool = False


class SetNode(NamedTuple):
    """Replace a node's data if it still has `version`."""

    path: str
    data: bytes
    version: int


class DeleteNode(NamedTuple):
    """Delete a node without children if its data still has `version` (-1: any version)."""

    path: str
    version: int


Write = CheckNode | CreateNode | SetNode | DeleteNode

_PATH = attrgetter("path")

BYTES_MAX = 256 * 1024
"""Bytes of one multi of zkcoord. The server's limit of 1 MiB is for everything that it logs for one multi, with names
and numbers."""

ITEMS_MAX = 1_000
"""Partitions in one command or commit, so that obeying one never takes long between two looks at the channel. Also the
writes in one batch of a migration."""

WRITE_BYTES = 80
"""Bytes of one item without its names and data: headers, versions, numbers, JSON. Coordinators and members use the same
value, since a grant that fits needs a release that fits."""

T = TypeVar("T")


def parts(items: Iterable[T], weight: Callable[[T], int], items_max: int | None = None) -> Iterator[list[T]]:
    """Items in order, divided so that no part has more than `items_max` of them (None: ITEMS_MAX) or weighs more than
    BYTES_MAX.

    >>> [len(part) for part in parts(range(5), lambda item: BYTES_MAX // 2)]
    [2, 2, 1]
    """
    most = ITEMS_MAX if items_max is None else items_max
    part: list[T] = []
    total = 0
    for item in items:
        total += weight(item)
        if part and (len(part) == most or total > BYTES_MAX):
            yield part
            part, total = [], weight(item)
        part.append(item)
    if part:
        yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One multi: all of it happens, or nothing. `why` is for the journal and for people."""

    writes: tuple[Write, ...]
    why: str = ""

    def touched(self) -> list[Key]:
        """The readings that this transaction makes out of date, in order, each once: the data of set nodes, and the
        lists that contain created and deleted nodes."""
        touched: dict[Key, None] = {}
        for write in self.writes:  # there are many
            kind, path = type(write), write.path
            if kind is CheckNode:
                continue
            if kind is SetNode:
                touched[path] = None
                continue
            if not (isinstance(write, CreateNode) and write.sequential):
                touched[path] = touched[LIST + path] = None
                path = path.rpartition("/")[0] or "/"
            touched[LIST + path] = None
        return list(touched)

    def listings(self) -> dict[str, int]:
        """The lists of children that this transaction changes -> how often. The server reports each with that many
        events."""
        found: dict[str, int] = {}
        for write in self.writes:
            if isinstance(write, (CreateNode, DeleteNode)):
                parent = _list_around(write)
                found[parent] = found.get(parent, 0) + 1
        return found

    def listed(self, before: Node, made: Sequence[str]) -> Node:
        """A list of children after this transaction, if nothing else has changed it. `made` is as in `told`."""
        names, changes, fresh = set(before.children), 0, iter(made)
        for write in self.writes:
            if not isinstance(write, (CreateNode, DeleteNode)):
                continue
            path = next(fresh) if isinstance(write, CreateNode) and write.sequential else write.path
            if _list_around(write) == before.path:
                changes += 1
                (names.add if isinstance(write, CreateNode) else names.discard)(path.rpartition("/")[2])
        stat = before.stat and before.stat._replace(child_changes=before.stat.child_changes + changes)
        return Node(before.path, before.kind, stat, children=tuple(sorted(names)))

    def sequential(self) -> list[int]:
        """The indices of the writes whose node the server names."""
        return [place for place, write in enumerate(self.writes) if isinstance(write, CreateNode) and write.sequential]

    def told(self, versions: Sequence[int], made: Sequence[str], zxid: int = 0) -> list[Node]:
        """The answers that reads right after this transaction would get about the nodes that it set, created or
        deleted.

        They are made from the versions, names and number in the reply. (Of a stat only version and mzxid are known.)
        """
        names = iter(made)
        stats = {version: Stat(version, 0, 0, 0, 0, zxid) for version in set(versions)}
        nodes: dict[str, Node] = {}  # as the last write leaves them
        for write, version in zip(self.writes, versions, strict=True):
            if isinstance(write, DeleteNode):
                nodes[write.path] = Node(write.path, Kind.DATA, None)
            elif not isinstance(write, CheckNode):
                path = next(names) if isinstance(write, CreateNode) and write.sequential else write.path
                nodes[path] = Node(path, Kind.DATA, stats[version], write.data)
        return list(nodes.values())

    def payload_bytes(self) -> int:
        """An upper estimate of the request's size on the wire, in bytes."""
        names = sum(map(len, map(_PATH, self.writes)))
        data = sum(len(w.data) for w in self.writes if isinstance(w, (SetNode, CreateNode)))
        return names + data + 40 * len(self.writes)


def _list_around(write: CreateNode | DeleteNode) -> str:
    """The path whose list of children a write changes."""
    sequential = isinstance(write, CreateNode) and write.sequential
    return write.path if sequential else write.path.rpartition("/")[0] or "/"
