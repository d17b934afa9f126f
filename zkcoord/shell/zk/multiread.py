"""ZooKeeper's multi-read: many getData and getChildren in one request (opcode 22, servers 3.6 and later).

It leaves no watches. Its getChildren answers without a stat, so a list is requested together with the node's data,
which brings the stat. Servers before 3.6 answer error -6 and then close the connection. `session` finds that out once,
before anything else is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zkcoord.errors import invariant
from zkcoord.shell.zk import jute
from zkcoord.shell.zk.jute import Op
from zkcoord.tree.snapshot import Kind, Stat

READS_MAX = 500
"""Reads in one request. The sizes of the answers are unknown (an owner: 60 bytes, a member's status: up to 64 KiB). So
this number limits the reply (32 MiB at worst, usually 100 KiB), and the time in which the server serves nobody else."""

REQUEST_BYTES_MAX = 512 * 1024
"""Bytes in one request: half of what the server accepts (`jute.maxbuffer`, 1 MiB). A larger request ends the
connection."""


class Answer(NamedTuple):
    """The answer to one read: its error code (0: none), and the node's content."""

    code: int
    stat: Stat | None = None
    data: bytes = b""
    children: tuple[str, ...] = ()


def chunks(reads: Sequence[tuple[str, Kind]]) -> Iterator[tuple[int, bytes]]:
    """Split reads into requests. For each it yields the number of its reads, which are in order, and its body."""
    body, count = bytearray(), 0
    for path, kind in reads:
        asked = jute.path_watch(path, False)
        one = jute.PART.pack(Op.GET_DATA, 0, -1) + asked
        if kind is Kind.CHILDREN:
            one = jute.PART.pack(Op.CHILDREN, 0, -1) + asked + one
        if count == READS_MAX or (count and len(body) + len(one) > REQUEST_BYTES_MAX):
            yield count, bytes(body + jute.LAST_PART)
            body, count = bytearray(), 0
        body += one
        count += 1
    if count:
        yield count, bytes(body + jute.LAST_PART)


def answers(frame: bytes, offset: int, kinds: Sequence[Kind]) -> list[Answer]:
    """Decode a reply to reads of these kinds."""
    found: list[Answer] = []
    for kind in kinds:
        names: tuple[str, ...] = ()
        refused = 0
        if kind is Kind.CHILDREN:
            refused, offset = _part(Op.CHILDREN, frame, offset)
            if not refused:
                names, offset = jute.read_names(frame, offset)
        code, offset = _part(Op.GET_DATA, frame, offset)
        if code or refused:
            if not code:
                offset = jute.read_data(frame, offset)[2]
            found.append(Answer(refused or code))
        elif kind is Kind.CHILDREN:
            _, offset = jute.read_buffer(frame, offset)
            found.append(Answer(0, jute.read_list_stat(frame, offset), children=names))
            offset += jute.STAT.size
        else:
            data, stat, offset = jute.read_data(frame, offset)
            found.append(Answer(0, stat, data))
    return found


def _part(wanted: Op, frame: bytes, offset: int) -> tuple[int, int]:
    """Return the error code of the part at `offset` (0: none), and the offset of its content, or of the next part."""
    kind, _, _ = jute.PART.unpack_from(frame, offset)
    offset += jute.PART.size
    if kind == Op.ERROR:
        return jute.INT.unpack_from(frame, offset)[0], offset + jute.INT.size
    if kind != wanted:  # the text is made only then, since there are many
        invariant(False, f"a part of a multi-read that asked with opcode {wanted} was answered with {kind}")
    return 0, offset
