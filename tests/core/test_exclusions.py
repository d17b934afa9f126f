"""Partitions that an assignor gave to a member that cannot have them go to another member. The result is compared with
that of a plain version, which asks about every member for every partition."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

import pytest

from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.exclusions import HEAPS_MAX, exclude
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.quarantine import Exclusions

SEEDS = range(300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The arguments of `exclude`."""

    given: AssignorInput
    answer: Mapping[TopicPartition, str]
    absent: Set[str]
    exclusions: Exclusions
    joined: Mapping[str, int]

    def excluded(self, heaps_max: int = HEAPS_MAX) -> dict[TopicPartition, str]:
        return exclude(self.given, self.answer, self.absent, self.exclusions, self.joined, heaps_max)


def plain(case: Case) -> dict[TopicPartition, str]:
    """A slow reference: it looks at one partition after the other, and asks about every member for each."""
    given, expected = case.given, dict(case.answer)
    load = Counter(expected.values())
    room = {s.consumer_id: s.capacity for s in given.subscribers if s.capacity is not None}
    for partition, thread in expected.items():
        if consumer_of(thread) in room:
            room[consumer_of(thread)] -= given.weights.get(partition, 1)
    for partition in sorted(case.answer):
        blocked, weight = blocked_of(case, partition), given.weights.get(partition, 1)
        before, owner = expected[partition], given.owned.get(partition)
        if not blocked(consumer_of(before)):
            continue
        threads = [t for s in given.subscribers if not blocked(s.consumer_id) for t in s.thread_ids(partition.topic)]
        with_room = [t for t in threads if room.get(consumer_of(t), weight) >= weight]
        chosen = owner if owner in threads else min(with_room, key=lambda t: (load[t], t), default=None)
        if chosen is not None:
            for thread, change in ((before, -1), (chosen, 1)):
                load[thread] += change
                if consumer_of(thread) in room:
                    room[consumer_of(thread)] -= change * weight
            expected[partition] = chosen
    return expected


def blocked_of(case: Case, partition: TopicPartition) -> Callable[[str], bool]:
    """Returns a function that tells whether a consumer must not have the partition."""
    owner = consumer_of(case.given.owned.get(partition, ""))

    def blocked(consumer: str) -> bool:
        if (partition, consumer) in case.exclusions.pairs or (consumer in case.absent and consumer != owner):
            return True
        return consumer not in case.absent and case.joined[consumer] <= case.exclusions.newer.get(partition, -1)

    return blocked


def case_of(seed: int) -> Case:
    """A group with absent members, with partitions that some members refuse, and sometimes with capacities and
    weights."""
    draw = random.Random(seed)
    topics = {f"t{n}": tuple(range(draw.randint(1, 12))) for n in range(draw.randint(1, 4))}
    tight = draw.random() < 0.5
    subscribers = tuple(
        Subscriber(
            consumer_id=f"m{n:02d}",
            threads={t: draw.randint(1, 3) for t in draw.sample(sorted(topics), draw.randint(1, len(topics)))},
            capacity=draw.randint(1, 20) if tight and draw.random() < 0.8 else None,
        )
        for n in range(draw.randint(2, 12))
    )
    pairs = [TopicPartition(t, n) for t, ids in topics.items() for n in ids]
    weights = {p: draw.choice((1, 2, 3, 5, 9)) for p in pairs} if draw.random() < 0.5 else {}
    given = AssignorInput(subscribers=subscribers, partitions=topics, owned={}, weights=weights)
    ids = [s.consumer_id for s in subscribers]
    owned = ASSIGNORS["range" if draw.random() < 0.5 and not tight else "sticky"](
        replace(given, subscribers=tuple(draw.sample(subscribers, draw.randint(1, len(ids)))))
    )
    given = replace(given, owned={p: t for p, t in owned.items() if draw.random() < 0.8})
    absent = frozenset(draw.sample(ids, draw.randint(0, len(ids) - 1)))
    joined = {c: draw.randint(1, 9) for c in ids if c not in absent}
    exclusions = Exclusions(
        pairs=frozenset((p, draw.choice(ids)) for p in pairs if draw.random() < 0.3),
        newer={p: draw.randint(0, 9) for p in pairs if draw.random() < 0.2},
    )
    return Case(given=given, answer=ASSIGNORS["sticky"](given), absent=absent, exclusions=exclusions, joined=joined)


@pytest.mark.parametrize("heaps_max", [1, HEAPS_MAX])
def test_everybody_is_given_what_a_plain_search_would_give(heaps_max: int) -> None:
    moved = 0
    for seed in SEEDS:
        case = case_of(seed)
        found = case.excluded(heaps_max)
        assert found == plain(case), seed
        moved += sum(found[p] != thread for p, thread in case.answer.items())
    assert moved > len(SEEDS)  # there was work to do


class Counting(frozenset[tuple[TopicPartition, str]]):
    """A set of pairs that counts its lookups."""

    asked = 0

    def __contains__(self, pair: object) -> bool:
        Counting.asked += 1
        return super().__contains__(pair)


@pytest.mark.parametrize("capacity", [None, 20])
def test_with_a_rack_away_it_costs_what_must_move_not_that_times_the_members(capacity: int | None) -> None:
    """40 of 100 members are away when a topic of 2,000 partitions is created. Their 800 partitions go to the other
    members, as far as these have room."""
    names = [f"m{n:03d}" for n in range(100)]
    subscribers = tuple(Subscriber(consumer_id=c, threads={"t": 1}, capacity=capacity) for c in names)
    given = AssignorInput(subscribers=subscribers, partitions={"t": tuple(range(2_000))}, owned={})
    case = Case(
        given=given,
        answer=ASSIGNORS["sticky"](given),
        absent=frozenset(names[:40]),
        exclusions=Exclusions(pairs=Counting()),
        joined=dict.fromkeys(names[40:], 1),
    )
    Counting.asked = 0
    found = case.excluded()
    loads = Counter(found.values())
    assert Counting.asked <= 2 * 800
    if capacity is None:
        assert Counter(loads.values()) == {33: 40, 34: 20}
        assert case.absent.isdisjoint(map(consumer_of, loads))
    else:
        assert set(loads.values()) == {20}  # all members are full: the other partitions stay where they were
