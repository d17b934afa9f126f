"""Registrations: those of old clients are read as the old clients read them, and all old clients can read ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, counters, damaged, names, reads_or_refuses, texts
from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.registration import Registration, decode_registration, encode_registration

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "legacy_vectors.json").read_text())
OLD_TEXTS = sorted({text for vector in VECTORS for text in vector["registrations"].values()})
READ_BY_SOME = {text for vector in VECTORS if "error" not in vector for text in vector["registrations"].values()}
WRITTEN_BY_MEMBERS = {v["registrations"][consumer] for v in VECTORS for consumer in v["specs"]}
READ_BY_NONE = set(OLD_TEXTS) - READ_BY_SOME - WRITTEN_BY_MEMBERS  # not those that were read but had no plan
OURS = Registration(
    subscription={"clicks": 2},
    timestamp="1416335000123",
    coordination="zkcoord/1",
    instance="etl-1",
    assignors=("sticky", "range"),
)
FULL = replace(
    OURS,
    protocols=(1, 3),
    offers=frozenset({"replay", "ping", "offset-store"}),
    hold_ms=30_000,
    rack="dc1",
    capacity=4,
    offsets=("zookeeper", "kafka"),
    replaces="g_etl-1-1416335000000-1a2b3c4d",
)
EXAMPLE = (
    b'{"version":1,"subscription":{"clicks":2},"pattern":"static","timestamp":"1416335000123",'
    b'"coordination":"zkcoord/1","instance":"etl-1","assignors":["sticky","range"],'
    b'"rebalance_timeout_ms":"60000","session_timeout_ms":"10000"}'
)


def read(text: str) -> Registration:
    return decode_registration(text.encode())


def why(text: str) -> str:
    with pytest.raises(CorruptError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("text", OLD_TEXTS)
def test_a_registration_is_read_if_one_old_client_reads_it_and_refused_if_none_does(text: str) -> None:
    message = reads_or_refuses(decode_registration, text.encode())
    assert (message is not None) == (text in READ_BY_NONE), message


def test_the_vectors_hold_refused_texts() -> None:
    assert len(READ_BY_NONE) == 13


@pytest.mark.parametrize(
    ("text", "subscription", "pattern"),
    [
        ('{"version":1,"subscription":{"a":1,"b.c_d":3},"pattern":"static"}', {"a": 1, "b.c_d": 3}, "static"),
        ('{ "pattern" : "static", "subscription" : { "t": 1 } }', {"t": 1}, "static"),
        ('{"subscription":{},"pattern":"static"}', {}, "static"),
        ('{"subscription":{},"pattern":"white_list"}', {}, "white_list"),
        ('{"subscription":{"t":1},"pattern":"whitelist"}', {"t": 1}, "static"),
        ('{"subscription":{"b":2,"a":1},"pattern":"white_list"}', {"b": 2}, "white_list"),
        (
            '{"subscription":{"t0":1,"t1":1,"t2":1,"t3":1,"t4":1,"t5":1},"pattern":"white_list"}',
            {"t4": 1},
            "white_list",
        ),
        ('{"subscription":{"t":1,"t":2},"pattern":"static"}', {"t": 2}, "static"),
        (r'{"subscription":{"foo\.bar":1},"pattern":"white_list"}', {r"foo\.bar": 1}, "white_list"),
        (r'{"subscription":{"foo\\.bar":1},"pattern":"white_list"}', {r"foo\.bar": 1}, "white_list"),
        (r'{"subscription":{"foo\\\\.bar":1},"pattern":"black_list"}', {r"foo\\.bar": 1}, "black_list"),
        (r'{"subscription":{"foo\bar":1},"pattern":"white_list"}', {"foo\bar": 1}, "white_list"),
        ('{"subscription":{" \'a, b\' ":1},"pattern":"white_list"}', {"a|b": 1}, "white_list"),
        (r'{"subscription":{"\bfoo":1},"pattern":"black_list"}', {"foo": 1}, "black_list"),
        (r'{"subscription":{"a\/b":1},"pattern":"static"}', {"a/b": 1}, "static"),
        ('{"subscription":{"ä":1},"pattern":"static"}', {"ä": 1}, "static"),
        ('{"subscription":{"t":1},"pattern":"static","x":{"y":[1.5,1e3,99999999999]}}', {"t": 1}, "static"),
        ('{"subscription":{"t":1},"pattern":"static"}trailing', {"t": 1}, "static"),
    ],
)
def test_old_texts_mean_what_old_clients_read(text: str, subscription: dict[str, int], pattern: str) -> None:
    assert read(text) == Registration(subscription=subscription, pattern=pattern)


@pytest.mark.parametrize(
    ("written", "timestamp"),
    [
        ("", ""),
        (',"timestamp":"1416335000123"', "1416335000123"),
        (',"timestamp":1416335000', "1416335000"),
        (',"timestamp":true', ""),
        (',"timestamp":[1]', ""),
        (',"timestamp":null', ""),
    ],
)
def test_the_timestamp_may_be_a_text_a_number_or_missing(written: str, timestamp: str) -> None:
    assert read('{"subscription":{"t":1},"pattern":"static"' + written + "}").timestamp == timestamp


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad registration nothing: empty (its client may be about to write it)"),
        ("clicks", "bad registration 'clicks': a bare topic name (pykafka's balanced consumer), no registration"),
        ("*4*white.*", "bad registration '*4*white.*': a Kafka 0.7 wildcard, which no later client reads"),
        ("!2!black.*", "bad registration '!2!black.*': a Kafka 0.7 wildcard, which no later client reads"),
        ('{ "t": 4 }', "bad registration '{ \"t\": 4 }': a Kafka 0.7 topic map, which no later client reads"),
        ("{}", "bad registration '{}': pattern is missing"),
        ("[1]", "bad registration '[1]': not a JSON object"),
        ('{"pattern":"static"}', 'bad registration \'{"pattern":"static"}\': subscription is missing'),
    ],
)
def test_a_refusal_says_what_was_seen_and_why(text: str, message: str) -> None:
    assert why(text) == message


def test_a_refusal_shows_the_first_80_characters_only() -> None:
    assert why("?" * 5000).startswith("bad registration '" + "?" * 79 + "...: ")


@pytest.mark.parametrize("count", ["0", "-1", '"1"', "1.0", "1e0", "true", "null", "[1]", "2147483648"])
def test_a_count_that_is_no_integer_of_at_least_1_is_refused(count: str) -> None:
    assert "subscription gives 't'" in why('{"subscription":{"t":' + count + '},"pattern":"static"}')


@pytest.mark.parametrize(
    "regex", ["t[", "(t|T)[0-9]{1|2}", "(t|T)[0-9]{1,2}", "*x", "(", "a)", "[^a-z&&[^b]]", "(?P<x>a)"]
)
def test_a_regex_that_does_not_compile_is_refused(regex: str) -> None:
    document = json.dumps({"subscription": {regex: 1}, "pattern": "white_list"})
    assert "subscription holds a bad regex" in why(document)


def test_a_wildcard_that_readers_would_change_is_not_written() -> None:
    with pytest.raises(
        UsageError, match=r"no client would read the wildcard 't\{1,2\}' as it stands: write 't\{1|2\}'"
    ):
        encode_registration(replace(OURS, subscription={"t{1,2}": 1}, pattern="white_list"))


def test_an_example_text_is_written_and_read() -> None:
    assert encode_registration(OURS) == EXAMPLE
    assert decode_registration(EXAMPLE) == OURS


def test_optional_keys_are_written_as_texts_and_left_out_at_their_defaults() -> None:
    further = {
        "protocols": "1-3",
        "offers": ["offset-store", "ping", "replay"],
        "hold_ms": "30000",
        "rack": "dc1",
        "capacity": "4",
        "offsets": ["zookeeper", "kafka"],
        "replaces": "g_etl-1-1416335000000-1a2b3c4d",
    }
    assert json.loads(encode_registration(FULL)) == {**json.loads(EXAMPLE), **further}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rebalance_timeout_ms", "abc", "rebalance_timeout_ms is 'abc', allowed is an integer from 1 to"),
        ("session_timeout_ms", "0", "session_timeout_ms is '0', allowed is an integer from 1 to 2147483647"),
        ("instance", "a/b", "instance is 'a/b', allowed is a name that can stand in a path"),
        ("instance", "..", "instance is '..', allowed is a name that can stand in a path"),
        ("assignors", "sticky", "assignors is 'sticky', allowed is a list of texts that are not empty"),
        ("protocols", "2-1", "protocols is '2-1', allowed is \"<lowest>-<highest>\""),
        ("offers", [1], "offers is [1], allowed is a list of texts that are not empty"),
        ("hold_ms", "-1", "hold_ms is '-1', allowed is an integer from 0 to"),
        ("capacity", 0, "capacity is 0, allowed is an integer from 1 to 2147483647"),
        ("rack", 7, "rack is 7, allowed is a text"),
        ("replaces", "", "replaces is '', allowed is a text that is not empty"),
        ("coordination", "zkcoord/2", "coordination is 'zkcoord/2', allowed is \"zkcoord/1\""),
    ],
)
def test_garbage_in_our_own_keys_is_refused_by_key(key: str, value: Any, message: str) -> None:
    assert message in why(json.dumps({**json.loads(EXAMPLE), key: value}))


@pytest.mark.parametrize("marker", [None, 1.5, "", "theirs", {"since": 1416335000000}, True])
def test_without_our_marker_our_keys_are_somebody_elses(marker: Any) -> None:
    document = {**json.loads(EXAMPLE), "coordination": marker, "rebalance_timeout_ms": "abc", "rack": 7}
    assert read(json.dumps(document)) == Registration(subscription={"clicks": 2}, timestamp="1416335000123")


@pytest.mark.parametrize(
    "registration",
    [
        replace(OURS, subscription={"t": 0}),
        replace(OURS, subscription={"t[": 1}, pattern="white_list"),
        replace(OURS, instance="a/b"),
        replace(OURS, session_timeout_ms=0),
    ],
)
def test_an_unreadable_registration_is_not_written(registration: Registration) -> None:
    with pytest.raises(UsageError, match="no client could read this registration: bad registration"):
        encode_registration(registration)


static = st.dictionaries(names, st.integers(1, 65_536), max_size=5).map(lambda s: ("static", s))
wildcard = st.tuples(
    st.sampled_from(["white_list", "black_list"]),
    st.dictionaries(st.sampled_from([".*", r"foo\.bar|baz.*", r"t\d+", "(a|b)-[^_]{2}"]), st.just(2), max_size=1),
)
old = st.builds(
    lambda sub, ts: Registration(pattern=sub[0], subscription=sub[1], timestamp=ts), static | wildcard, texts
)
protocols = st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1]))
ours = st.builds(
    replace,
    old,
    coordination=st.just("zkcoord/1"),
    instance=st.none() | st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True),
    assignors=st.lists(names, max_size=3).map(tuple),
    rebalance_timeout_ms=counters.map(lambda n: n or 1),
    session_timeout_ms=st.integers(1, 2**31 - 1),
    protocols=protocols,
    offers=st.frozensets(names, max_size=3),
    hold_ms=counters,
    rack=st.none() | names,
    capacity=st.none() | st.integers(1, 2**31 - 1),
    offsets=st.none() | st.lists(names, max_size=3).map(tuple),
    replaces=st.none() | names,
)


@QUICK
@given(old | ours)
def test_a_registration_reads_back_as_written(registration: Registration) -> None:
    data = encode_registration(registration)
    assert decode_registration(data) == registration
    assert data.isascii()


@QUICK
@given(ours)
def test_every_number_that_is_written_is_one_that_the_oldest_clients_read(registration: Registration) -> None:
    def number(text: str) -> int:
        assert -(2**31) <= int(text) < 2**31
        return int(text)

    json.loads(encode_registration(registration), parse_int=number, parse_float=pytest.fail)


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_registration, data) is not None


@QUICK
@given(st.binary(max_size=60) | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_registration, data)


@QUICK
@given(st.sampled_from([encode_registration(FULL), *(t.encode() for t in sorted(READ_BY_SOME)[:20])]).flatmap(damaged))
def test_damaged_registrations_never_raise_anything_else(data: bytes) -> None:
    reads_or_refuses(decode_registration, data)
