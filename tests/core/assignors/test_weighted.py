"""The sticky assignor with weights, capacities and racks: even shares, no member over its capacity, near racks, and the
same target in every state on the way to it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.assignors.test_sticky import kept, on_the_way
from zkcoord.core.assignors import ASSIGNORS, AssignmentError, AssignorInput, check_assignment, unassigned
from zkcoord.core.assignors.sticky.sticky import assign_sticky
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of

patient = settings(deadline=None)
sticky = ASSIGNORS["sticky"]
Answer = dict[TopicPartition, str]


def part(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def one(name: str, threads: int = 1, rack: str | None = None, capacity: int | None = None) -> Subscriber:
    return Subscriber(consumer_id=name, threads={"t": threads}, rack=rack, capacity=capacity)


def group(
    subscribers: list[Subscriber],
    partitions: int,
    owned: Answer | None = None,
    weights: dict[int, int] | None = None,
    racks: dict[int, str] | None = None,
) -> AssignorInput:
    return AssignorInput(
        subscribers=tuple(subscribers),
        partitions={"t": tuple(range(partitions))},
        owned=owned or {},
        weights={part(n): weight for n, weight in (weights or {}).items()},
        racks={part(n): frozenset(rack.split()) for n, rack in (racks or {}).items()},
    )


def load_of(given_: AssignorInput, answer: Answer) -> dict[str, int]:
    """Thread -> the sum of its partitions' weights, for all threads of subscribed topics."""
    loads = {t: 0 for s in given_.subscribers for topic in s.threads for t in s.thread_ids(topic)}
    for pair, thread in answer.items():
        loads[thread] += given_.weights.get(pair, 1)
    return loads


def consumer_load(given_: AssignorInput, answer: Answer, consumer: str) -> int:
    return sum(given_.weights.get(pair, 1) for pair, thread in answer.items() if consumer_of(thread) == consumer)


@st.composite
def groups(
    draw: st.DrawFn, *, weights: bool = True, capacities: bool = True, racks: bool = True, mixed: bool | None = None
) -> AssignorInput:
    """A group in any state: some owners are not subscribed any more, and some partitions with
    an owner or a weight are gone."""
    uniform = not (draw(st.booleans()) if mixed is None else mixed)
    topics = [f"t{n}" for n in range(draw(st.integers(1, 3)))]
    partitions = {topic: tuple(sorted(draw(st.sets(st.integers(0, 9), max_size=8)))) for topic in topics}
    in_rack = st.sampled_from(["a", "b", "c", None])
    near = st.frozensets(st.sampled_from(["a", "b", "c", "d"]), max_size=3)
    room = st.none() | st.integers(1, 12)
    subscribers = []
    for number in range(draw(st.integers(1, 5))):
        streams = draw(st.integers(1, 3))
        wanted = topics if uniform else draw(st.lists(st.sampled_from(topics), unique=True))
        subscribers.append(
            Subscriber(
                consumer_id=f"g_h-{number}",
                threads={t: streams if uniform else draw(st.integers(1, 3)) for t in wanted},
                rack=draw(in_rack) if racks else None,
                capacity=draw(room) if capacities else None,
            )
        )
    threads = sorted({t for s in subscribers for topic in s.threads for t in s.thread_ids(topic)})
    holders = st.sampled_from([*threads, "g_gone-1-0"])
    weight, owned, in_racks = {}, {}, {}
    for pair in [TopicPartition(topic, number) for topic in topics for number in (*partitions[topic], 99)]:
        if draw(st.integers(0, 4)) < 3:
            owned[pair] = draw(holders)
        if weights and draw(st.booleans()):
            weight[pair] = draw(st.sampled_from([1, 2, 3, 7, 48]))
        if racks:
            in_racks |= {pair: draw(near)} if draw(st.booleans()) else {}
    return AssignorInput(
        subscribers=tuple(subscribers),
        partitions=partitions,
        owned=owned,
        weights=weight,
        racks=in_racks,
    )


@settings(deadline=None, max_examples=300)
@given(groups(), st.randoms(use_true_random=False))
def test_every_tree_on_the_way_yields_the_same_target(group_: AssignorInput, choose: random.Random) -> None:
    target = sticky(group_)
    tree = group_
    for _ in range(4):
        tree = on_the_way(tree, target, choose)
        assert sticky(tree) == target


@patient
@given(groups())
def test_every_partition_has_a_subscribed_thread_unless_nobody_has_room(group_: AssignorInput) -> None:
    answer = sticky(group_)
    check_assignment(group_, answer)
    for member in group_.subscribers:
        if member.capacity is not None:
            assert consumer_load(group_, answer, member.consumer_id) <= member.capacity


@patient
@given(groups(capacities=False))
def test_without_capacities_nothing_is_left_out(group_: AssignorInput) -> None:
    assert unassigned(group_, sticky(group_)) == []


@patient
@given(groups(capacities=False, mixed=False))
def test_no_share_is_further_from_the_mean_than_the_heaviest_partition(group_: AssignorInput) -> None:
    answer = sticky(group_)
    loads = load_of(group_, answer).values()
    heaviest = max((group_.weights.get(pair, 1) for pair in answer), default=0)
    if loads and answer:
        assert max(loads) - sum(loads) / len(loads) < heaviest or max(loads) == heaviest
        assert max(loads) - min(loads) <= 2 * heaviest


@patient
@given(groups(weights=False, capacities=False, mixed=False))
def test_racks_cost_no_evenness(group_: AssignorInput) -> None:
    counts = load_of(group_, sticky(group_)).values()
    assert max(counts, default=0) - min(counts, default=0) <= 1


@patient
@given(groups(), st.randoms(use_true_random=False))
def test_no_order_changes_anything(group_: AssignorInput, choose: random.Random) -> None:
    def shuffled(items: list) -> list:  # type: ignore[type-arg]
        return choose.sample(items, len(items))

    again = AssignorInput(
        subscribers=tuple(shuffled(list(group_.subscribers))),
        partitions=dict(shuffled(list(group_.partitions.items()))),
        owned=dict(shuffled(list(group_.owned.items()))),
        weights=dict(shuffled(list(group_.weights.items()))),
        racks=dict(shuffled(list(group_.racks.items()))),
    )
    assert sticky(again) == sticky(group_)


def test_a_heavy_partitions_owner_has_few_others() -> None:
    subscribers = [one("a"), one("b"), one("c")]
    asked = group(subscribers, 21, weights={20: 10})
    assert sorted(load_of(asked, sticky(asked)).values()) == [10, 10, 10]


def test_a_joiner_takes_its_weight_and_no_more_moves_than_that() -> None:
    weights = {n: 1 + n % 3 for n in range(60)}
    first = group([one("a"), one("b")], 60, weights=weights)
    settled = sticky(first)
    asked = group([one("a"), one("b"), one("c")], 60, owned=settled, weights=weights)
    answer = sticky(asked)
    assert sorted(load_of(asked, answer).values()) == [40, 40, 40]
    given_to_c = sum(thread == "c-0" for thread in answer.values())
    assert len(answer) - kept(asked, answer) == given_to_c


def test_a_death_moves_what_the_dead_held_and_little_else() -> None:
    choose = random.Random(3)
    weights = {n: choose.randint(1, 100) for n in range(1_000)}
    names = [f"m{n}" for n in range(10)]
    settled = sticky(group([one(name) for name in names], 1_000, weights=weights))
    left = {pair: thread for pair, thread in settled.items() if thread != "m3-0"}
    asked = group([one(name) for name in names if name != "m3"], 1_000, owned=left, weights=weights)
    answer = sticky(asked)
    assert len(left) - kept(asked, answer) <= 30
    loads = load_of(asked, answer).values()
    assert max(loads) - min(loads) <= 100


def test_partitions_without_room_stay_out_until_the_next_consumer_comes() -> None:
    tight = [one("a", capacity=2), one("b", capacity=3)]
    asked = group(tight, 7)
    answer = sticky(asked)
    assert unassigned(asked, answer) == [part(5), part(6)]
    assert Counter(answer.values()) == {"a-0": 2, "b-0": 3}
    more = group([*tight, one("c", capacity=9)], 7, owned=answer)
    assert Counter(sticky(more).values()) == {"a-0": 2, "b-0": 3, "c-0": 2}


def test_a_capacity_is_shared_by_a_consumers_threads_and_counts_weights() -> None:
    asked = group([one("a", threads=2, capacity=5), one("b")], 4, weights={0: 4, 1: 4, 2: 1, 3: 1})
    answer = sticky(asked)
    assert consumer_load(asked, answer, "a") == 5
    assert consumer_load(asked, answer, "b") == 5


def test_partitions_go_to_their_rack_even_from_an_owner_in_another() -> None:
    subscribers = [one("a", rack="east"), one("b", rack="west")]
    racks = {n: "west" if n < 4 else "east" for n in range(8)}
    crossed = {part(n): "a-0" if n < 4 else "b-0" for n in range(8)}
    answer = sticky(group(subscribers, 8, owned=crossed, racks=racks))
    assert answer == {part(n): "b-0" if n < 4 else "a-0" for n in range(8)}


def test_racks_where_nobody_runs_count_for_nothing() -> None:
    subscribers = [one("a", rack="east"), one("b", rack="west")]
    owned = {part(n): "a-0" if n < 4 else "b-0" for n in range(8)}
    assert sticky(group(subscribers, 8, owned=owned, racks=dict.fromkeys(range(8), "north"))) == owned


def test_an_answer_that_leaves_out_what_somebody_has_room_for_is_refused() -> None:
    asked = group([one("a", capacity=2), one("b", capacity=1)], 3, weights={0: 2})
    check_assignment(asked, {part(0): "a-0", part(1): "b-0"})
    with pytest.raises(AssignmentError, match="t-0 has subscribers with room for it and no thread"):
        check_assignment(asked, {part(1): "b-0"})
    with pytest.raises(AssignmentError, match="t-1 has subscribers with room for it and no thread"):
        check_assignment(asked, {part(0): "a-0"})


def test_many_weights_are_rounded_to_few_levels_and_shares_stay_close() -> None:
    choose = random.Random(1)
    asked = group([one(f"m{n}") for n in range(10)], 500, weights={n: choose.randint(1, 1_000) for n in range(500)})
    answer = assign_sticky(asked, work_max=110)  # 1 to 512: ten levels of ten threads
    loads = load_of(asked, answer).values()
    assert max(loads) / min(loads) < 1.25
    assert answer != sticky(asked)


@settings(deadline=None, max_examples=200)
@given(groups(racks=False), st.integers(0, 1_000), st.randoms(use_true_random=False))
def test_with_more_weights_than_levels_every_rule_of_capacities_still_holds(
    group_: AssignorInput, more: int, choose: random.Random
) -> None:
    heavy = {pair: weight * more + choose.randint(1, 9) for pair, weight in group_.weights.items()}
    wide = tuple(
        replace(s, capacity=None if s.capacity is None else s.capacity * (more + 1)) for s in group_.subscribers
    )
    asked = replace(group_, weights=heavy, subscribers=wide)
    target = assign_sticky(asked, work_max=1)
    check_assignment(asked, target)
    tree = asked
    for _ in range(4):
        tree = on_the_way(tree, target, choose)
        assert assign_sticky(tree, work_max=1) == target
    for member in asked.subscribers:
        if member.capacity is not None:
            assert consumer_load(asked, target, member.consumer_id) <= member.capacity


def test_a_partition_too_big_by_rounded_weight_fits_by_its_own() -> None:
    asked = group([one("a", capacity=10), one("b", capacity=10)], 3, weights={0: 9, 1: 9})  # 9 counts as 16
    assert assign_sticky(asked, work_max=1) == {part(0): "b-0", part(1): "a-0", part(2): "a-0"}
