"""What is read of the tree, and the answers: a node's data and version, or its children, or that it does not exist."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Stat(NamedTuple):
    """The part of a znode's stat that decisions need."""

    version: int  # of the data
    czxid: int  # the transaction that created the node; it identifies the node
    ephemeral_owner: int  # session id, 0 for a persistent node
    mtime_ms: int = 0  # the server's clock; for people only, never for a decision
    child_changes: int = 0  # for a list: number of children created and deleted so far
    mzxid: int = 0  # the transaction that last wrote the data; 0: not known


class Kind(Enum):
    """The part of a node that is read and watched."""

    DATA = "data"
    CHILDREN = "children"

    __hash__ = object.__hash__  # Enum's own is written in Python, and every want is looked up by its kind


Key = str
"""The part of a node that is read, as one text: this needs no object for each of many. For data it is the path."""

LIST = "list "


def key_of(path: str, kind: Kind) -> Key:
    """The key of one reading.

    >>> key_of("/a", Kind.DATA), key_of("/a", Kind.CHILDREN)
    ('/a', 'list /a')
    """
    return path if kind is Kind.DATA else LIST + path


def path_and_kind(key: Key) -> tuple[str, Kind]:
    """The inverse of `key_of`.

    >>> path_and_kind("/a") == ("/a", Kind.DATA), path_and_kind("list /a") == ("/a", Kind.CHILDREN)
    (True, True)
    """
    return (key[len(LIST) :], Kind.CHILDREN) if key[:1] != "/" else (key, Kind.DATA)


def parents(path: str) -> list[str]:
    """All parents of a path, outermost first, without the root.

    >>> parents("/a/b/c")
    ['/a', '/a/b']
    """
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:n]) for n in range(1, len(parts))]


class Read(NamedTuple):
    """One question to the tree. With `watch`, the next change makes `path` dirty."""

    path: str
    kind: Kind = Kind.DATA
    watch: bool = False


class Want(NamedTuple):
    """A node that must be known. `watch` and `by_writes` are as in a tracker's `want` (`shell.tracker`)."""

    path: str
    kind: Kind = Kind.DATA
    watch: bool = False
    by_writes: bool = False


class Node(NamedTuple):
    """The answer to a Read. `stat` None: the node does not exist.

    For a DATA read, `data` holds the bytes and `children` is empty. For a CHILDREN read, `children` holds the sorted
    names and `data` is empty.
    """

    path: str
    kind: Kind
    stat: Stat | None
    data: bytes = b""
    children: tuple[str, ...] = ()

    @property
    def exists(self) -> bool:
        """True when the node was there."""
        return self.stat is not None
