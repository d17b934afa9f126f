"""Partitions with replicas in several racks: as many as possible go to a member in one of their racks, and little else
moves."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.assignors.test_sticky import kept
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.assignors.sticky import racks as rack_rules
from zkcoord.core.assignors.sticky.rack_transport import Kind, Table
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of

sticky = ASSIGNORS["sticky"]
Answer = dict[TopicPartition, str]


def group(members: dict[str, str | None], racks: list[str], owned: Answer | None = None) -> AssignorInput:
    """A group: members with their racks, and one topic's partitions with their racks, written as "a b"."""
    return AssignorInput(
        subscribers=tuple(Subscriber(consumer_id=c, threads={"t": 1}, rack=rack) for c, rack in members.items()),
        partitions={"t": tuple(range(len(racks)))},
        owned=owned or {},
        racks={TopicPartition("t", n): frozenset(some.split()) for n, some in enumerate(racks)},
    )


def read_well(given_: AssignorInput, answer: Answer) -> int:
    rack_of = {member.consumer_id: member.rack for member in given_.subscribers}
    return sum(rack_of[consumer_of(thread)] in given_.racks.get(pair, ()) for pair, thread in answer.items())


ACROSS = ["a b", "b c", "a c"]


def test_two_replicas_in_three_racks_are_all_read_well() -> None:
    asked = group({"m1": "a", "m2": "b", "m3": "c"}, ACROSS * 100)
    answer = sticky(asked)
    assert read_well(asked, answer) == 300
    assert Counter(answer.values()) == {"m1-0": 100, "m2-0": 100, "m3-0": 100}


def test_with_replicas_in_every_rack_nobody_moves_for_a_rack() -> None:
    members = {"m1": "a", "m2": "b", "m3": "c"}
    owned = {TopicPartition("t", n): f"m{n // 10 + 1}-0" for n in range(30)}
    assert sticky(group(members, ["a b c"] * 30, owned)) == owned


def test_a_joining_member_moves_only_its_share() -> None:
    members: dict[str, str | None] = {"m1": "a", "m2": "b", "m3": "c"}
    settled = sticky(group(members, ACROSS * 40))
    asked = group({**members, "m4": "a"}, ACROSS * 40, settled)
    answer = sticky(asked)
    assert Counter(answer.values()) == dict.fromkeys(["m1-0", "m2-0", "m3-0", "m4-0"], 30)
    assert read_well(asked, answer) == 120
    assert len(answer) - kept(asked, answer) == 40  # 30 for the joining member; 10 of the 40 in rack b fit only into c


def test_a_partition_whose_owner_is_in_a_rack_of_its_stays_although_another_rack_is_first() -> None:
    owned = {TopicPartition("t", n): ["m2-0", "m1-0"][n % 2] for n in range(8)}
    members = {"m1": "a", "m2": "b"}
    assert sticky(group(members, ["a b"] * 6 + ["b", "a"], owned)) == owned


def test_a_rackless_member_takes_what_nobody_reads_well() -> None:
    asked = group({"m1": "a", "m2": None}, ["x", "a", "a", "y"])
    assert sticky(asked) == {
        TopicPartition("t", 0): "m2-0",
        TopicPartition("t", 1): "m1-0",
        TopicPartition("t", 2): "m1-0",
        TopicPartition("t", 3): "m2-0",
    }


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(["", "a", "b", "c", "a b", "b c", "a c"]), min_size=2, max_size=6),
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_no_other_dealing_of_the_same_shares_reads_more_well(
    racks: list[str], where: list[str | None], choose: random.Random
) -> None:
    members = {f"m{n}": rack for n, rack in enumerate(where)}
    threads = [f"m{n}-0" for n in range(len(where))]
    owned = {TopicPartition("t", n): choose.choice(threads) for n in range(len(racks)) if choose.random() < 0.6}
    asked = group(members, racks, owned)
    if not rack_rules.racks_that_count(asked):
        return
    answer = sticky(asked)
    dealt = [answer[TopicPartition("t", n)] for n in range(len(racks))]
    others = (dict(zip(answer, order, strict=True)) for order in set(permutations(dealt)))
    assert read_well(asked, answer) == max(read_well(asked, other) for other in others)


def test_of_too_many_kinds_one_rack_of_each_partition_counts() -> None:
    members: dict[str, str | None] = {f"m-{rack}": rack for rack in "abcdefghijk"}
    kinds = [" ".join(racks) for racks in combinations("abcdefghijk", 3)]
    assert 3 * len(kinds) > rack_rules.CELLS_MAX
    asked = group(members, kinds)
    answer = sticky(asked)
    assert 150 < read_well(asked, answer) < len(kinds)  # with all racks every one would be read well
    assert sticky(group(members, kinds, answer)) == answer


def settled(kinds: list[Kind], counts: list[int], places: list[int]) -> Table:
    table = Table(kinds, counts, places)
    table.settle({})
    return table


def test_a_cell_may_have_what_some_best_table_has_beside_what_is_kept() -> None:
    table = settled([(0,), (0, 1), (1, 2)], [2, 4, 2], [4, 2, 2])
    assert table.keep(1, 0, 9) == 2  # two of its four places are kept for partitions that have no other good reader
    assert (table.keep(2, 1, 9), table.keep(1, 1, 9)) == (0, 2)
    assert table.keep(2, 2, 9) == 2


def test_partitions_kept_in_a_far_rack_take_no_place_from_well_read_ones() -> None:
    table = settled([(), (0,)], [3, 1], [2, 2])
    assert (table.keep_far(0, 0, 3), table.keep_far(0, 1, 3)) == (1, 2)
    assert table.keep(1, 0, 1) == 1
