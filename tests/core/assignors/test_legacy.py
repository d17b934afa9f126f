"""The legacy assignors, compared with the plans that real members of Kafka 0.8.2.2, 0.11.0.2 and 1.1.1 computed, for
every vector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.model import Subscriber, TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.tree.registration import BLACK_LIST, decode_registration
from zkcoord.tree.topic_filter import matches

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "legacy_vectors.json").read_text())
INTERNAL = {"__consumer_offsets", "__transaction_state"}
ROUNDROBIN = {"0.8.2.2": "roundrobin-0.8", "0.11.0.2": "roundrobin-0.8", "1.1.1": "roundrobin-1.0"}
TIED_0_8_2 = [v for v in VECTORS if v["hash_tie"] and v["version"] == "0.8.2.2"]  # here the members of 0.8.2.2 disagree
SETTLED = [v for v in VECTORS if "error" not in v and v not in TIED_0_8_2]
REFUSED = [v for v in VECTORS if "error" in v and v["strategy"] == "range"]  # by a registration, with any assignor
STRICT = [v for v in VECTORS if "error" in v and v["strategy"] == "roundrobin"]  # by the assignor of 0.8.2.2

_A, _B, _C = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb", "g_h-3-cccccccc"
Assignment = Mapping[TopicPartition, str]

NOTES: Assignment = {  # "notes section 2.4 rr" was not measured with 0.11.0.2: computed by hand from its rules
    **{TopicPartition("a", n): thread for n, thread in enumerate([f"{_A}-0", f"{_B}-0", f"{_A}-0"])},
    **{
        TopicPartition("events", n): thread
        for n, thread in enumerate(
            [*(2 * [f"{_A}-0", f"{_A}-1", f"{_B}-0", f"{_B}-1", f"{_C}-0"]), f"{_A}-1", f"{_B}-0"]
        )
    },
}


def title(vector: dict[str, Any]) -> str:
    """The vector's name in a test's report."""
    return f"{vector['version']}-{vector['name']}"


def threads_of(vector: dict[str, Any], text: str) -> dict[str, int]:
    """Topic -> threads of one registration, in the order of the registration."""
    registration = decode_registration(text.encode())
    regex = registration.wildcard
    if regex is None:
        return dict(registration.subscription)
    internal = INTERNAL if vector["exclude_internal"] else set()
    return {
        topic: registration.subscription[regex]
        for topic in vector["topics"]
        if topic not in internal and matches(regex, topic, black_list=registration.pattern == BLACK_LIST)
    }


def question(vector: dict[str, Any]) -> AssignorInput:
    """The group as the old members saw it."""
    registrations = vector["registrations"].items()
    return AssignorInput(
        subscribers=tuple(Subscriber(consumer_id=c, threads=threads_of(vector, text)) for c, text in registrations),
        partitions={
            topic: tuple(range(size)) if isinstance(size, int) else tuple(sorted(size))
            for topic, size in vector["topics"].items()
        },
        owned={},
    )


def answer(vector: dict[str, Any]) -> Assignment:
    """The answer of this project's assignor."""
    group = question(vector)
    name = "range" if vector["strategy"] == "range" else ROUNDROBIN[vector["version"]]
    found = ASSIGNORS[name](group)
    check_assignment(group, found)
    return found


def owners(vector: dict[str, Any]) -> Assignment:
    """The answer of the old members."""
    return {
        TopicPartition(topic, int(number)): thread
        for topic, shares in vector["owners"].items()
        for number, thread in shares.items()
    }


def test_every_vector_is_in_one_of_the_tests_below() -> None:
    assert list(map(len, (VECTORS, SETTLED, TIED_0_8_2, REFUSED, STRICT))) == [127, 66, 3, 49, 9]


@pytest.mark.parametrize("vector", SETTLED, ids=title)
def test_the_plan_equals_the_old_members_settled_one(vector: dict[str, Any]) -> None:
    assert answer(vector) == owners(vector)


@pytest.mark.parametrize("vector", TIED_0_8_2, ids=title)
def test_untied_partitions_go_as_of_old_and_shares_have_equal_sizes(vector: dict[str, Any]) -> None:
    """Names of some topics have equal hashes. 0.8.2.2 orders these topics by a map that each member fills
    differently."""
    untied = {"q", "r"} & vector["topics"].keys()
    found, old = answer(vector), owners(vector)
    assert {p: t for p, t in found.items() if p.topic in untied} == {p: t for p, t in old.items() if p.topic in untied}
    if len(old) == len(found):  # otherwise both members of 0.8.2.2 wanted one topic, and neither of them the other
        assert Counter(found.values()) == Counter(old.values())


@pytest.mark.parametrize("vector", REFUSED, ids=title)
def test_a_plan_that_broke_old_members_is_refused_or_read_tolerantly(
    vector: dict[str, Any],
) -> None:
    try:
        found = answer(vector)
    except CorruptError:
        return
    same = [v for v in SETTLED if v["name"] == vector["name"] and v["strategy"] == "range"]
    assert [v["version"] for v in same] == ["1.1.1"]
    assert found == owners(same[0])


@pytest.mark.parametrize("vector", STRICT, ids=title)
def test_where_only_0_8_2_refuses_to_deal_what_0_11_deals_is_dealt(vector: dict[str, Any]) -> None:
    if vector["error"].startswith("java.lang.NullPointerException"):  # KAFKA-1648: nobody subscribes to anything
        assert answer(vector) == {}
        return
    assert vector["error"].startswith("java.lang.IllegalArgumentException")
    same = [v for v in SETTLED if v["name"] == vector["name"] and v["version"] == "0.11.0.2"]
    assert answer(vector) == (owners(same[0]) if same else NOTES)
