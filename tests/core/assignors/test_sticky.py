"""The sticky assignor: balance, few moves, and the same target in every state on the way to it."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of

patient = settings(deadline=None)  # a slow machine is no failure
sticky = ASSIGNORS["sticky"]
Group = AssignorInput


def group_of(
    subscribers: dict[str, dict[str, int]],
    partitions: dict[str, tuple[int, ...]],
    owned: dict[TopicPartition, str] | None = None,
) -> Group:
    return Group(
        subscribers=tuple(Subscriber(consumer_id=name, threads=threads) for name, threads in subscribers.items()),
        partitions=partitions,
        owned=owned or {},
    )


def moved_on(group: Group, owned: dict[TopicPartition, str]) -> Group:
    return replace(group, owned=owned)


def readers_of(group: Group) -> dict[str, list[str]]:
    return {topic: [t for member in group.subscribers for t in member.thread_ids(topic)] for topic in group.partitions}


def loads_of(group: Group, answer: dict[TopicPartition, str]) -> dict[str, int]:
    counts = Counter(answer.values())
    useful = {thread for topic, readers in readers_of(group).items() for thread in readers if group.partitions[topic]}
    return {thread: counts[thread] for thread in sorted(useful)}


def kept(group: Group, answer: dict[TopicPartition, str]) -> int:
    return sum(group.owned.get(pair) == thread for pair, thread in answer.items())


@st.composite
def groups(
    draw: st.DrawFn, *, uniform: bool, topics_max: int = 4, partitions_max: int = 8, members_max: int = 5
) -> Group:
    """A group in any state: some owners are not subscribed any more, and some owned partitions are gone."""
    topics = [f"t{n}" for n in range(draw(st.integers(1, topics_max)))]
    ids = st.sets(st.integers(0, partitions_max + 2), max_size=partitions_max)
    partitions = {topic: tuple(sorted(draw(ids))) for topic in topics}
    subscribers = {}
    for number in range(draw(st.integers(1, members_max))):
        streams = draw(st.integers(1, 3))
        wanted = topics if uniform else draw(st.lists(st.sampled_from(topics), unique=True))
        subscribers[f"g_h-{number}"] = {t: streams if uniform else draw(st.integers(1, 3)) for t in wanted}
    threads = sorted(
        {f"{name}-{n}" for name, counts in subscribers.items() for n in range(max(counts.values(), default=0))}
    )
    holders = st.sampled_from([*threads, "g_gone-1-0"])
    owned = {}
    for pair in [TopicPartition(topic, number) for topic in topics for number in (*partitions[topic], 99)]:
        if draw(st.integers(0, 4)) < 3:
            owned[pair] = draw(holders)
    return group_of(subscribers, partitions, owned)


@st.composite
def any_groups(draw: st.DrawFn) -> Group:
    return draw(groups(uniform=draw(st.booleans())))


def on_the_way(group: Group, target: dict[TopicPartition, str], choose: random.Random) -> Group:
    """A state between `group` and its target: each moving partition is untouched, released or granted."""
    owned = dict(group.owned)
    for pair, thread in sorted(target.items()):
        state = choose.choice(["untouched", "released", "granted"])
        if owned.get(pair) == thread or state == "untouched":
            continue
        owned.pop(pair, None)
        if state == "granted":
            owned[pair] = thread
    for pair in sorted(owned.keys() - target.keys()):  # gone, or without a reader: stopped at some time
        if choose.random() < 0.5:
            del owned[pair]
    return moved_on(group, owned)


def chained_gap(group: Group, answer: dict[TopicPartition, str]) -> int:
    """The largest difference of loads along any chain of single moves. With 1 or less the loads cannot be more even."""
    loads, readers = loads_of(group, answer), readers_of(group)
    held: dict[str, set[str]] = {thread: set() for thread in loads}
    for pair, thread in answer.items():
        held[thread].add(pair.topic)
    worst = 0
    for load in set(loads.values()):
        queue = [thread for thread in loads if loads[thread] == load]
        seen, passed = set(queue), set[str]()
        for thread in queue:
            for topic in sorted(held[thread] - passed):
                queue += [taker for taker in readers[topic] if taker not in seen]
                seen.update(readers[topic])
                passed.add(topic)
        worst = max(worst, load - min(loads[thread] for thread in seen))
    return worst


@patient
@given(any_groups())
def test_every_subscribed_partition_has_exactly_one_subscribed_thread(group: Group) -> None:
    check_assignment(group, sticky(group))


@patient
@given(groups(uniform=True))
def test_uniform_counts_of_any_two_threads_differ_by_at_most_one(group: Group) -> None:
    counts = loads_of(group, sticky(group)).values()
    assert max(counts, default=0) - min(counts, default=0) <= 1


@patient
@given(groups(uniform=False))
def test_no_chain_of_moves_leads_to_a_thread_with_at_least_two_fewer(group: Group) -> None:
    assert chained_gap(group, sticky(group)) <= 1


@settings(deadline=None, max_examples=50)
@given(groups(uniform=True, topics_max=2, partitions_max=2, members_max=2))
def test_uniform_movement_is_the_least_that_balance_allows(group: Group) -> None:
    readers = readers_of(group)
    pairs = [TopicPartition(topic, number) for topic, ids in group.partitions.items() for number in ids]
    best = 0
    for choice in itertools.product(*(readers[pair.topic] for pair in pairs)):
        answer = dict(zip(pairs, choice, strict=True))
        counts = loads_of(group, answer).values()
        if max(counts, default=0) - min(counts, default=0) <= 1:
            best = max(best, kept(group, answer))
    assert kept(group, sticky(group)) == best


def most_even(group: Group) -> list[dict[TopicPartition, str]]:
    """Every assignment of a tiny group whose sorted loads are minimal."""
    readers = readers_of(group)
    pairs = [TopicPartition(topic, n) for topic, ids in group.partitions.items() for n in ids if readers[topic]]
    found: dict[tuple[int, ...], list[dict[TopicPartition, str]]] = {}
    for choice in itertools.product(*(readers[pair.topic] for pair in pairs)):
        loads = tuple(sorted(Counter(choice).values(), reverse=True))
        found.setdefault(loads, []).append(dict(zip(pairs, choice, strict=True)))
    return found[min(found)]


def tiny_mixed_group(seed: int) -> Group:
    choose = random.Random(seed)
    topics = {f"t{n}": tuple(range(2)) for n in range(3)}
    subscribers = {
        f"g_h-{n}": {topic: 1 if n else choose.randint(1, 2) for topic in topics if choose.random() < 0.7}
        for n in range(3)
    }
    pairs = [TopicPartition(topic, n) for topic, ids in topics.items() for n in ids]
    owned = {pair: choose.choice(["g_h-0-0", "g_h-0-1", "g_h-1-0", "g_h-2-0"]) for pair in pairs}
    return group_of(subscribers, topics, owned)


def test_mixed_loads_are_the_most_even_and_nothing_can_be_added_to_what_stays() -> None:
    moves, least = 0, 0
    for seed in range(150):
        group = tiny_mixed_group(seed)
        answer, best = sticky(group), most_even(group)
        assert answer in best
        stays = {pair for pair, thread in answer.items() if group.owned.get(pair) == thread}
        others = [{pair for pair, thread in other.items() if group.owned.get(pair) == thread} for other in best]
        assert not any(stays < other for other in others), seed
        moves += len(answer) - len(stays)
        least += len(answer) - max(map(len, others))
    assert moves <= least * 1.02  # maximal, not always maximum: see zkcoord/core/assignors/sticky/mixed.py


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_death_in_a_settled_uniform_group_moves_only_what_the_dead_held(seed: int) -> None:
    group = large_group(seed, uniform=True)
    settled = sticky(group)
    dead = group.subscribers[0].consumer_id
    left = Group(
        subscribers=group.subscribers[1:],
        partitions=group.partitions,
        owned={pair: thread for pair, thread in settled.items() if consumer_of(thread) != dead},
    )
    assert kept(left, sticky(left)) == len(left.owned)


@patient
@given(any_groups())
def test_the_target_yields_the_target(group: Group) -> None:
    target = sticky(group)
    assert sticky(moved_on(group, target)) == target


@patient
@given(any_groups(), st.randoms(use_true_random=False))
def test_every_tree_on_the_way_yields_the_same_target(group: Group, choose: random.Random) -> None:
    target = sticky(group)
    tree = group
    for _ in range(4):
        tree = on_the_way(tree, target, choose)
        assert sticky(tree) == target


@patient
@given(any_groups(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_changes_nothing(group: Group, choose: random.Random) -> None:
    def shuffled(items: list) -> list:  # type: ignore[type-arg]
        return choose.sample(items, len(items))

    other = Group(
        subscribers=tuple(
            Subscriber(consumer_id=member.consumer_id, threads=dict(shuffled(list(member.threads.items()))))
            for member in shuffled(list(group.subscribers))
        ),
        partitions=dict(shuffled(list(group.partitions.items()))),
        owned=dict(shuffled(list(group.owned.items()))),
    )
    assert sticky(other) == sticky(group)


def large_group(seed: int, *, uniform: bool) -> Group:
    """200 members, 6 topics, and about 2,000 partitions, most of them owned, but not evenly."""
    choose = random.Random(seed)
    topics = {f"topic-{n}": choose.randint(100, 600) for n in range(6)}
    wanted = [choose.sample(sorted(topics), choose.randint(1, 5)) for _ in range(8)]
    subscribers = {}
    for number in range(200):
        streams = choose.randint(1, 3)
        subscribers[f"g_h-{number}"] = dict.fromkeys(topics if uniform else choose.choice(wanted), streams)
    owned = {
        TopicPartition(topic, number): f"g_h-{min(choose.randrange(210), choose.randrange(210))}-0"
        for topic, count in topics.items()
        for number in range(count)
        if choose.random() < 0.8
    }
    return group_of(subscribers, {topic: tuple(range(count)) for topic, count in topics.items()}, owned)


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_large_group_is_balanced_and_stable_on_the_way_through_churn(seed: int, uniform: bool) -> None:
    choose = random.Random(seed)
    group = large_group(seed, uniform=uniform)
    for _ in range(3):
        target = sticky(group)
        check_assignment(group, target)
        assert chained_gap(group, target) <= 1
        tree = group
        for _ in range(4):
            tree = on_the_way(tree, target, choose)
            assert sticky(tree) == target
        leaver = choose.choice(group.subscribers).consumer_id  # a member leaves in the middle of the hand-over
        group = Group(
            subscribers=tuple(member for member in group.subscribers if member.consumer_id != leaver),
            partitions=group.partitions,
            owned={pair: thread for pair, thread in tree.owned.items() if consumer_of(thread) != leaver},
        )


def digest(seed: int) -> int:
    answers = [sorted(sticky(large_group(seed, uniform=uniform)).items()) for uniform in (True, False)]
    return crc32(repr(answers).encode())


def test_the_hash_seed_changes_nothing() -> None:
    script = f"import runpy; print(runpy.run_path({__file__!r})['digest'](7))"
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[3])}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert int(run.stdout) == digest(7)


def test_owners_beyond_the_group_do_not_hide_free_partitions() -> None:
    group = group_of({"a": {"t": 1, "u": 1}}, {"t": (0, 1, 2), "u": (0, 1)})
    wanted = {TopicPartition(t, n): "a-0" for t, n in [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]}
    for gone, instead in [(("t", 2), ("t", 3)), (("t", 1), ("u", 2)), (("u", 1), ("v", 1)), (("t", 0), ("t", -1))]:
        owned = {**wanted, TopicPartition(*instead): "a-0"}
        del owned[TopicPartition(*gone)]
        assert sticky(moved_on(group, owned)) == wanted
