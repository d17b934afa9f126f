"""ZooKeeper's multi-read: many getData in one request (opcode 22, servers 3.6 and later).

It leaves no watches. Its getChildren answers without a stat, so it is used for data only. Servers before 3.6 answer
error -6 and then close the connection; `session` finds that out once, before anything else is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkcoord.errors import invariant
from zkcoord.shell.zk import jute
from zkcoord.shell.zk.jute import Op
from zkcoord.tree.snapshot import Stat

READS_MAX = 500
"""Reads in one request. The sizes of the answers are unknown (an owner: 60 bytes, a member's status: up to 64 KiB), so
this bounds the reply: 32 MiB at the worst, 100 KiB as a rule, and the time in which the server serves nobody else."""

REQUEST_BYTES_MAX = 512 * 1024
"""Bytes in one request: half of what the server accepts (`jute.maxbuffer`, 1 MiB); a larger one ends the connection."""


def chunks(paths: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """Split reads into requests: for each the number of paths in it, in order, and its body."""
    body, count = bytearray(), 0
    for path in paths:
        one = jute.PART.pack(Op.GET_DATA, 0, -1) + jute.path_watch(path, False)
        if count == READS_MAX or (count and len(body) + len(one) > REQUEST_BYTES_MAX):
            yield count, bytes(body + jute.LAST_PART)
            body, count = bytearray(), 0
        body += one
        count += 1
    if count:
        yield count, bytes(body + jute.LAST_PART)


def answers(frame: bytes, offset: int) -> list[tuple[int, bytes, Stat | None]]:
    """Decode a reply: for each read its error code (0: none), data and stat."""
    found: list[tuple[int, bytes, Stat | None]] = []
    while True:
        kind, done, _ = jute.PART.unpack_from(frame, offset)
        offset += jute.PART.size
        if done:
            return found
        if kind == Op.ERROR:
            found.append((jute.INT.unpack_from(frame, offset)[0], b"", None))
            offset += jute.INT.size
            continue
        invariant(kind == Op.GET_DATA, f"a multi-read was answered with opcode {kind}")
        data, stat, offset = jute.read_data(frame, offset)
        found.append((0, data, stat))
