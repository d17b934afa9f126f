"""The order in which Scala's and Java's maps iterate, where no vector shows it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zkcoord.core.assignors.legacy.java_order import children_order, immutable_order, java_hash, mutable_order

names = st.lists(st.text(alphabet="aAbB.-_019", max_size=6) | st.sampled_from(["Aa", "BB", "AaAa", "BBBB", "AaBB"]))


@settings(deadline=None)
@given(names)
def test_an_order_holds_each_key_once(keys: list[str]) -> None:
    for order in (immutable_order, mutable_order, children_order):
        found = order(keys)
        assert sorted(found) == sorted(set(keys))


@settings(deadline=None)
@given(names)
def test_equal_hashes_turn_around_in_a_small_mutable_map_and_not_in_the_others(keys: list[str]) -> None:
    once = list(dict.fromkeys(keys))[:12]
    for key in once:
        alike = [other for other in once if java_hash(other) == java_hash(key)]
        assert [other for other in mutable_order(once) if other in alike] == alike[::-1]
        assert [other for other in immutable_order(once) if other in alike] == alike


def test_a_growing_mutable_map_turns_the_equal_ones_around_again() -> None:
    few, many = ["Aa", "BB"], ["Aa", "BB", *(f"t{n}" for n in range(11))]
    assert [key for key in mutable_order(few) if key in few] == ["BB", "Aa"]
    assert [key for key in mutable_order(many) if key in few] == ["Aa", "BB"]


def test_children_of_one_bucket_are_listed_in_the_order_in_which_they_were_made() -> None:
    """`node-2` and `bx` fall into the same one of eight buckets."""
    assert children_order(["g_node-2", "g_h-1-aa1", "g_bx"]) == ["g_h-1-aa1", "g_node-2", "g_bx"]
    assert children_order(["g_bx", "g_h-1-aa1", "g_node-2"]) == ["g_h-1-aa1", "g_bx", "g_node-2"]
    assert children_order(["g_b", "g_a", "g_c"]) == children_order(["g_c", "g_b", "g_a"]) == ["g_a", "g_c", "g_b"]
