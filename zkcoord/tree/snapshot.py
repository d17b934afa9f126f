"""Answers to reads of the tree: a node's data and version, or its children, or that it is not there."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Stat(NamedTuple):
    """The part of a znode's stat that decisions need."""

    version: int  # of the data
    czxid: int  # the transaction that created the node: another one is another node
    ephemeral_owner: int  # session id, 0 for a persistent node
    mtime_ms: int = 0  # the server's clock; for people only, never for a decision
    child_changes: int = 0  # of a list: how many children were made and removed, also those nobody has seen
    mzxid: int = 0  # the transaction that wrote the data last; 0: not told


class Kind(Enum):
    """The part of a node that is read, and watched."""

    DATA = "data"
    CHILDREN = "children"

    __hash__ = object.__hash__  # Enum's own is written in Python, and every want is looked up by its kind


Key = str
"""What is read of a node, as one text: that costs no object for each of many. Of data it is the path."""

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


class Read(NamedTuple):
    """One question to the tree. With `watch`, the next change of what was read makes `path` dirty."""

    path: str
    kind: Kind = Kind.DATA
    watch: bool = False


class Node(NamedTuple):
    """The answer to a Read: `stat` None = there is no such node.

    Of a DATA read `data` is the bytes and `children` is empty; of a CHILDREN read `children` is the sorted names
    and `data` is empty.
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
