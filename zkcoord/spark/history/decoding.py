"""Turns records of `__consumer_offsets` into commits, in Arrow batches. This module runs in Spark's Python workers.

Spark passes it by value: a worker needs pyarrow, but not zkcoord. The formats are those of Kafka's `OffsetCommitKey`
(versions 0 and 1) and `OffsetCommitValue` (0 to 4). All numbers are big-endian. Records with other keys are left out.
Keys repeat, so each distinct key of a batch is parsed once. Values of versions 0 to 3 are cut as columns; the fields
after the metadata are found from the value's end. All other values, and those that do not fit, are parsed one by one.

Keys repeat, so each distinct one of a batch is parsed once. Values of versions 0 to 3 are cut as columns: what stands
behind the metadata is found from the value's end. All else, and what does not fit, is parsed one by one.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

KEYS_KNOWN = 100_000
OFFSET_KEYS = (0, 1)
NO_TIME = -1  # Kafka's value for a time that is not given

COMMIT = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),  # null: a tombstone, or a value that cannot be parsed
        ("metadata", pa.string()),
        ("commit_ms", pa.int64()),
        ("expire_ms", pa.int64()),  # null: the broker's retention decides
        ("tombstone", pa.bool_()),  # the commit was removed: it expired, or its group or topic was deleted
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("log_ms", pa.int64()),
    ]
)
"""The columns for one record of the offset log. Times are ms since 1970; `log_ms` is the record's own time."""


class Value(NamedTuple):
    """A commit's value."""

    offset: int | None
    metadata: str | None
    commit_ms: int | None
    expire_ms: int | None


UNREADABLE = Value(None, None, None, None)


class Layout(NamedTuple):
    """The positions in a value of one version: of the metadata's length, and the size of the fields after the
    metadata."""

    length_at: int
    behind: int  # bytes
    expires: bool


LAYOUTS = {0: Layout(10, 8, False), 1: Layout(10, 16, True), 2: Layout(10, 8, False), 3: Layout(14, 8, False)}


@lru_cache(maxsize=KEYS_KNOWN)
def parse_key(key: bytes) -> tuple[str, str, int] | None:
    """Return group, topic and partition. None: the key is not that of an offset, or cannot be parsed.

    >>> parse_key(bytes.fromhex("0001 0001 67 0001 74 00000003"))
    ('g', 't', 3)
    >>> parse_key(bytes.fromhex("0002 0001 67")), parse_key(b"")
    (None, None)
    """
    try:
        if struct.unpack_from(">h", key)[0] not in OFFSET_KEYS:
            return None
        group, at = _string(key, 2)
        topic, at = _string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
    except (struct.error, ValueError):
        return None
    return (group, topic, partition) if at + 4 == len(key) else None


def parse_value(value: bytes) -> Value | None:
    """Return the commit. None: it cannot be parsed.

    >>> parse_value(bytes.fromhex("0003 0000000000000007 ffffffff 0000 0000000000000009"))
    Value(offset=7, metadata='', commit_ms=9, expire_ms=None)
    """
    try:
        version, offset = struct.unpack_from(">hq", value)
        if version == 4:
            return _flexible(value, offset)
        layout = LAYOUTS.get(version)
        if layout is None:
            return None
        metadata, at = _string(value, layout.length_at, "replace")
        if at + layout.behind != len(value):
            return None
        commit_ms, *rest = struct.unpack_from(f">{layout.behind // 8}q", value, at)
    except (struct.error, ValueError):
        return None
    return Value(offset, metadata, _time(commit_ms), _time(*rest) if rest else None)


def _flexible(value: bytes, offset: int) -> Value | None:
    length, at = _uvarint(value, 14)  # 0 is null; else it is the length plus one
    end = at + max(length - 1, 0)
    metadata = value[at:end].decode("utf-8", "replace")
    (commit_ms,) = struct.unpack_from(">q", value, end)
    tags, at = _uvarint(value, end + 8)
    for _ in range(tags):
        _, at = _uvarint(value, at)
        size, at = _uvarint(value, at)
        at += size
    return Value(offset, metadata, _time(commit_ms), None) if at == len(value) else None


def _string(data: bytes, at: int, errors: str = "strict") -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(length, 0)  # -1 is null
    if length < -1 or end > len(data):
        raise ValueError(length)
    return data[at + 2 : end].decode("utf-8", errors), end


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
    raise ValueError(at)


def _time(ms: int) -> int | None:
    return None if ms == NO_TIME else ms


def commits_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the content of the records with offset keys, in the log's order. `records` has the columns of Spark's
    Kafka source."""
    keys = records.column("key").dictionary_encode()
    parsed = [None if key is None else parse_key(key) for key in keys.dictionary.to_pylist()]
    known = pc.is_in(keys.indices, pa.array([n for n, each in enumerate(parsed) if each is not None], pa.int32()))
    told = pa.Table.from_arrays(
        [keys.indices, *(records.column(name) for name in ("value", "partition", "offset", "timestamp"))],
        names=["key", "value", "log_partition", "log_offset", "log_ms"],
    ).filter(known)
    parts = [_tombstones(told.filter(told["value"].is_null()))]
    left = told.filter(told["value"].is_valid())
    for version in _versions(left["value"].combine_chunks()):
        fitting = _fits(left["value"].combine_chunks(), version, LAYOUTS[version])
        parts.append(_cut(left.filter(fitting), LAYOUTS[version]))
        left = left.filter(pc.invert(fitting))
    parts.append(_one_by_one(left))
    table = pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])
    if table.num_rows > max(part.num_rows for part in parts):  # of several kinds
        table = table.sort_by("log_offset")
    code = table["key"]
    columns = [pa.array([p and p[n] for p in parsed], COMMIT.field(n).type).take(code) for n in range(3)]
    columns += [table[name].cast(COMMIT.field(name).type) for name in COMMIT.names[3:]]
    batches = pa.Table.from_arrays(columns, schema=COMMIT).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=COMMIT)


def _versions(values: pa.Array) -> list[int]:
    """The versions of LAYOUTS that occur among these values."""
    told = _numbers(values.filter(pc.greater_equal(pc.binary_length(values), 2)), pa.int16(), 0, 2)
    return [version for version in pc.unique(told).to_pylist() if version in LAYOUTS]


def _numbers(values: pa.Array, kind: pa.DataType, start: int, stop: int | None = None) -> pa.Array:
    """The big-endian numbers at this position of the values, all of which are long enough."""
    data = pc.binary_reverse(pc.binary_slice(values, start, stop)).buffers()[2]
    return pa.Array.from_buffers(kind, len(values), [None, data if len(values) else pa.py_buffer(b"")])


def _fits(values: pa.Array, version: int, layout: Layout) -> pa.Array:
    """True for values of this version whose length fits the length of their metadata."""
    lengths = pc.fill_null(pc.binary_length(values), 0)
    fixed = layout.length_at + 2 + layout.behind
    long = pc.greater_equal(lengths, fixed)
    some = values.filter(long)
    right = pc.and_(
        pc.equal(_numbers(some, pa.int16(), 0, 2), version),
        pc.equal(
            pc.add(_numbers(some, pa.int16(), layout.length_at, layout.length_at + 2).cast(pa.int32()), fixed),
            lengths.filter(long),
        ),
    )
    return pc.replace_with_mask(long, long, right)


def _cut(part: pa.Table, layout: Layout) -> pa.Table:
    """The commits of fitting values, as columns."""
    values = part["value"].combine_chunks()
    texts = pc.binary_slice(values, layout.length_at + 2, -layout.behind)
    try:
        metadata = texts.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: another program's
        metadata = pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())
    commit_ms = _numbers(values, pa.int64(), -layout.behind, -8 if layout.expires else None)
    expire_ms = _times(_numbers(values, pa.int64(), -8)) if layout.expires else pa.nulls(len(part), pa.int64())
    offset = _numbers(values, pa.int64(), 2, 10)
    return _with(part, offset, metadata, _times(commit_ms), expire_ms)


def _times(ms: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(ms, NO_TIME), None, ms)


def _tombstones(part: pa.Table) -> pa.Table:
    nothing = pa.nulls(len(part), pa.int64())
    return _with(part, nothing, pa.nulls(len(part), pa.string()), nothing, nothing, tombstone=True)


def _one_by_one(part: pa.Table) -> pa.Table:
    """The content of values of other shapes, parsed one by one. An unparsable value has only nulls."""
    found = [parse_value(value) or UNREADABLE for value in part["value"].to_pylist()]
    columns = [pa.array([each[n] for each in found], COMMIT.field(name).type) for n, name in enumerate(Value._fields)]
    return _with(part, *columns)


def _with(part: pa.Table, *said: Any, tombstone: bool = False) -> pa.Table:
    """The part with the columns of its values."""
    ms = pc.divide(part["log_ms"].cast(pa.int64()), 1000)
    columns = [part["key"], *said, pa.array([tombstone] * len(part)), part["log_partition"], part["log_offset"], ms]
    return pa.Table.from_arrays(columns, names=["key", *COMMIT.names[3:]])
