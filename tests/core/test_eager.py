"""Eager groups: all members stop everything before any member starts anything."""

from __future__ import annotations

from tests.core.groups import (
    T0,
    T1,
    T2,
    T3,
    altered,
    channel,
    command,
    decided,
    group,
    member,
    phase_of,
    settled,
    state_set,
)
from zkcoord.core.decisions import GrantPartitions, StateEvent, StopFetching
from zkcoord.core.model import Phase, Rebalance
from zkcoord.core.view import Owner

ALL = (T0, T1, T2, T3)
STOP_WHY = "everybody stops first: the group is eager"
EAGER = {"rebalance": Rebalance.EAGER}


def test_a_join_stops_everybody_and_grants_nothing() -> None:
    members = [member("a"), member("b", 2), member("c", 3)]
    view = group(members, {T0: "a-0", T1: "a-0", T2: "b-0"}, **EAGER)
    target = "t-0=a-0,t-1=a-0,t-2=b-0,t-3=c-0"
    assert decided(view) == [
        state_set(
            view, StateEvent.REBALANCE_STARTED, "the target is another one", generation=1, target=target, stopping=True
        ),
        StopFetching(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, why=STOP_WHY),
        StopFetching(consumer_id="b", partitions={T2: "b-0"}, why=STOP_WHY),
    ]


def test_a_cold_eager_group_has_nobody_to_stop() -> None:
    view = group([member("a")], {}, **EAGER)
    digest = "t-0=a-0,t-1=a-0,t-2=a-0,t-3=a-0"
    assert decided(view) == [
        state_set(view, StateEvent.REBALANCE_STARTED, "the target is another one", generation=1, target=digest),
        GrantPartitions(consumer_id="a", partitions=dict.fromkeys(ALL, "a-0"), why="available, and in the target"),
    ]


def test_nothing_is_granted_while_one_living_member_still_owns_something() -> None:
    members = [member("a"), member("b", 2)]
    stop = command("stop-fetcher", T1)
    channels = {"a": channel("a", stop), "b": channel("b")}
    view = settled(group(members, {T1: "a-0"}, channels=channels, **EAGER))
    view = altered(view, stopping=True, owners={**view.owners, T0: Owner("", 3), T2: Owner("gone-0", 3)})
    assert decided(view) == []
    assert phase_of(view, {}) is Phase.PREPARING_REBALANCE


def test_when_no_living_owner_is_left_the_stop_ends_and_all_is_granted_in_one_go() -> None:
    members = [member("a"), member("b", 2)]
    owners = {T0: "", T1: "gone-0", T2: "", T3: ""}
    view = altered(settled(group(members, owners, **EAGER)), stopping=True)
    why = "available, and in the target"
    assert decided(view) == [
        state_set(view, StateEvent.STOPPED, "everybody has stopped", stopping=False),
        GrantPartitions(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, why=why),
        GrantPartitions(consumer_id="b", partitions={T2: "b-0", T3: "b-0"}, why=why),
    ]


def test_a_settled_eager_group_is_left_alone() -> None:
    assert decided(settled(group([member("a")], dict.fromkeys(ALL, "a-0"), **EAGER))) == []


def test_a_refused_partition_is_granted_again_without_stopping_anybody() -> None:
    view = settled(group([member("a")], {T0: "a-0", T1: "a-0", T2: "a-0", T3: ""}, **EAGER))
    assert decided(view) == [
        GrantPartitions(consumer_id="a", partitions={T3: "a-0"}, why="available, and in the target")
    ]


def test_a_group_switched_to_eager_in_the_middle_stops_everybody() -> None:
    members = [member("a"), member("b", 2)]
    stop = command("stop-fetcher", T2, thread="b-0")
    channels = {"a": channel("a", stop), "b": channel("b")}
    owners = {T0: "a-0", T1: "a-0", T2: "a-0", T3: "b-0"}
    view = settled(group(members, owners, channels=channels))
    assert decided(view) == []
    assert decided(altered(view, rebalance=Rebalance.EAGER)) == [
        state_set(view, StateEvent.STOPPING, "something must move, and the group is eager", stopping=True),
        StopFetching(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, why=STOP_WHY),
        StopFetching(consumer_id="b", partitions={T3: "b-0"}, why=STOP_WHY),
    ]


def test_a_group_switched_to_cooperative_in_the_middle_grants_what_is_free() -> None:
    members = [member("a"), member("b", 2)]
    stop = command("stop-fetcher", T0, thread="a-0")
    channels = {"a": channel("a", stop), "b": channel("b")}
    owners = {T0: "a-0", T1: "", T2: "", T3: "b-0"}
    view = altered(settled(group(members, owners, channels=channels)), stopping=True)
    why = "available, and in the target"
    assert decided(view) == [
        state_set(view, StateEvent.STOPPED, "the group is not eager any more", stopping=False),
        GrantPartitions(consumer_id="a", partitions={T1: "a-0"}, why=why),
        GrantPartitions(consumer_id="b", partitions={T2: "b-0"}, why=why),
    ]
