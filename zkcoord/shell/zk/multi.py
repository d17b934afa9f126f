"""Encodes a transaction as one multi request, and decodes its reply.

An error of an operation means that the server applied nothing: REFUSED. Every other incomplete answer (an error of the
whole request, a broken connection, an expired session) is UNKNOWN, which is always safe.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from kazoo import exceptions
from kazoo.exceptions import EXCEPTIONS

from zkcoord.errors import invariant
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.shell.zk import jute
from zkcoord.shell.zk.config import OPEN
from zkcoord.shell.zk.jute import Op
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write

REQUEST_BYTES_MAX = 1024 * 1024 - 24 * 1024
"""Bytes of the largest multi that is sent. A request above `jute.maxbuffer` (by default 1 MiB - 1) makes the server
close the connection, which repeated requests would do for ever. The difference is for the server's own transaction,
which adds a header and the creates' parents."""

EPHEMERAL, SEQUENTIAL = 1, 2
OPEN_ACL = jute.acls(OPEN)

_BYSTANDERS = frozenset({exceptions.RolledBackError.code, exceptions.RuntimeInconsistency.code})
_NAMES: dict[int, str] = {code: error.__name__.removesuffix("Error") for code, error in EXCEPTIONS.items()}


def reason(code: int) -> str:
    """Return the name of a ZooKeeper error code without "Error", or the number if kazoo does not know it.

    >>> reason(-103)
    'BadVersion'
    """
    return _NAMES.get(code, f"Code{code}")


def absolute(chroot: str, path: str) -> str:
    """The absolute path of `path` below `chroot` ("" or "/a/b").

    >>> absolute("/a", "/"), absolute("", "/b")
    ('/a', '/b')
    """
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def encode(transaction: Transaction, chroot: str, acl: bytes = OPEN_ACL) -> bytes:
    """The body of the multi, whatever its size."""
    return b"".join(_operation(write, chroot, acl) for write in transaction.writes) + jute.LAST_PART


def _operation(write: Write, chroot: str, acl: bytes) -> bytes:
    path = absolute(chroot, write.path)
    match write:
        case CheckNode():
            return jute.PART.pack(Op.CHECK, 0, -1) + jute.text(path) + jute.INT.pack(write.version)
        case CreateNode():
            if write.sequential:
                path = path.rstrip("/") + "/"
            flags = (EPHEMERAL if write.ephemeral else 0) | (SEQUENTIAL if write.sequential else 0)
            head = jute.PART.pack(Op.CREATE, 0, -1) + jute.text(path)
            return head + jute.buffer(write.data) + (OPEN_ACL if write.shared else acl) + jute.INT.pack(flags)
        case SetNode():
            head = jute.PART.pack(Op.SET_DATA, 0, -1) + jute.text(path)
            return head + jute.buffer(write.data) + jute.INT.pack(write.version)
        case DeleteNode():
            return jute.PART.pack(Op.DELETE, 0, -1) + jute.text(path) + jute.INT.pack(write.version)
    assert_never(write)


def decode(token: int, error: int, frame: bytes, offset: int, named: Collection[int] = ()) -> CommitDone:
    """Return the outcome of the multi. `error` is the code of the whole reply (0: look at the operations).

    `named` are the writes whose created path is returned, as the server writes it.
    """
    if error:
        return CommitDone(token, Outcome.UNKNOWN, reason=reason(error))
    versions: list[int] = []
    errors: list[int] = []
    made: list[str] = []
    zxid = 0
    while True:
        kind, done, _ = jute.PART.unpack_from(frame, offset)
        offset += jute.PART.size
        if done:
            break
        if kind == Op.ERROR:
            errors.append(jute.INT.unpack_from(frame, offset)[0])
            offset += jute.INT.size
        elif kind == Op.SET_DATA:
            stat = jute.read_stat(frame, offset)
            versions.append(stat.version)
            zxid = stat.mzxid
            offset += jute.STAT.size
        elif kind == Op.CREATE:
            path, offset = jute.read_buffer(frame, offset)
            if len(versions) in named:
                made.append(path.decode("utf-8"))
            versions.append(0)
        else:
            invariant(kind in (Op.CHECK, Op.DELETE), f"a multi was answered with opcode {kind}")
            versions.append(-1)
    if not errors:
        return CommitDone(token, Outcome.COMMITTED, tuple(versions), made=tuple(made), zxid=zxid)
    for index, code in enumerate(errors):
        if code not in _BYSTANDERS:
            return CommitDone(token, Outcome.REFUSED, failed_at=index, reason=reason(code))
    return CommitDone(token, Outcome.UNKNOWN, reason=reason(errors[0]))
