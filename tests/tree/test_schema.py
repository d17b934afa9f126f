"""Schema and epoch: the nodes that tell a program whether it may work on a tree."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, counters, damaged, objects, reads_or_refuses, texts, unknown_keys
from zkcoord.errors import CorruptError, InvariantError
from zkcoord.tree.schema import Schema, decode_epoch, decode_schema, encode_epoch, encode_schema

WRITTEN = b'{"version":1,"revision":"0001","layout":"draft","migration":null}'
NAMED = b'{"version":1,"revision":"0002","layout":"draft","tree_id":"5e0b","migration":null}'


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (Schema(revision="0001", layout="draft"), WRITTEN),
        (Schema(revision="0002", layout="draft", tree_id="5e0b"), NAMED),
    ],
)
def test_a_schema_is_written_and_read_with_and_without_the_trees_id(schema: Schema, data: bytes) -> None:
    assert encode_schema(schema) == data
    assert decode_schema(data) == schema


def test_a_revisions_additions_are_kept() -> None:
    document = {**json.loads(WRITTEN), "coordinator": "/consumers/coordinator", "migration": {"run": "r1", "to": "2"}}
    schema = decode_schema(json.dumps(document).encode())
    assert schema.migration == {"run": "r1", "to": "2"}
    assert json.loads(encode_schema(schema)) == document


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "bad schema nothing: no JSON"),
        (b"{}", "revision is missing"),
        (b'{"revision":"1"}', "layout is missing"),
        (b'{"revision":1,"layout":"draft"}', "revision is 1, allowed is a text"),
        (b'{"revision":"1","layout":"draft","tree_id":7}', "tree_id is 7, allowed is a text"),
        (b'{"revision":"1","layout":"draft","migration":"yes"}', "migration is 'yes', allowed is an object"),
        (b'{"version":2,"revision":"1","layout":"draft"}', "version is 2, this program reads up to 1"),
    ],
)
def test_a_broken_schema_is_refused_with_the_key_and_the_rule(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_schema(data)
    assert message in str(caught.value)


schemas = st.builds(
    Schema, revision=texts, layout=texts, tree_id=texts, migration=st.none() | objects, unknown=unknown_keys
)


@QUICK
@given(schemas)
def test_a_schema_reads_back_as_written(schema: Schema) -> None:
    assert decode_schema(encode_schema(schema)) == schema


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_schema, data) is not None


@QUICK
@given(st.binary(max_size=60) | schemas.map(encode_schema).flatmap(damaged))
def test_random_and_damaged_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_schema, data)
    reads_or_refuses(decode_epoch, data)


@QUICK
@given(counters)
def test_an_epoch_reads_back_as_written(epoch: int) -> None:
    assert decode_epoch(encode_epoch(epoch)) == epoch


@pytest.mark.parametrize("data", [b"", b"-1", b"x", b"1.5", b"9223372036854775808"])
def test_another_epoch_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptError, match=r"bad epoch .*: not a number"):
        decode_epoch(data)


def test_a_negative_epoch_is_never_written() -> None:
    with pytest.raises(InvariantError):
        encode_epoch(-1)
