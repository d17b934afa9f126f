"""The mark of an eviction: the data of the child `evicted` of a channel.

In the layout `draft` it holds only the evicted consumer's session timeout, since the owner nodes show what it owned. In
the layout `legacy` claims go with their session, so the mark also says what the consumer owned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.tree.codec import INT32_MAX, compact, corrupt, read_document, text_of, whole
from zkcoord.tree.ranges import partitions_in, ranges_by_topic
from zkcoord.tree.writes import BYTES_MAX

_WHAT = "mark of an eviction"


class Evicted(NamedTuple):
    """The content of a mark."""

    session_timeout_ms: int
    owned: frozenset[TopicPartition] = frozenset()


def encode_evicted(session_timeout_ms: int, owned: Iterable[TopicPartition] | None) -> bytes:
    """The mark's data. `owned` None: the owner nodes show it. Topics without room are left out: their claims show it,
    as long as the consumer reads.

    >>> encode_evicted(6000, None), encode_evicted(6000, [TopicPartition("t", 0), TopicPartition("t", 1)])
    (b'6000', b'{"version":1,"session_timeout_ms":6000,"owned":{"t":"0-1"}}')
    """
    if owned is None:
        return str(session_timeout_ms).encode("ascii")
    room, ranges = BYTES_MAX, dict[str, str]()
    for topic, text in ranges_by_topic(owned).items():
        room -= len(topic) + len(text) + len('"":"",')
        if room >= 0:
            ranges[topic] = text
    return compact({"version": 1, "session_timeout_ms": session_timeout_ms, "owned": ranges})


def decode_evicted(data: bytes) -> Evicted:
    """The mark in these data. Raises CorruptError for anything else."""
    found = whole(text_of(_WHAT, data))
    if found is not None and 0 <= found <= INT32_MAX:
        return Evicted(found)
    if not data.startswith(b"{"):
        raise corrupt(_WHAT, data, "no session timeout in ms")
    document = read_document(_WHAT, data)
    topics = document.section("owned").all_texts()
    return Evicted(document.integer("session_timeout_ms"), partitions_in(topics))
