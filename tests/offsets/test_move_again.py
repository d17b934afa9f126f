"""Moves to a tree that has had the group before: its old nodes, and runs of the command that come too late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.offsets.two_trees import ADOPTED, OURS, P2, Pair, put, whole
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Request, Response
from zkcoord.core.state import GroupState
from zkcoord.errors import FencedError, UsageError
from zkcoord.offsets.move import GroupMove
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.registration import TOMBSTONE
from zkcoord.tree.state import decode_state, encode_state
from zkcoord.tree.topic import Mark, decode_mark, encode_mark


def begun(pair: Pair) -> Pair:
    """Return a pair in which an earlier run has made the copy's record, and was interrupted then."""
    pair.move("r0").begin()
    pair.move("r0")._arrive()
    return pair


def test_a_hung_run_removes_no_offset_that_the_copys_consumers_have_made_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier copy had an offset that the group does not have any more. The later run removes it, and a consumer
    creates it again."""
    pair, path = Pair.of(), DRAFT.offset("g", P2)
    begun(pair)
    put(pair.memory(1), {path: b"1"})
    hung, copied = pair.move("r1"), GroupMove._copy_offsets

    def copy(self: GroupMove, wanted: Mapping[TopicPartition, int]) -> None:
        monkeypatch.undo()
        tree = pair.memory(1)

        def other(_: int) -> None:
            tree.meanwhile = lambda _: None
            whole(pair.move("r2"))
            put(tree, {path: b"40"})

        tree.meanwhile = other
        copied(self, wanted)

    monkeypatch.setattr(GroupMove, "_copy_offsets", copy)
    with pytest.raises(FencedError):
        whole(hung)

    assert pair.readable() == [False, True]
    assert pair.memory(1).data()[path] == b"40"


def test_a_move_that_ended_long_ago_does_not_open_a_copy_that_comes_from_a_third_tree() -> None:
    pair = Pair.of()
    whole(pair.move())
    arriving = Moved(state=MoveState.ARRIVING, tree="cc", address="zk-cc:2181", run="c1")
    pair.memory(1).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, moved=arriving)))

    pair.move("r2").open()

    record = pair.records()[1]
    assert record is not None
    assert record.moved == arriving


def test_requests_of_tools_stay_behind_and_what_people_decided_goes_along() -> None:
    pair = Pair.of()
    requests = {"rebalance": Request(who="bob", run="b1"), "hold": Request(who="bob", run="h1")}
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, assignor="range", requests=requests)))

    whole(pair.move())

    record = pair.records()[1]
    assert record is not None
    assert (record.assignor, record.requests, record.responses) == ("range", {}, {})


@pytest.mark.parametrize("incarnation", [1, 9])
def test_a_topics_incarnation_comes_back_with_the_group_whichever_is_larger(incarnation: int) -> None:
    """A group that was deleted in the other tree counts incarnations from 1 there. With the old mark its commits would
    seem too old."""
    pair = Pair.of()
    whole(pair.move())
    mark = Mark(incarnation=incarnation, topic_id=None, czxid=4, root_czxid=2)
    pair.memory(1).set(DRAFT.mark("g", "clicks"), encode_mark(mark))

    whole(pair.back().move("r2"))

    found = decode_mark(pair.memory(0).data()[DRAFT.mark("g", "clicks")])
    assert found == replace(mark, czxid=0, root_czxid=0)


def test_unreadable_nodes_at_the_copys_place_are_overwritten() -> None:
    pair = begun(Pair.of())
    put(pair.memory(1), {DRAFT.state("g"): b"\xff", DRAFT.mark("g", "clicks"): b"\xff"})
    whole(pair.move())
    assert decode_state(pair.memory(1).data()[DRAFT.state("g")]).generation == 7
    mark = decode_mark(pair.memory(1).data()[DRAFT.mark("g", "clicks")])
    assert mark is not None
    assert mark.incarnation == 3


@pytest.mark.parametrize("state", [GroupState(generation=8), GroupState(generation=7, problem="no member")])
def test_a_state_that_the_copys_coordinator_has_written_meanwhile_stays(state: GroupState) -> None:
    pair = begun(Pair.of())
    put(pair.memory(1), {DRAFT.state("g"): encode_state(state)})
    whole(pair.move())
    assert pair.memory(1).data()[DRAFT.state("g")] == encode_state(state)


def test_a_move_is_not_given_up_where_the_group_arrives() -> None:
    pair = Pair.of()
    arriving = Moved(state=MoveState.ARRIVING, tree="aa", address="zk-aa:2181", run="r1")
    pair.memory(1).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, moved=arriving)))
    before = pair.memory(1).data()
    with pytest.raises(UsageError, match="group g is arriving from zk-aa:2181: run the command there"):
        pair.back().move("r2").give_up()
    assert pair.memory(1).data() == before


def test_a_pause_that_a_coordinator_takes_back_behind_the_tombstone_does_not_end_the_move() -> None:
    """No old member can rebalance beside the tombstone, so the coordinator begins nothing, and our members hold
    nothing."""
    pair = Pair.of(LEGACY, DRAFT)
    put(pair.memory(0), {LEGACY.registration("g", "g_h-1-z0000000"): OURS})
    move = pair.move()
    move.begin()
    done = {"pause": Response(run="r1", state="paused")}
    pair.memory(0).set(LEGACY.record("g"), encode_record(replace(_record(pair), responses=done)))
    assert move.stopped()
    stone, tree = LEGACY.registration("g", TOMBSTONE), pair.memory(0)

    def taken_back(_: int) -> None:
        if stone in tree.data() and _record(pair).responses:
            tree.set(LEGACY.record("g"), encode_record(replace(_record(pair), responses={})))

    pair.memory(1).meanwhile = taken_back
    move.carry_out()

    assert (pair.readable(), pair.offsets(1)["0"]) == ([False, True], b"100")


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("number", [0, 1])
def test_a_late_answer_to_the_pause_of_an_empty_group_does_not_end_the_move(number: int, at: int) -> None:
    """The move does not wait for that answer, since no member reads. The answer may come before any write."""
    pair, path = Pair.of(), DRAFT.record("g")
    tree = pair.memory(number)
    pair.memory(0).set(path, encode_record(replace(_record(pair), store_name="dual", store_step=1)))

    def answered(sent: int) -> None:
        if sent == at and path in tree.data():
            record = decode_record(tree.data()[path])
            tree.set(path, encode_record(replace(record, responses={"pause": Response(run="r1", state="paused")})))

    tree.meanwhile = answered
    whole(pair.move())

    assert (pair.readable(), pair.offsets(1)) == ([False, True], {"0": b"100", "1": b"7"})


def _record(pair: Pair) -> GroupRecord:
    return decode_record(pair.memory(0).data()[LEGACY.record("g")])


def test_facts_told_of_old_members_meanwhile_come_back_with_the_group() -> None:
    pair = Pair.of(LEGACY, LEGACY)
    whole(pair.move())
    told = replace(ADOPTED, strategy="roundrobin")
    there = decode_record(pair.memory(1).data()[LEGACY.record("g")])
    put(pair.memory(1), {LEGACY.record("g"): encode_record(replace(there, adoption=told))})
    whole(pair.back().move("r2"))
    assert decode_record(pair.memory(0).data()[LEGACY.record("g")]).adoption == told
