"""Moves to a tree that has had the group before: its old nodes, and runs of the command that come too late."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

import pytest

from tests.offsets.two_trees import ADOPTED, OURS, P2, Pair, drop_offsets, put, whole
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Request, Response
from zkcoord.core.state import GroupState
from zkcoord.errors import FencedError, UnavailableError, UsageError
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


def test_f333_a_move_whose_pause_a_restore_has_left_out_is_paused_again() -> None:
    """Each run waited for the pause of a group with members until its time was over. The group was read nowhere."""
    pair = Pair.of()
    leaving = Moved(state=MoveState.LEAVING, tree="bb", address="zk-bb:2181", run="r0")
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, moved=leaving)))
    pair.move("r1").begin()
    record = pair.records()[0]
    assert record is not None
    assert (record.requests.keys(), record.moved) == ({"pause"}, replace(leaving, run="r1"))
    put(pair.memory(0), {DRAFT.registration("g", "c"): OURS})
    assert not pair.move("r1").stopped()
    answered = replace(record, responses={"pause": Response(run="r1", state="paused")})
    pair.memory(0).set(DRAFT.record("g"), encode_record(answered))
    assert pair.move("r1").stopped()


@pytest.mark.parametrize("store", ["zookeeper", "dual"])
def test_f327_an_offset_that_is_dropped_with_its_topic_while_the_group_is_moved_is_in_neither_tree(store: str) -> None:
    """The coordinator drops what an earlier topic left, also while its group is being moved. The move wrote the offset
    again, and so the later topic was read from there."""
    for at in itertools.count(1):
        pair = Pair.of()
        source = pair.memory(0)
        put(source, {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, store_name=store))})
        reads = source.act_at_read(at, partial(drop_offsets, source))
        for run in ("r1", "r2"):
            with suppress(UnavailableError):  # "somebody wrote meanwhile: run it again"
                whole(pair.move(run))
        assert pair.readable() == [False, True]
        copied = decode_mark(pair.memory(1).data()[DRAFT.mark("g", "clicks")])
        assert copied is not None
        assert copied.incarnation == 3 or not pair.offsets(1), at
        if at >= reads():
            break


@pytest.mark.parametrize(
    ("marked", "present", "refused"), [(None, None, True), (None, "new", True), ("old", "new", False)]
)
def test_f327_a_group_with_offsets_of_an_earlier_topic_is_not_moved_if_a_copy_does_not_show_that(
    marked: str | None, present: str | None, refused: bool
) -> None:
    """A mark in a copy names no zxids. So without ids the copy's coordinator took the offsets for the later topic's."""
    pair = Pair.of()
    document = json.dumps({"version": 3, "partitions": {"0": [1], "1": [1]}, "topic_id": present}).encode()
    for number in (0, 1):
        put(pair.memory(number), {"/brokers/topics/clicks": document})
    mark = encode_mark(Mark(incarnation=3, topic_id=marked, czxid=7, root_czxid=1))
    put(pair.memory(0), {DRAFT.mark("g", "clicks"): mark})
    with pytest.raises(UsageError, match="clicks was deleted and created again") if refused else nullcontext():
        whole(pair.move())
    assert pair.readable() == ([True, False] if refused else [False, True])


def test_a_run_that_takes_over_keeps_the_pause_that_stands() -> None:
    """The coordinator has answered it, and it names the person who asked for it."""
    pair = Pair.of()
    paused = {"pause": Request(who="bob", run="b1")}
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, requests=paused)))
    for run in ("r1", "r2"):
        pair.move(run).begin()
    record = pair.records()[0]
    assert record is not None
    assert record.moved is not None
    assert (record.requests, record.moved.run, record.moved.paused) == (paused, "r2", True)
