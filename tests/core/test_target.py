"""The group's assignor, and what happens when it gives no usable answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.core.groups import (
    NOW,
    T0,
    T1,
    T2,
    T3,
    Steps,
    altered,
    channel,
    command,
    decided,
    group,
    member,
    phase_of,
    state_set,
    states,
)
from zkcoord.core.assignors import ASSIGNORS, Assignor, AssignorInput
from zkcoord.core.decisions import Decision, GrantPartitions, PurgeChannel, SetState, StateEvent, StopFetching
from zkcoord.core.eligibility import Agreement, agree
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.view import GroupView, Owner

KNOWN = ("range", "roundrobin-0.8", "roundrobin-1.0", "sticky")


def offering(*offers: tuple[str, ...]) -> list:  # type: ignore[type-arg]
    """Members m1, m2, … in the order of joining."""
    return [member(f"m{n}", n, assignors=names) for n, names in enumerate(offers, 1)]


@pytest.mark.parametrize(
    ("offers", "decided_", "expected"),
    [
        ([("sticky", "range"), ("range", "sticky")], None, Agreement(assignor="sticky", rejected={})),
        ([("sticky", "range"), ("range",)], None, Agreement(assignor="range", rejected={})),
        ([("sticky", "range"), ("range", "sticky")], "range", Agreement(assignor="range", rejected={})),
        (
            [("sticky",), ("range", "sticky")],
            "range",
            Agreement(
                assignor="range",
                rejected={"m1": "offers the assignors ['sticky'], the group uses ['range']: offer one of these"},
            ),
        ),
        (
            [("mine", "sticky"), ("mine",)],
            None,
            Agreement(
                assignor="sticky",
                rejected={"m2": "offers the assignors ['mine'], the group uses ['sticky']: offer one of these"},
            ),
        ),
        (
            [("mine",), ("range",)],
            None,
            Agreement(
                assignor="range",
                rejected={
                    "m1": f"offers the assignors ['mine'], only {list(KNOWN)} are known: offer one of these, or install"
                    " yours beside the coordinator"
                },
            ),
        ),
        (
            [("sticky", "mine")],
            "mine",
            Agreement(
                assignor="sticky",
                rejected={},
                problem="the group's record asks for the assignor 'mine', only range, roundrobin-0.8,"
                " roundrobin-1.0, sticky are known: install it beside the coordinator, or change the record; until then"
                " it is 'sticky'",
            ),
        ),
        (
            [("sticky",)],
            "range",
            Agreement(
                assignor="sticky",
                rejected={},
                problem="the group's record asks for the assignor 'range', no member offers it: start consumers that"
                " offer it, or change the record; until then it is 'sticky'",
            ),
        ),
        ([], "range", Agreement(assignor="range", rejected={})),
    ],
)
def test_the_group_agrees_in_the_order_of_joining_and_goes_on(
    offers: list[tuple[str, ...]], decided_: str | None, expected: Agreement
) -> None:
    assert agree(offering(*offers), decided_, KNOWN) == expected


def with_own(function: Assignor) -> Mapping[str, Assignor]:
    return {**ASSIGNORS, "mine": function}


def by_first(given: AssignorInput) -> dict[TopicPartition, str]:
    """An assignor that gives everything to the first member."""
    first = min(member.consumer_id for member in given.subscribers)
    return {TopicPartition(t, n): f"{first}-0" for t, ids in given.partitions.items() for n in ids}


def raises(given: AssignorInput) -> dict[TopicPartition, str]:
    raise RuntimeError("the user's mistake")


WRONG: dict[str, tuple[Assignor, str]] = {
    "raises": (raises, "it raised RuntimeError: the user's mistake"),
    "no mapping": (lambda given: 7, "it answered int, not a mapping from partition to thread"),  # type: ignore[return-value,dict-item]
    "one too few": (lambda given: {}, "t-0 has subscribers with room for it and no thread"),
    "a stranger": (
        lambda given: dict.fromkeys(by_first(given), "x-0"),
        "t-0 is given to 'x-0', which is no thread of a subscriber of 't'",
    ),
    "too much": (
        lambda given: {**by_first(given), TopicPartition("u", 1): "a-0"},
        "u-1 is assigned, but it does not exist or nobody subscribed it",
    ),
    "no partitions": (lambda given: {1: "a-0"}, "its answer is no mapping from (topic, number) to thread"),  # type: ignore[dict-item]
}


def own(names: list[str], owners: Mapping[TopicPartition, str], **fields: object) -> GroupView:
    return group([member(n, 1 + i, assignors=("mine",)) for i, n in enumerate(names)], owners, **fields)


def decide_with(function: Assignor, view: GroupView, steps: Steps) -> list[Decision]:
    first, _ = steps.step(view, NOW, with_own(function))
    again, _ = steps.step(view, NOW, with_own(function))
    assert first == again
    return list(first)


def test_a_users_own_assignor_decides() -> None:
    view = own(["a", "b"], {})
    target = "t-0=a-0,t-1=a-0,t-2=a-0,t-3=a-0"
    assert decide_with(by_first, view, Steps()) == [
        state_set(view, StateEvent.REBALANCE_STARTED, "the target is another one", generation=1, target=target),
        GrantPartitions(
            consumer_id="a", partitions=dict.fromkeys((T0, T1, T2, T3), "a-0"), why="available, and in the target"
        ),
    ]


def test_plain_tuples_are_taken_for_partitions() -> None:
    def plain(given: AssignorInput) -> dict[TopicPartition, str]:
        return {(p.topic, p.partition): thread for p, thread in by_first(given).items()}  # type: ignore[misc]

    steps = Steps()
    decide_with(plain, own(["a"], {}), steps)
    assert all(isinstance(partition, TopicPartition) for partition in steps.last.target.assignment)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_leaves_the_group_as_it_is_and_is_told_once(kind: str) -> None:
    function, what = WRONG[kind]
    owners = {T0: "a-0", T1: "a-0", T2: "b-0", T3: "dead-0"}
    view = own(["a", "b"], owners, target="as it was")
    view = replace(view, channels={**view.channels, "dead": channel("dead")})
    steps = Steps()
    told, purged = decide_with(function, view, steps)
    problem = problem_of(told)
    assert problem.startswith(f"the assignor 'mine' gave no usable answer: {what}")
    assert purged == PurgeChannel(consumer_id="dead", why="its registration is gone")
    after = altered(view, problem=problem, channels={n: view.channels[n] for n in "ab"})
    assert decide_with(function, after, steps) == []
    assert decide_with(function, after, Steps()) == []  # and not after a failover
    target = steps.last.target.assignment
    assert phase_of(after, target) is Phase.PREPARING_REBALANCE  # nobody reads the dead member's partitions


def problem_of(decision: Decision) -> str:
    """The group's problem that the decision writes."""
    assert isinstance(decision, SetState)
    assert decision.event is StateEvent.ASSIGNMENT_PROBLEM
    assert decision.state.problem is not None
    return decision.state.problem


def test_the_last_target_stands_until_an_answer_is_right_again() -> None:
    view, steps = own(["a", "b"], {T0: "a-0", T1: "a-0", T2: "a-0"}), Steps()
    decide_with(by_first, view, steps)
    view = altered(view, target=steps.last.target.digest)
    joined = altered(own(["a", "b", "c"], {T0: "a-0", T1: "a-0", T2: "a-0"}), target=view.state.target)
    told, grant = decide_with(raises, joined, steps)
    problem = problem_of(told)
    assert grant == GrantPartitions(consumer_id="a", partitions={T3: "a-0"}, why="available, and in the target")
    healed = altered(joined, problem=problem, owners={**joined.owners, T3: Owner("a-0", 1)}, topics={"t": (0, 1)})
    decisions = decide_with(by_first, healed, steps)
    [state] = states(decisions, StateEvent.ASSIGNMENT_AS_ASKED)
    assert state.problem is None
    assert StopFetching(consumer_id="a", partitions={T2: "", T3: ""}, why="the target has them elsewhere") in decisions


def test_a_hand_over_is_finished_although_the_next_coordinators_assignor_fails() -> None:
    stop = command("stop-fetcher", T3, thread="b-0")
    view = own(["a", "b"], {T0: "a-0", T1: "a-0", T2: "b-0", T3: ""}, target="as it was")
    view = replace(view, channels={"a": channel("a", stop), "b": channel("b")})
    told, grant = decide_with(raises, view, Steps())
    assert problem_of(told)
    assert grant == GrantPartitions(consumer_id="b", partitions={T3: "b-0"}, why="available, and in the target")


def test_an_early_released_partition_is_its_new_owners_during_the_stop() -> None:
    """a is still at t-2 of its stop, b already reads t-3, and c joins."""
    stop = command("stop-fetcher", T2, T3, thread="b-0")
    view = group([member("a", 1), member("b", 2), member("c", 3)], {T0: "a-0", T1: "a-0", T2: "a-0", T3: "b-0"})
    view = replace(view, channels={"a": channel("a", stop), "b": channel("b"), "c": channel("c")})
    steps = Steps()
    steps.step(view, NOW)
    assert steps.last.target.assignment == {T0: "a-0", T1: "a-0", T2: "c-0", T3: "b-0"}


def test_partitions_without_room_are_told_with_a_remedy() -> None:
    tight = member("a", capacity=3)
    view = altered(group([tight], dict.fromkeys((T0, T1, T2), "a-0")), target="t-0=a-0,t-1=a-0,t-2=a-0")
    problem = "no consumer has room for 1 partitions (t-3): start more, or with a larger capacity"
    assert decided(view) == [state_set(view, StateEvent.ASSIGNMENT_PROBLEM, problem, problem=problem)]
    told = altered(view, problem=problem)
    assert decided(told) == []
    assert phase_of(told, dict.fromkeys((T0, T1, T2), "a-0")) is Phase.STABLE
