"""Records of `__consumer_offsets`, decoded in columns, against the plain parser and against Kafka's own bytes."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.spark.history.decoding import COMMIT, UNREADABLE, commits_of, parse_key, parse_value

KEY = bytes.fromhex("0001000167000174") + struct.pack(">i", 3)  # g, t-3
GROUP_KEY = bytes.fromhex("0002000167")


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def value_of(version: int, offset: int, metadata: bytes, commit_ms: int, expire_ms: int = -1) -> bytes:
    head = struct.pack(">hq", version, offset)
    if version in (0, 2):
        return head + text(metadata) + struct.pack(">q", commit_ms)
    if version == 1:
        return head + text(metadata) + struct.pack(">qq", commit_ms, expire_ms)
    if version == 3:
        return head + struct.pack(">i", -1) + text(metadata) + struct.pack(">q", commit_ms)
    length = uvarint(len(metadata) + 1)
    tags = bytes([1, 0, 16]) + bytes(range(16)) if offset % 2 else bytes([0])
    return head + struct.pack(">i", 5) + length + metadata + struct.pack(">q", commit_ms) + tags


def uvarint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def records(*pairs: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    """As a reader of Kafka returns them: offsets from 100 on, a second apart."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    count = len(pairs)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([7] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array([n * 1_000_000 for n in range(count)], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


def decoded(*pairs: tuple[bytes | None, bytes | None]) -> list[dict[str, Any]]:
    batch = commits_of(records(*pairs))
    assert batch.schema.equals(COMMIT)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def test_a_record_of_a_real_1_1_1_broker_is_read() -> None:
    key = bytes.fromhex("0001") + text(b"dkg") + text(b"t") + bytes(4)
    value = bytes.fromhex("0001 0000000000000064 0000 000001a1fb5fd8f0 000001a2008634f0")
    (row,) = decoded((key, value))
    assert (row["group"], row["topic"]) == ("dkg", "t")
    assert (row["offset"], row["metadata"], row["tombstone"]) == (100, "", False)
    assert row["expire_ms"] - row["commit_ms"] == 86_400_000
    assert (row["log_partition"], row["log_offset"], row["log_ms"]) == (7, 100, 0)


@pytest.mark.parametrize("version", range(5))
def test_each_version_of_a_value_is_read(version: int) -> None:
    value = value_of(version, 41, b"m\xc3\xa4rk", 1_700_000_000_000, 1_700_000_001_000)
    (row,) = decoded((KEY, value))
    expire_ms = 1_700_000_001_000 if version == 1 else None
    assert [row[name] for name in COMMIT.names[:7]] == ["g", "t", 3, 41, "märk", 1_700_000_000_000, expire_ms]


def test_a_records_own_time_is_in_milliseconds() -> None:
    value = value_of(3, 5, b"", 9)
    assert [row["log_ms"] for row in decoded((KEY, value), (GROUP_KEY, b""), (KEY, None))] == [0, 2_000]


def test_a_key_of_version_0_is_of_an_offset_too() -> None:
    (row,) = decoded((b"\0\0" + KEY[2:], value_of(3, 5, b"", 9)))
    assert (row["group"], row["topic"], row["partition"], row["offset"]) == ("g", "t", 3, 5)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_metadata_that_is_null_is_none(version: int) -> None:
    whole = value_of(version, 5, b"", 9, 10)
    at = 14 if version == 3 else 10
    (row,) = decoded((KEY, whole[:at] + b"\xff\xff" + whole[at + 2 :]))
    assert (row["offset"], row["metadata"], row["commit_ms"]) == (5, "", 9)


def test_of_a_flexible_value_metadata_may_be_long_and_nothing_stands_behind_its_tags() -> None:
    long = value_of(4, 5, b"m" * 20_000, 9)
    rows = decoded((KEY, long), (KEY, long + b"\0"))
    assert [(row["offset"], len(row["metadata"] or "")) for row in rows] == [(5, 20_000), (None, 0)]


@pytest.mark.parametrize("version", range(5))
def test_a_time_that_kafka_does_not_give_is_none(version: int) -> None:
    value = value_of(version, 5, b"", -1, -1)
    (row,) = decoded((KEY, value))
    assert (row["commit_ms"], row["expire_ms"]) == (None, None)
    assert parse_value(value) == (5, "", None, None)


def test_a_tombstone_is_a_commit_without_an_offset() -> None:
    (row,) = decoded((KEY, None))
    assert (row["group"], row["partition"], row["offset"], row["commit_ms"]) == ("g", 3, None, None)
    assert row["tombstone"]


def test_group_metadata_and_keys_of_later_versions_are_no_commits() -> None:
    later = bytes.fromhex("0009000167000174") + bytes(4)
    assert decoded((GROUP_KEY, b"\0\3anything"), (later, b""), (None, b"\0\1"), (b"", b"")) == []


def test_a_key_with_more_behind_it_is_none_that_is_known() -> None:
    assert decoded((KEY + b"x", value_of(3, 5, b"", 9)), (KEY[:-1], value_of(3, 5, b"", 9))) == []


def test_a_value_that_cannot_be_parsed_has_no_offset_and_is_no_tombstone() -> None:
    good = value_of(3, 5, b"", 9)
    rows = decoded((KEY, good[:-1]), (KEY, good), (KEY, b""), (KEY, b"\0\x09" + good[2:]))
    assert [(row["offset"], row["tombstone"]) for row in rows] == [(None, False), (5, False)] + 2 * [(None, False)]


def test_metadata_that_is_not_utf_8_does_not_hide_the_offset() -> None:
    assert decoded((KEY, value_of(3, 5, b"\xff\xfe", 9)))[0]["offset"] == 5
    assert decoded((KEY, value_of(4, 5, b"\xff\xfe", 9)))[0]["offset"] == 5
    assert parse_value(value_of(3, 5, b"\xff", 9)) == (5, "\ufffd", 9, None)


def test_a_batch_without_records_has_no_commits() -> None:
    assert decoded() == []


entries = st.tuples(
    st.sampled_from([KEY, KEY[:-1] + b"\4", GROUP_KEY]),
    st.one_of(
        st.none(),
        st.binary(max_size=40),
        st.builds(
            value_of,
            st.integers(0, 4),
            st.integers(0, 2**63 - 1),
            st.text(max_size=200).map(str.encode),
            st.integers(-1, 2**53),
            st.integers(-1, 2**53),
        ),
    ),
)


@settings(deadline=None)  # pyarrow loads its kernels in the first call
@given(st.lists(entries, max_size=30))
def test_columns_say_what_the_plain_parser_says(pairs: list[tuple[bytes, bytes | None]]) -> None:
    expected = []
    for number, (key, value) in enumerate(pairs):
        named = parse_key(key)
        if named is not None:
            said = UNREADABLE if value is None else parse_value(value) or UNREADABLE
            expected.append((*named, *said, value is None, 100 + number))
    shown = [*COMMIT.names[:8], "log_offset"]
    assert [tuple(row[name] for name in shown) for row in decoded(*pairs)] == expected


@settings(deadline=None)  # pyarrow loads its kernels in the first call
@given(st.binary(max_size=60))
def test_no_bytes_break_the_parsers(data: bytes) -> None:
    parse_key(data)
    parse_value(data)
    decoded((data, data), (KEY, data))
