"""The order in which waiting reads are sent when one request cannot take all of them."""

from __future__ import annotations

from zkcoord.shell.fair_queue import PATIENCE_MS, FairQueue


def waiting(*added: tuple[str, str]) -> FairQueue:
    """A queue with these names, each in its lane, in the order of adding."""
    found = FairQueue()
    for name, lane in added:
        found.add(name, lane)
    return found


def names(taken: list[str]) -> str:
    return " ".join(taken)


CROWD = [(f"c{n}", "crowd") for n in range(9)]


def test_one_request_takes_in_the_order_of_adding_whatever_the_lane() -> None:
    both = waiting(("a", "g"), ("b", "h"), ("c", "g"), ("a", "g"))
    assert names(both.take(3)) == "a b c"
    assert both.take(3) == []


def test_every_lane_has_its_share_of_a_request_and_the_first_gets_the_rest() -> None:
    lanes = waiting(*CROWD, ("x", "g"), ("y", "h"), ("z", "h"))
    assert names(lanes.take(6)) == "c0 c1 c2 x y z"
    assert names(lanes.take(4)) == "c3 c4 c5 c6"
    lanes.add("w", "g")
    assert names(lanes.take(2)) == "c7 w"
    assert names(lanes.take(9)) == "c8"


def test_with_less_room_than_lanes_one_of_each_goes_the_first_lanes_first() -> None:
    lanes = waiting(*CROWD[:3], ("x", "g"), ("y", "h"))
    assert (names(lanes.take(2)), lanes.take(0)) == ("c0 x", [])
    assert names(lanes.take(2)) == "c1 y"
    assert names(lanes.take(2)) == "c2"


def test_discarded_entries_are_not_taken() -> None:
    lanes = waiting(*CROWD[:2], ("x", "g"))
    lanes.discard("x", "g")
    lanes.discard("x", "g")
    lanes.discard("c0", "crowd")
    assert names(lanes.take(9)) == "c1"
    lanes.add("c1", "crowd")
    lanes.clear()
    assert lanes.take(9) == []


def test_a_patient_lane_goes_along_with_others_and_asks_by_itself_after_a_while() -> None:
    lanes = waiting(("a", "slow"))
    lanes.patient("slow", patient=True)
    assert (bool(lanes), lanes.due_ms(1_000)) == (False, [1_000 + PATIENCE_MS])
    lanes.add("b", "g")
    assert lanes
    assert names(lanes.take(9)) == "a b"
    lanes.add("c", "slow")
    assert (lanes.due_ms(2_000), bool(lanes)) == ([2_000 + PATIENCE_MS], False)
    assert (lanes.due_ms(2_000 + PATIENCE_MS), bool(lanes)) == ([], True)
    assert names(lanes.take(9)) == "c"
    lanes.add("d", "slow")
    assert not lanes
    lanes.patient("slow", patient=False)
    assert names(lanes.take(9)) == "d"
