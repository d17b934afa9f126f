"""The only place that reads and writes the metadata of zkcoord's commits in Kafka: JSON, one object.

Any program may write metadata there. So unrecognised metadata makes a commit foreign, and is never an error. The
metadata contains the commit's own offset, too: if a program changes an offset and keeps the metadata, the commit is
foreign.
"""

from __future__ import annotations

from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.codec import compact, read_document

MAX_BYTES = 4_096
"""Bytes: the default of the broker's `offset.metadata.max.bytes`."""

KEY, VERSION = "zkcoord", 1


def encode_metadata(commit: KafkaCommit, max_bytes: int = MAX_BYTES) -> str:
    """Return the commit's metadata; "" if it has no stamp. A thread's name that does not fit is left out.

    UsageError when the rest does not fit: then a commit could never be recognised.

    >>> encode_metadata(KafkaCommit(offset=7, stamp=Stamp(tenure=Tenure("", 5), thread="g_h-0")))
    '{"zkcoord":1,"offset":"7","tree":"","mzxid":"5","incarnation":0,"generation":0,"at_ms":"0","thread":"g_h-0"}'
    """
    stamp = commit.stamp
    if stamp is None:
        return ""
    document = {
        KEY: VERSION,
        "offset": str(commit.offset),
        "tree": stamp.tenure.tree,
        "mzxid": str(stamp.tenure.mzxid),
        "incarnation": stamp.incarnation,
        "generation": stamp.generation,
        "at_ms": str(stamp.at_ms),
    }
    for text in (compact({**document, "thread": stamp.thread}), compact(document)):
        if len(text) <= max_bytes:
            return text.decode("ascii")
    raise UsageError(
        f"a commit needs {len(text)} bytes of metadata, and the brokers take {max_bytes}: raise their setting"
        " offset.metadata.max.bytes"
    )


def decode_commit(offset: int, metadata: str | None) -> KafkaCommit:
    """Return a commit as Kafka reports it. Without zkcoord's metadata, or with that of a newer zkcoord, it is foreign.

    >>> decode_commit(7, "by hand")
    KafkaCommit(offset=7, stamp=None)
    """
    stamp = None
    if metadata is not None and metadata.startswith(f'{{"{KEY}":'):
        try:
            stamp = _stamp(offset, metadata)
        except CorruptError:
            stamp = None
    return KafkaCommit(offset=offset, stamp=stamp)


def _stamp(offset: int, metadata: str) -> Stamp | None:
    document = read_document("commit metadata", metadata.encode("utf-8", "surrogatepass"))
    if document.integer(KEY) != VERSION or document.integer("offset") != offset:
        return None
    return Stamp(
        tenure=Tenure(document.text("tree"), document.integer("mzxid")),
        incarnation=document.integer("incarnation", default=0),
        generation=document.integer("generation", default=0),
        thread=document.text("thread", default=""),
        at_ms=document.integer("at_ms", default=0),
    )
