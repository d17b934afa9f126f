"""The only place that knows ZooKeeper's wire format: requests to bytes, replies to values.

It handles only bodies; `connection` adds length, xid and opcode before a request. Strings are UTF-8 after an int32
length, -1 is null, and all numbers are big-endian ("zookeeper.jute" in ZooKeeper's sources).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from zkcoord.tree.snapshot import Stat

INT = Struct("!i")
REPLY = Struct("!iqi")  # xid, zxid, error
EVENT = Struct("!ii")  # type, state; the path follows
PART = Struct("!iBi")  # of a multi: opcode, done, error
LAST_PART = PART.pack(-1, 1, -1)
STAT = Struct("!qqqqiiiqiiq")
LONG = Struct("!q")


class Op(IntEnum):
    """Opcodes (`ZooDefs.OpCode`)."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    SYNC = 9
    CHILDREN = 8  # without a stat: only in a multi-read
    GET_CHILDREN = 12  # with the stat ("getChildren2")
    CHECK = 13
    MULTI = 14
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    SET_WATCHES = 101
    ADD_WATCH = 106
    CLOSE = -11


class Event(IntEnum):
    """Kinds of watch events (`Watcher.Event.EventType`)."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


def text(value: str) -> bytes:
    """A string in the wire format."""
    raw = value.encode("utf-8")
    return INT.pack(len(raw)) + raw


def buffer(value: bytes) -> bytes:
    """Bytes in the wire format."""
    return INT.pack(len(value)) + value


def path_watch(path: str, watch: bool) -> bytes:
    """The body of exists, getData and getChildren2."""
    return text(path) + (b"\1" if watch else b"\0")


def watches(zxid: int, there: Sequence[str], missing: Sequence[str]) -> bytes:
    """The body of setWatches: leave a watch on the data of nodes that were seen at `zxid`, existing or missing."""
    data, exist = (INT.pack(len(paths)) + b"".join(map(text, paths)) for paths in (there, missing))
    return LONG.pack(zxid) + data + exist + INT.pack(0)


def stays(path: str) -> bytes:
    """The body of addWatch: a persistent watch on this node, and not on those below it."""
    return text(path) + INT.pack(0)


def no_watch(path: str) -> bytes:
    """The body of removeWatches, for watches of any kind."""
    return text(path) + INT.pack(3)


def acls(entries: Sequence[tuple[int, str, str]]) -> bytes:
    """An ACL list; an entry is (permissions, scheme, id)."""
    return INT.pack(len(entries)) + b"".join(INT.pack(p) + text(scheme) + text(who) for p, scheme, who in entries)


def read_stat(frame: bytes, offset: int) -> Stat:
    """Return the stat at `offset`; it is `STAT.size` bytes long."""
    czxid, mzxid, _, mtime, version, _, _, owner, _, _, _ = STAT.unpack_from(frame, offset)
    return Stat(version, czxid, owner, mtime, 0, mzxid)


def read_buffer(frame: bytes, offset: int) -> tuple[bytes, int]:
    """Return the bytes at `offset` (null: empty), and the offset of the next value."""
    size = INT.unpack_from(frame, offset)[0]
    offset += INT.size
    if size < 0:
        return b"", offset
    return frame[offset : offset + size], offset + size


def read_text(frame: bytes, offset: int) -> tuple[str, int]:
    """Return the string at `offset` (null: empty), and the offset of the next value."""
    raw, offset = read_buffer(frame, offset)
    return raw.decode("utf-8"), offset


def read_data(frame: bytes, offset: int) -> tuple[bytes, Stat, int]:
    """Decode a reply to getData: data, stat, and the offset of the next value."""
    data, offset = read_buffer(frame, offset)
    return data, read_stat(frame, offset), offset + STAT.size


def read_children(frame: bytes, offset: int) -> tuple[tuple[str, ...], Stat]:
    """Decode a reply to getChildren2: the sorted names, and the stat."""
    names, offset = read_names(frame, offset)
    return names, read_list_stat(frame, offset)


def read_names(frame: bytes, offset: int) -> tuple[tuple[str, ...], int]:
    """Return the names of children, sorted, and the offset of the next value."""
    count = INT.unpack_from(frame, offset)[0]
    offset += INT.size
    names, size_at = [], INT.unpack_from
    for _ in range(count):  # there may be many
        start = offset + INT.size
        offset = start + max(0, size_at(frame, offset)[0])
        names.append(str(frame[start:offset], "utf-8"))
    return tuple(sorted(names)), offset


def read_list_stat(frame: bytes, offset: int) -> Stat:
    """Return the stat at `offset`, including how often the list of children has changed."""
    return read_stat(frame, offset)._replace(child_changes=STAT.unpack_from(frame, offset)[5])
