"""Group records: people's words are read with their defaults, refused by key, and never lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import HOSTILE, QUICK, counters, damaged, objects, partitions, reads_or_refuses, unknown_keys
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, WISHES, GroupRecord, Policy
from zkcoord.errors import CorruptError
from zkcoord.tree.record import decode_record, encode_record

EXAMPLE = (
    b'{"version":1,"assignor":"sticky","rebalance":"cooperative",'
    b'"policy":{"on_timeout":"evict","max_rebalance_retries":4,"evict_grace_ms":null,"initial_delay_ms":0},'
    b'"offsets":{"store":"zookeeper","step":0},"weights":{},'
    b'"wish":{"hold":null,"pause":null,"rebalance":null,"reset":null,"delete":null},'
    b'"done":{"reset":{"run":"r1","state":"stopped"}}}'
)


def test_an_example_record_is_written_and_read() -> None:
    record = replace(DEFAULT_RECORD, assignor="sticky", done={"reset": {"run": "r1", "state": "stopped"}})
    assert encode_record(record) == EXAMPLE
    assert decode_record(EXAMPLE) == record


@pytest.mark.parametrize("data", [b"", b"{}", b"\n", b'{"version":1,"policy":{},"offsets":null}'])
def test_an_empty_record_is_the_default(data: bytes) -> None:
    assert decode_record(data) == DEFAULT_RECORD


def test_the_default_record_reads_back() -> None:
    assert decode_record(encode_record(DEFAULT_RECORD)) == DEFAULT_RECORD


def test_every_value_is_read() -> None:
    document = {
        "rebalance": "eager",
        "policy": {"on_timeout": "fail", "max_rebalance_retries": 0, "evict_grace_ms": 0, "initial_delay_ms": "3000"},
        "offsets": {"store": "dual", "step": 2},
        "weights": {"a-b-1": 5},
        "wish": {"hold": {"who": "me"}},
    }
    assert decode_record(json.dumps(document).encode()) == GroupRecord(
        rebalance=Rebalance.EAGER,
        policy=Policy(on_timeout="fail", max_rebalance_retries=0, evict_grace_ms=0, initial_delay_ms=3000),
        store_name="dual",
        store_step=2,
        weights={TopicPartition("a-b", 1): 5},
        wish={**dict.fromkeys(WISHES), "hold": {"who": "me"}},
    )


def test_unknown_keys_survive_wherever_they_stand() -> None:
    document = json.loads(EXAMPLE)
    document["note"] = {"ticket": ["OPS-1", 1.5]}
    document["policy"]["later"] = True
    document["offsets"]["since"] = "2015"
    document["wish"]["archive"] = {"who": "me"}
    document["wish"]["hold"] = {"who": "me", "odd": [1]}
    document["done"]["archive"] = None
    assert json.loads(encode_record(decode_record(json.dumps(document).encode()))) == document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 2}, "version is 2, this program reads up to 1"),
        ({"assignor": ""}, "assignor is '', allowed is null or a name"),
        ({"assignor": 1}, "assignor is 1, allowed is null or a name of small letters, digits, '.', '_' and '-'"),
        ({"rebalance": "gentle"}, "rebalance is 'gentle', allowed is cooperative or eager"),
        ({"rebalance": ["eager"]}, "rebalance is ['eager'], allowed is cooperative or eager"),
        ({"policy": "fail"}, "policy is 'fail', allowed is an object"),
        ({"policy": {"on_timeout": "retry"}}, "policy.on_timeout is 'retry', allowed is evict or fail"),
        ({"policy": {"max_rebalance_retries": -1}}, "policy.max_rebalance_retries is -1, allowed is an integer from 0"),
        ({"policy": {"evict_grace_ms": "soon"}}, "policy.evict_grace_ms is 'soon', allowed is an integer from 0"),
        ({"policy": {"initial_delay_ms": 1.5}}, "policy.initial_delay_ms is 1.5, allowed is an integer from 0"),
        ({"offsets": {"store": "A B"}}, "offsets.store is 'A B', allowed is null or a name"),
        ({"offsets": {"step": -1}}, "offsets.step is -1, allowed is an integer from 0"),
        ({"weights": {"clicks": 1}}, "weights.clicks names no partition, allowed is <topic>-<partition>"),
        ({"weights": {"clicks-1": 0}}, "weights.clicks-1 is 0, allowed is an integer from 1 to 2147483647"),
        ({"wish": {"hold": True}}, "wish.hold is True, allowed is null or an object"),
        ({"done": []}, "done is [], allowed is an object"),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_what_is_allowed(document: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptError, match="bad group record") as caught:
        decode_record(json.dumps(document).encode())
    assert message in str(caught.value)


delays = st.integers(0, 2**31 - 1)
policies = st.builds(
    Policy,
    on_timeout=st.sampled_from(["evict", "fail"]),
    max_rebalance_retries=st.integers(0, 1000),
    evict_grace_ms=st.none() | delays,
    initial_delay_ms=delays,
    unknown=unknown_keys,
)
wishes = st.dictionaries(st.sampled_from(WISHES), st.none() | objects)
records = st.builds(
    GroupRecord,
    assignor=st.none() | st.sampled_from(["sticky", "range"]),
    rebalance=st.sampled_from(Rebalance),
    policy=policies,
    store_name=st.sampled_from(["zookeeper", "dual", "kafka"]),
    store_step=counters,
    weights=st.dictionaries(partitions, st.integers(1, 2**31 - 1), max_size=3),
    wish=wishes.map(lambda wish: {**dict.fromkeys(WISHES), **wish}),
    done=wishes,
    unknown=unknown_keys,
    unknown_offsets=unknown_keys,
)


@QUICK
@given(records)
def test_a_record_reads_back_as_written(record: GroupRecord) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert reads_or_refuses(decode_record, data) is not None


@QUICK
@given(st.binary(max_size=60) | records.map(encode_record).flatmap(damaged))
def test_damaged_records_are_refused_or_can_be_written_again(data: bytes) -> None:
    if reads_or_refuses(decode_record, data) is None:
        record = decode_record(data)
        assert decode_record(encode_record(record)) == record
