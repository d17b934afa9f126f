"""Files of cases: whatever a file holds, the answer is a plan, a reason, or a message for the person who wrote the
file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.cases import QUICK, damaged
from zkcoord.errors import UsageError
from zkcoord.legacy.cases import PARTITIONS_MAX, Case, read_cases
from zkcoord.legacy.planning import plan_of

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "legacy_vectors.json").read_text())


def answered(text: str) -> None:
    """Read and plan all cases. The message of a UsageError must be one line of ASCII."""
    try:
        cases = read_cases(text)
    except UsageError as error:
        message = str(error)
        assert message.isascii() and "\n" not in message and len(message) < 600, message
        return
    for case in [cases] if isinstance(cases, Case) else cases:
        owners, why, _ = plan_of(case.group)
        assert (owners is None) is (why is not None)


@QUICK
@given(st.sampled_from(VECTORS).map(lambda vector: json.dumps(vector).encode()).flatmap(damaged))
def test_a_damaged_case_is_planned_or_refused(data: bytes) -> None:
    answered(data.decode("utf-8", "replace"))


@QUICK
@given(st.text(alphabet='[]{}",:019 tfn\\u\ud800', max_size=20))
def test_a_file_of_anything_is_refused_with_a_message(text: str) -> None:
    answered(text)


@QUICK
@given(st.sampled_from([v for v in VECTORS if "error" not in v and not v["hash_tie"]]), st.randoms())
def test_the_order_of_members_and_topics_in_a_file_changes_no_plan(vector: dict[str, Any], random: Any) -> None:
    """Ties are left out: for them the order in which members list topics counts."""
    shuffled = {
        key: dict(random.sample(sorted(value.items()), len(value))) if key in ("registrations", "topics") else value
        for key, value in vector.items()
    }
    first, second = (read_cases(json.dumps(value)) for value in (vector, shuffled))
    assert isinstance(first, Case) and isinstance(second, Case)
    assert plan_of(first.group) == plan_of(second.group)


CASE: dict[str, Any] = {"version": "1.1", "strategy": "range", "registrations": {}, "topics": {}}


def case(**keys: object) -> Case:
    found = read_cases(json.dumps({**CASE, **keys}))
    assert isinstance(found, Case)
    return found


def test_the_partitions_of_all_topics_of_a_case_are_limited_together() -> None:
    half = PARTITIONS_MAX // 2 + 1
    assert len(case(topics={"t": half}).group.topics["t"]) == half
    with pytest.raises(UsageError, match=f"topic 'u' is given {half}: .*at most {PARTITIONS_MAX} in all"):
        case(topics={"t": half, "u": half})


def test_a_partition_that_is_listed_twice_is_one() -> None:
    assert case(topics={"t": [2, 0, 2]}).group.topics == {"t": (0, 2)}


def test_internal_topics_are_excluded_unless_the_case_says_otherwise() -> None:
    told: list[dict[str, object]] = [{}, {"exclude_internal": None}, {"exclude_internal": False}]
    assert [case(**keys).group.exclude_internal for keys in told] == [True, True, False]


def test_an_object_with_two_lists_names_no_list_of_cases() -> None:
    with pytest.raises(UsageError, match="and no list of cases"):
        read_cases(json.dumps({"cases": [CASE], "more": [CASE]}))


def test_a_case_is_called_by_its_name_then_by_its_group_then_by_its_place() -> None:
    titles = [case(**keys).title for keys in ({"name": "n", "group": "g"}, {"group": "g"}, {})]
    assert titles == ["n", "g", "the case"]
