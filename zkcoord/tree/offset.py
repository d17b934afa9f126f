"""The only place that reads and writes offsets in ZooKeeper: decimal text, the *next* offset to read.

Old tools and other programs write here too. A newline around the number is forgiven, since people write it with a
shell; what holds no number is CorruptError and never 0, which would read a topic from its start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import index

from zkcoord.core.model import TopicPartition
from zkcoord.errors import InvariantError, UsageError
from zkcoord.tree.codec import INT64_MAX, corrupt

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
    """The offset in `data`; None when empty or negative (the old clients' "no offset": the reset policy decides).

    >>> decode_offset(b"1234\\n"), decode_offset(b"-1"), decode_offset(b"")
    (1234, None, None)
    """
    if not data.strip():
        return None
    match = _NUMBER.fullmatch(data)
    if match is None:
        raise corrupt("offset", data, "not a number")
    offset = int(match[1])
    if not -INT64_MAX - 1 <= offset <= INT64_MAX:
        raise corrupt("offset", data, "beyond 64 bits")
    return None if offset < 0 else offset


def checked_offsets(given: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
    """Offsets as a program gave them (None: none), as plain integers; UsageError for what is none.

    >>> checked_offsets({TopicPartition("t", 0): 7})
    {TopicPartition(topic='t', partition=0): 7}
    """
    found: dict[TopicPartition, int] = {}
    for partition, offset in dict(given or {}).items():
        try:
            number = index(offset)
        except TypeError:
            number = -1
        if not 0 <= number <= INT64_MAX:
            raise UsageError(f"{partition}: {offset!r} is no offset (the next one to read, 0 or more)")
        found[partition] = number
    return found
