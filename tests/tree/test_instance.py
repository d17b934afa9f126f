"""The state of a static member: it is written in a small form, read back completely, and refused with the reason if it
is damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.tree.cases import HOSTILE, QUICK, damaged, reads_or_refuses
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Instance
from zkcoord.errors import CorruptError
from zkcoord.tree.instance import decode_instance, encode_instance

SHARE = {TopicPartition("t", n): n % 2 for n in range(4)} | {TopicPartition("a-b", 7): 0}
INSTANCE = Instance(last_id="g_a-1-ff", hold_ms=30_000, threads={"t": 2, "a-b": 1}, share=SHARE, version=3)
TEXT = (
    b'{"version":1,"id":"g_a-1-ff","hold_ms":"30000","subscription":{"a-b":1,"t":2},'
    b'"share":{"a-b":{"0":"7"},"t":{"0":"0,2","1":"1,3"}}}'
)


def test_an_instance_is_written_and_read() -> None:
    assert encode_instance(INSTANCE) == TEXT
    found = decode_instance(TEXT, 3)
    assert (found, found.version) == (INSTANCE, 3)


def test_facts_for_an_assignor_are_written_and_read_too() -> None:
    told = replace(INSTANCE, rack="east", capacity=7, assignor="range")
    text = TEXT[:-1] + b',"rack":"east","capacity":"7","assignor":"range"}'
    assert (encode_instance(told), decode_instance(text, 3)) == (text, told)


def test_the_nodes_version_is_no_part_of_what_is_remembered() -> None:
    assert decode_instance(TEXT, 4) == INSTANCE


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ((b'"hold_ms":"30000"', b'"hold_ms":"-1"'), "hold_ms"),
        ((b'"a-b":1', b'"a-b":0'), "subscription.a-b"),
        ((b'{"0":"7"}', b'{"x":"7"}'), "share.a-b.x is no thread's number"),
        ((b'"1,3"', b'"3,1"'), "not ascending"),
        ((b'"id":"g_a-1-ff",', b""), "id is missing"),
    ],
)
def test_a_damaged_instance_is_named(damage: tuple[bytes, bytes], why: str) -> None:
    with pytest.raises(CorruptError, match=why):
        decode_instance(TEXT.replace(*damage), 0)


@pytest.mark.parametrize("data", [*HOSTILE, *(TEXT[:n] for n in range(len(TEXT)))])
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reads_or_refuses(lambda seen: decode_instance(seen, 0), data)


@QUICK
@given(damaged(TEXT))
def test_a_damaged_instance_is_read_or_refused(data: bytes) -> None:
    reads_or_refuses(lambda seen: decode_instance(seen, 0), data)
