"""Offsets: data that no client takes for a number is never used as a position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import QUICK, counters, reads_or_refuses
from zkcoord.errors import CorruptError, InvariantError
from zkcoord.tree.offset import decode_offset, encode_offset


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"0", 0),
        (b"1234", 1234),
        (b"1234\n", 1234),
        (b" 1234\r\n", 1234),
        (b"+7", 7),
        (b"007", 7),
        (b"9223372036854775807", 2**63 - 1),
        (b"", None),
        (b"\n", None),
        (b"-1", None),
        (b"-1\n", None),
        (b"-9223372036854775808", None),
    ],
)
def test_f34_an_offset_with_a_newline_is_read_and_a_negative_one_is_none(data: bytes, offset: int | None) -> None:
    assert decode_offset(data) == offset


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc", "bad offset 'abc': not a number"),
        (b"12 34", "bad offset '12 34': not a number"),
        (b"1.5", "bad offset '1.5': not a number"),
        (b"1_000", "bad offset '1_000': not a number"),
        (b"--1", "bad offset '--1': not a number"),
        (b"0x10", "bad offset '0x10': not a number"),
        ("\u0661".encode(), "bad offset '\\u0661': not a number"),
        (b"\xff", "bad offset '\\\\xff': not a number"),
        (b'{"offset":1}', "bad offset '{\"offset\":1}': not a number"),
        (b"9223372036854775808", "bad offset '9223372036854775808': beyond 64 bits"),
        (b"9" * 5000, "bad offset '" + "9" * 79 + "...: not a number"),
    ],
)
def test_f34_a_text_that_is_no_number_is_refused_with_the_text(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_offset(data)
    assert str(caught.value) == message


@QUICK
@given(counters)
def test_an_offset_reads_back_as_written_in_digits_alone(offset: int) -> None:
    assert decode_offset(encode_offset(offset)) == offset
    assert encode_offset(offset).isdigit()


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_no_other_offset_is_written(offset: int) -> None:
    with pytest.raises(InvariantError):
        encode_offset(offset)


@QUICK
@given(st.binary(max_size=12) | st.text(alphabet="0123456789+-_. \n\x1c\u00a0", max_size=9).map(str.encode))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_offset, data)
