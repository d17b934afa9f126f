"""Group records: people's values are read with their defaults, a wrong key is refused by its name, and nothing is
lost."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import (
    HOSTILE,
    QUICK,
    counters,
    damaged,
    partitions,
    reads_or_refuses,
    scalars,
    texts,
    unknown_keys,
)
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import Rebalance, TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, REQUESTS, GroupRecord, Policy, Request, Response, StoreMigration
from zkcoord.errors import CorruptError
from zkcoord.tree.adoption import adoption_fields
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.request import value_of

T = TypeVar("T", Request, Response, StoreMigration)

EXAMPLE = (
    b'{"version":1,"assignor":"sticky","rebalance":"cooperative",'
    b'"policy":{"on_timeout":"evict","max_rebalance_retries":4,"evict_grace_ms":null,"initial_delay_ms":0},'
    b'"offsets":{"store":"zookeeper","step":0},"weights":{},'
    b'"wish":{"hold":null,"pause":null,"rebalance":null,"reset":null,"delete":null},'
    b'"done":{"reset":{"run":"r1","state":"stopped"}}}'
)


def test_an_example_record_is_written_and_read() -> None:
    record = replace(DEFAULT_RECORD, assignor="sticky", responses={"reset": Response(run="r1", state="stopped")})
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
        requests={"hold": Request(who="me")},
    )


TOLD = {"offsets": "kafka", "strategy": "roundrobin", "kafka": "0.10.1.1"}


def test_an_adoptions_facts_are_written_and_read() -> None:
    told = Adoption(offsets="kafka", dual_commit=True, strategy="range", kafka="0.11", retries=10, broker="3.9.1")
    data = encode_record(replace(DEFAULT_RECORD, adoption=told))
    assert json.loads(data)["adoption"] == {
        "offsets": "kafka",
        "dual_commit": True,
        "strategy": "range",
        "kafka": "0.11",
        "retries": 10,
        "backoff_ms": 2000,
        "auto_commit_interval_ms": 60000,
        "exclude_internal": True,
        "broker": "3.9.1",
    }
    assert decode_record(data).adoption == told


def test_where_a_group_was_moved_is_written_and_read() -> None:
    moved = Moved(state=MoveState.LEAVING, tree="bb", address="zk2:2181", run="r1", paused=True)
    data = encode_record(replace(DEFAULT_RECORD, moved=moved))
    assert json.loads(data)["moved"] == {
        "state": "leaving",
        "tree": "bb",
        "address": "zk2:2181",
        "run": "r1",
        "paused": True,
    }
    assert decode_record(data).moved == moved
    with pytest.raises(CorruptError, match=r"moved\.state is 'away', allowed is leaving or gone or arriving"):
        decode_record(data.replace(b"leaving", b"away"))


def test_an_adoption_has_the_old_consumers_defaults_where_nothing_was_told() -> None:
    record = decode_record(json.dumps({"adoption": TOLD}).encode())
    assert record.adoption == Adoption(
        offsets="kafka",
        strategy="roundrobin",
        kafka="0.10.1.1",
        dual_commit=False,
        retries=4,
        backoff_ms=2000,
        auto_commit_interval_ms=60000,
        exclude_internal=True,
        broker=None,
    )


def test_a_broker_version_that_nobody_told_is_not_written() -> None:
    assert "broker" not in adoption_fields(Adoption(offsets="zookeeper", strategy="range", kafka="1.1"))


@pytest.mark.parametrize("adoption", [None, {}])
def test_a_record_without_an_adoption_says_so(adoption: object) -> None:
    assert decode_record(json.dumps({"adoption": adoption}).encode()).adoption is None
    assert "adoption" not in json.loads(encode_record(DEFAULT_RECORD))


def test_unknown_keys_survive_wherever_they_stand() -> None:
    document = json.loads(EXAMPLE)
    document["note"] = {"ticket": ["OPS-1", 1.5]}
    document["policy"]["later"] = True
    document["offsets"]["since"] = "2015"
    document["adoption"] = adoption_fields(Adoption(offsets="kafka", strategy="range", kafka="1.1"))
    document["adoption"]["later"] = [1.5]
    document["offsets"]["migration"] = {"goal": 7, "who": "me", "odd": [1]}
    document["wish"]["archive"] = {"who": "me"}
    document["wish"]["hold"] = {"who": "me", "odd": [1], "when": 7, "run": "", "expiry_ms": "5000", "offsets": False}
    document["done"]["archive"] = {"run": "r1", "state": None, "later": {}}
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
        ({"adoption": "yes"}, "adoption is 'yes', allowed is an object"),
        ({"adoption": {"offsets": "kafka"}}, "adoption.kafka is missing: whoever knows the old members' configuration"),
        ({"adoption": {"strategy": "range"}}, "adoption.offsets is missing: whoever knows the old members' config"),
        ({"adoption": TOLD | {"offsets": "?"}}, "adoption.offsets is '?', allowed is zookeeper or kafka"),
        ({"adoption": TOLD | {"offsets": ["kafka"]}}, "adoption.offsets is ['kafka'], allowed is zookeeper or kafka"),
        ({"adoption": TOLD | {"strategy": "sticky"}}, "adoption.strategy is 'sticky', allowed is range or roundrobin"),
        ({"adoption": TOLD | {"kafka": "2.0"}}, "adoption.kafka is '2.0', allowed is 0.8, 0.9, 0.10, 0.11, 1.0 or 1.1"),
        ({"adoption": TOLD | {"kafka": 1.1}}, "adoption.kafka is 1.1, allowed is 0.8, 0.9, 0.10, 0.11, 1.0 or 1.1"),
        ({"adoption": TOLD | {"broker": "new"}}, "adoption.broker is 'new', allowed is a version such as"),
        ({"adoption": TOLD | {"retries": 0}}, "adoption.retries is 0, allowed is an integer from 1 to 2147483647"),
        ({"adoption": TOLD | {"backoff_ms": -1}}, "adoption.backoff_ms is -1, allowed is an integer from 0"),
        ({"adoption": TOLD | {"exclude_internal": "yes"}}, "adoption.exclude_internal is 'yes', allowed is true or"),
        (
            {"adoption": TOLD | {"offsets": "zookeeper", "dual_commit": True}},
            "adoption.dual_commit is True, allowed is false, unless offsets is kafka",
        ),
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
adoptions = st.builds(
    Adoption,
    offsets=st.just("kafka"),
    strategy=st.sampled_from(["range", "roundrobin"]),
    kafka=st.sampled_from(["0.8", "0.8.2.2", "0.11.0.2", "1.1"]),
    dual_commit=st.booleans(),
    retries=st.integers(1, 2**31 - 1),
    backoff_ms=delays,
    auto_commit_interval_ms=delays,
    exclude_internal=st.booleans(),
    broker=st.none() | st.sampled_from(["0.10.2", "4.0.0"]),
    unknown=unknown_keys,
)


def told(kind: type[T]) -> st.SearchStrategy[T]:
    """Values of a kind as a record may have them, with keys and values that this version does not know."""
    keys = st.sampled_from([*kind.__dataclass_fields__]) | texts
    return st.dictionaries(keys, scalars, max_size=5).map(partial(value_of, kind))


records = st.builds(
    GroupRecord,
    assignor=st.none() | st.sampled_from(["sticky", "range"]),
    rebalance=st.sampled_from(Rebalance),
    policy=policies,
    store_name=st.sampled_from(["zookeeper", "dual", "kafka"]),
    store_step=counters,
    migration=st.none() | told(StoreMigration),
    weights=st.dictionaries(partitions, st.integers(1, 2**31 - 1), max_size=3),
    requests=st.dictionaries(st.sampled_from(REQUESTS), told(Request)),
    responses=st.dictionaries(st.sampled_from(REQUESTS), told(Response)),
    adoption=st.none() | adoptions,
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
