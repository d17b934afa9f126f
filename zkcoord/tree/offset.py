"""The only place that reads and writes offsets in ZooKeeper: decimal text, the *next* offset to read.

Old tools and other programs write here, too. A newline around the number is accepted, since people write it with a
shell. Text without a number raises CorruptError; it is never read as 0, since the topic would then be read from its
start.
"""

from __future__ import annotations

import re

from zkcoord.errors import InvariantError
from zkcoord.tree.codec import INT64_MAX, corrupt

SHORT = 18
"""Numbers with at most this many digits are below 2**63."""

_NUMBER = re.compile(rb"\s*([+-]?[0-9]{1,40})\s*")


def encode_offset(offset: int) -> bytes:
    """The offset's znode data.

    >>> encode_offset(1234)
    b'1234'
    """
    if not 0 <= offset <= INT64_MAX:
        raise InvariantError(f"an offset is never {offset}")
    return b"%d" % offset


def decode_offset(data: bytes) -> int | None:
    """The offset in `data`. None: it is empty or negative (the old clients' "no offset"), so the reset policy decides.

    >>> decode_offset(b"1234\\n"), decode_offset(b"-1"), decode_offset(b"")
    (1234, None, None)
    """
    if len(data) <= SHORT and data.isdigit():  # the form that zkcoord and nearly everybody writes
        return int(data)
    if not data.strip():
        return None
    match = _NUMBER.fullmatch(data)
    if match is None:
        raise corrupt("offset", data, "not a number")
    offset = int(match[1])
    if not -INT64_MAX - 1 <= offset <= INT64_MAX:
        raise corrupt("offset", data, "beyond 64 bits")
    return None if offset < 0 else offset
