"""A limit of moves: one raise takes at most that many partitions from living owners. Recovery is not limited, and the
moves come to an end."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.groups import NOW, Steps, altered, channel, command, group, member, phase_of
from zkcoord.core.budget import moves
from zkcoord.core.decisions import (
    Decision,
    GrantPartitions,
    MarkTopic,
    PurgeChannel,
    SetState,
    StopFetching,
)
from zkcoord.core.difference import difference
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.view import GroupView, Owner

PARTITIONS = tuple(range(12))


def view_of(members: int, owners: Mapping[TopicPartition, str], max_moves: int | None) -> GroupView:
    """Members m0, m1, … of a group whose topic has twelve partitions."""
    return group(
        [member(f"m{n}", n + 1) for n in range(members)], owners, topics={"t": PARTITIONS}, max_moves=max_moves
    )


def evenly(members: int) -> dict[TopicPartition, str]:
    """An even share for each member."""
    return {TopicPartition("t", n): f"m{n % members}-0" for n in PARTITIONS}


def done(view: GroupView, decisions: tuple[Decision, ...]) -> tuple[GroupView, list[TopicPartition]]:
    """Carry the decisions out and acknowledge them. Returns the group after that, and the stopped partitions."""
    stopped = []
    owners = dict(view.owners)
    for decision in decisions:
        match decision:
            case SetState():
                view = replace(view, state=decision.state)
            case StopFetching():
                stopped += list(decision.partitions)
                owners.update((p, Owner("", owners[p].version + 1)) for p in decision.partitions)
            case GrantPartitions():
                owners.update((p, Owner(t, 9)) for p, t in decision.partitions.items())
            case PurgeChannel():
                channels = {name: c for name, c in view.channels.items() if name != decision.consumer_id}
                view = replace(view, channels=channels)
            case MarkTopic():
                view = replace(view, marked=view.marked | {decision.topic})
            case _:
                raise AssertionError(decision)
    return replace(view, owners=owners), stopped


def to_rest(view: GroupView, steps: Steps, *, failover: random.Random | None = None) -> tuple[GroupView, list[int]]:
    """Run to rest. Returns, for each generation that moved partitions, how many partitions left a living owner."""
    moved: dict[int, int] = {}
    for turn in range(100):
        decisions, _ = steps.step(view, NOW)
        if not decisions:
            return view, list(moved.values())
        if (
            failover is not None and turn < 30 and failover.random() < 0.5
        ):  # the coordinator dies in the middle of its writes
            decisions, steps = decisions[: failover.randint(0, len(decisions))], Steps()
        view, stopped = done(view, decisions)
        if stopped:
            moved[view.state.generation] = moved.get(view.state.generation, 0) + len(stopped)
    raise AssertionError("it does not come to rest")


def shares(view: GroupView) -> list[int]:
    """How many partitions each member reads, sorted."""
    threads = [owner.thread for owner in view.owners.values()]
    return sorted(threads.count(f"{name}-0") for name in view.members)


def test_a_join_moves_so_many_a_raise_and_the_rest_in_later_ones() -> None:
    view, _ = to_rest(view_of(2, evenly(2), None), Steps())
    joined = altered(view_of(3, evenly(2), 3), target=view.state.target, generation=view.state.generation)
    at_rest, moved = to_rest(joined, Steps())
    assert moved == [3, 1]
    assert shares(at_rest) == [4, 4, 4]
    unlimited, _ = to_rest(altered(joined, max_moves=None), Steps())
    assert {p: o.thread for p, o in at_rest.owners.items()} == {p: o.thread for p, o in unlimited.owners.items()}


def test_between_two_raises_the_group_is_not_stable() -> None:
    view, steps = view_of(2, evenly(1), 2), Steps()
    generations = []
    for _ in range(30):
        decisions, _ = steps.step(view, NOW)
        if not decisions:
            break
        generations.append(view.state.generation)
        view, _ = done(view, decisions)
    assert phase_of(view, steps.last.target.assignment) is Phase.STABLE
    assert view.state.generation == 3
    assert not steps.last.target.waiting


def test_a_dead_owners_partitions_are_granted_before_anything_moves() -> None:
    owners = {p: "dead-0" if p.partition < 6 else "m0-0" for p in evenly(1)}
    view = replace(view_of(3, owners, 1), channels={**view_of(3, owners, 1).channels, "dead": channel("dead")})
    decisions, _ = Steps().step(view, NOW)
    granted = [p for d in decisions if isinstance(d, GrantPartitions) for p in d.partitions]
    assert sorted(granted) == [TopicPartition("t", n) for n in range(6)]
    assert not any(isinstance(decision, StopFetching) for decision in decisions)
    at_rest, moved = to_rest(view, Steps())
    assert shares(at_rest) == [4, 4, 4]
    assert moved == [1, 1]


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.lists(st.integers(0, 5), min_size=12, max_size=12),
    st.randoms(use_true_random=False),
)
def test_it_comes_to_rest_at_the_unlimited_target_whoever_coordinates(
    members: int, max_moves: int, holders: list[int], choose: random.Random
) -> None:
    owners = {p: f"m{holder}-0" for p, holder in zip(evenly(1), holders, strict=True)}
    view = view_of(members, owners, max_moves)
    wanted, _ = to_rest(altered(view, max_moves=None), Steps())
    limited, moved = to_rest(view, Steps())
    interrupted, moved_too = to_rest(view, Steps(), failover=choose)
    assert limited.owners.keys() == wanted.owners.keys()
    for at_rest in (limited, interrupted):
        assert {p: o.thread for p, o in at_rest.owners.items()} == {p: o.thread for p, o in wanted.owners.items()}
    assert max([*moved, *moved_too], default=0) <= max_moves
    assert all(consumer_of(o.thread) in view.members for o in wanted.owners.values())


def test_an_early_released_partition_with_a_new_owner_counts_as_a_move() -> None:
    """The former owner still works at the rest of its stop, and the stop still names the released partition."""
    first, second = (TopicPartition("t", n) for n in (0, 1))
    view = group(
        [member("a", 1), member("b", 2), member("c", 3)],
        {first: "b-0", second: "a-0"},
        topics={"t": (0, 1)},
        max_moves=1,
    )
    stop = command("stop-fetcher", first, second, thread="b-0")
    view = replace(view, channels={**view.channels, "a": channel("a", stop)})
    wanted = {first: "c-0", second: "b-0"}
    assert moves(view, wanted, difference(view.owners, wanted).misplaced) == {first: "b-0"}
