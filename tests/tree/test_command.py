"""Commands: those of the draft are understood, ours are a superset of them, and a command that is not understood is
refused as a whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, counters, damaged, names, partitions, ranges, reads_or_refuses, texts
from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.tree.command import NotUnderstood, decode_command, encode_command, is_refused, refusal, refused_ownership

CLICKS_0 = TopicPartition("clicks", 0)
START = Command(
    option=Option.START_FETCHER,
    ownership={CLICKS_0: "g_h-1-aa-0"},
    generation=7,
    epoch=3,
    offsets="zookeeper",
    replay={CLICKS_0: (100, 600)},
)
EXAMPLE = (
    b'{"version":1,"option":"start-fetcher","ownershipMap":{"clicks-0":"g_h-1-aa-0"},"generation":7,"epoch":3,'
    b'"offsets":"zookeeper","replay":{"clicks-0":["100","600"]}}'
)


def test_an_example_command_is_written_and_read() -> None:
    assert encode_command(START) == EXAMPLE
    assert decode_command(EXAMPLE) == START


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (b'{"version":1,"option":"stop-fetcher"}', Command(option=Option.STOP_FETCHER)),
        (b'{"option":"stop-fetcher"}', Command(option=Option.STOP_FETCHER)),
        (
            b'{"version":1,"option":"stop-fetcher","ownershipMap":{}}',
            Command(option=Option.STOP_FETCHER, ownership={}),
        ),
        (
            b'{"version":1,"option":"start-fetcher","ownershipMap":{"a-b-12":"c-0"}}',
            Command(option=Option.START_FETCHER, ownership={TopicPartition("a-b", 12): "c-0"}),
        ),
        (
            b'{"version":1,"option":"offset-store","offsets":"dual","step":2,"later":[1]}',
            Command(option=Option.OFFSET_STORE, offsets="dual", step=2),
        ),
        (b'{"version":1,"option":"reject","reason":"why"}', Command(option=Option.REJECT, reason="why")),
        (b'{"version":1,"option":"ping"}\n', Command(option=Option.PING)),
        (
            b'{"version":1,"option":"start-fetcher","ownershipMap":{},"incarnations":{"clicks":2}}',
            Command(option=Option.START_FETCHER, ownership={}, incarnations={"clicks": 2}),
        ),
        (
            b'{"option":"start-fetcher","ownershipMap":{"t-0":"c-0","t-1":"c-0"},"ownerVersions":{"t-1":7,"t-2":8}}',
            Command(
                option=Option.START_FETCHER,
                ownership={TopicPartition("t", 0): "c-0", TopicPartition("t", 1): "c-0"},
                owner_versions={TopicPartition("t", 1): 7},
            ),
        ),
    ],
)
def test_a_command_is_read(data: bytes, command: Command) -> None:
    assert decode_command(data) == command


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "bad command nothing: no JSON"),
        (b"stop", "bad command 'stop': no JSON"),
        (b"{}", "option is missing"),
        (b'{"version":0,"option":"ping"}', "version is 0, allowed is an integer from 1"),
        (b'{"option":["ping"]}', "option is ['ping'], allowed is a text"),
        (b'{"option":"ping","ownershipMap":[]}', "ownershipMap is [], allowed is an object"),
        (b'{"option":"ping","ownershipMap":{"clicks":""}}', "ownershipMap.clicks names no partition"),
        (b'{"option":"ping","ownershipMap":{"clicks-01":""}}', "ownershipMap.clicks-01 names no partition"),
        (b'{"option":"ping","ownershipMap":{"a/b-1":""}}', "ownershipMap.'a/b-1' names no partition"),
        (b'{"option":"ping","ownershipMap":{"t-99999999999":""}}', "names no partition"),
        (b'{"option":"ping","ownershipMap":{"t-1":null}}', "ownershipMap.t-1 is None, allowed is a thread's name"),
        (b'{"option":"ping","replay":{"t-1":["600","100"]}}', "replay.t-1 is ['600', '100'], allowed is a list of"),
        (b'{"option":"ping","replay":{"t-1":["1"]}}', "replay.t-1 is ['1'], allowed is a list of start, end"),
        (b'{"option":"ping","generation":-1}', "generation is -1, allowed is an integer from 0"),
        (
            b'{"option":"ping","ownershipMap":{"t-1":""},"ownerVersions":{"t-1":-1}}',
            "ownerVersions.t-1 is -1, allowed is an integer from 0",
        ),
        (b'{"option":"ping","epoch":true}', "epoch is True, allowed is an integer from 0"),
    ],
)
def test_a_broken_command_is_refused_with_the_key_and_the_rule(data: bytes, message: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_command(data)
    assert message in str(caught.value)
    assert not isinstance(caught.value, NotUnderstood)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"version":1,"option":"dance"}',
            "option is 'dance', allowed is start-fetcher, stop-fetcher, offset-store, reject, ping",
        ),
        (b'{"version":2,"option":"ping"}', "version is 2, this program reads up to 1"),
        (b'{"version":2,"option":["new"]}', "version is 2, this program reads up to 1"),
    ],
)
def test_another_programs_command_is_not_understood(data: bytes, message: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        decode_command(data)
    assert str(caught.value).endswith(message)


def test_a_refusal_holds_the_error_and_the_command_as_it_was_read() -> None:
    command = b'{ "version": 9, "option": "start-fetcher", "ownershipMap": {"t-0": "c-0", "?": "c-1"} }'
    refused = refusal(command, NotUnderstood("version is 9"))
    assert json.loads(refused) == {"error": "version is 9", "command": json.loads(command)}
    assert is_refused(refused)
    assert refused_ownership(refused) == {TopicPartition("t", 0): "c-0"}


def test_a_refusal_of_what_is_no_json_holds_it_as_text() -> None:
    assert json.loads(refusal(b"stop!", CorruptError("no JSON"))) == {"error": "no JSON", "command": "stop!"}


@pytest.mark.parametrize("data", [b"\xff" * 1_000_000, b"\0" * 1_000_000, "\U0001f600".encode() * 250_000])
def test_a_refusal_of_a_megabyte_still_fits_into_a_znode(data: bytes) -> None:
    assert len(refusal(data, CorruptError("x" * 5000))) < 512 * 1024


@pytest.mark.parametrize("data", [b"", b"{}", b'{"error":1,"command":{}}', b'{"error":"x"}', b'{"error":', EXAMPLE])
def test_other_data_is_no_refusal_and_leaves_no_owners(data: bytes) -> None:
    assert not is_refused(data)
    assert refused_ownership(data) == {}


def test_a_refusal_is_no_command() -> None:
    with pytest.raises(CorruptError, match="option is missing"):
        decode_command(refusal(EXAMPLE, ValueError("x")))


commands = st.builds(
    Command,
    option=st.sampled_from(Option),
    ownership=st.none() | st.dictionaries(partitions, texts, max_size=4),
    generation=counters,
    epoch=counters,
    offsets=st.none() | names,
    step=st.none() | counters,
    replay=st.dictionaries(partitions, ranges, max_size=3),
    incarnations=st.dictionaries(names, st.integers(0, 2**31 - 1), max_size=3),
    reason=st.none() | texts,
)


@QUICK
@given(commands, st.integers(0, 2**31 - 1))
def test_a_command_reads_back_as_written(command: Command, version: int) -> None:
    command = replace(command, owner_versions=dict.fromkeys(command.ownership or (), version))
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused_and_the_refusal_is_one(data: bytes) -> None:
    message = reads_or_refuses(decode_command, data)
    assert message is not None
    assert is_refused(refusal(data, CorruptError(message)))


@QUICK
@given(st.binary(max_size=60) | commands.map(encode_command).flatmap(damaged))
def test_random_and_damaged_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_command, data)
    assert is_refused(refusal(data, ValueError("x")))
    refused_ownership(refusal(data, ValueError("x")))
    is_refused(data)
