"""A group moves from one tree to another, and back: every step at which this can be interrupted, and which consumers
may not read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError
from tests.offsets.two_trees import COPIED, OLD, OURS, P0, P1, P2, RECORDS, Pair, put, whole
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, Request, Response
from zkcoord.core.state import GroupState
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.offsets.move import GroupMove, Moving
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.registration import TOMBSTONE
from zkcoord.tree.snapshot import parents
from zkcoord.tree.state import decode_state, encode_state
from zkcoord.tree.topic import Mark, encode_mark


@pytest.mark.parametrize("source", [DRAFT, LEGACY])
@pytest.mark.parametrize("target", [DRAFT, LEGACY])
def test_a_group_is_moved_with_all_that_it_has_and_leaves_a_tombstone(source: Layout, target: Layout) -> None:
    pair = Pair.of(source, target)
    before = pair.memory(1).data()

    done = whole(pair.move())

    kept = RECORDS["legacy"] if source.adopts and target.adopts else RECORDS["draft"]
    made = {path: data for path, data in pair.memory(1).data().items() if path not in before and data}
    assert made == {
        target.record("g"): encode_record(kept),
        target.state("g"): encode_state(GroupState(generation=7)),
        target.instance("g", "i1"): b'{"last":"x"}',
        target.mark("g", "clicks"): COPIED,
        target.offset("g", P0): b"100",
        target.offset("g", P1): b"7",
    }
    assert (done.offsets, done.from_kafka, done.nodes) == (2, 0, 3)
    left = pair.records()[0]
    assert left is not None
    assert left.moved == Moved(state=MoveState.GONE, tree="bb", address="zk-bb:2181", run="r1")
    assert "pause" in left.requests
    assert pair.readable() == [False, True]
    stone = pair.memory(0).data().get(source.registration("g", TOMBSTONE))
    assert stone == (b"zkcoord moved this group to zk-bb:2181\n" if source.adopts else None)
    again = Pair(pair.source, pair.target, {}).move("r2")
    assert (again.survey(), again.begin()) == (Moving(over=True), MoveState.GONE)


@pytest.mark.parametrize("fault", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("layouts", [(DRAFT, DRAFT), (LEGACY, DRAFT), (DRAFT, LEGACY)], ids=["dd", "ld", "dl"])
def test_the_next_run_finishes_a_broken_off_move_and_both_trees_never_count(
    fault: str, layouts: tuple[Layout, Layout]
) -> None:
    calm = Pair.of(*layouts)
    whole(calm.move())
    for at in range(calm.writes()):
        pair = Pair.of(*layouts)
        pair.fault(at, fault)
        for tree in (pair.memory(0), pair.memory(1)):
            tree.meanwhile = lambda _, pair=pair: _never_both(pair)
        try:
            whole(pair.move())
        except CrashError:
            whole(pair.move("r2"))
        _never_both(pair)
        assert pair.readable() == [False, True]
        assert (pair.offsets(0), pair.offsets(1)) == (calm.offsets(0), calm.offsets(1))
        for mine, other in ((pair.memory(n).data(), calm.memory(n).data()) for n in (0, 1)):
            assert mine.keys() == other.keys()


def _never_both(pair: Pair) -> None:
    assert pair.readable() != [True, True]


@pytest.mark.parametrize("at", range(12))
def test_of_two_runs_the_later_one_finishes_and_the_earlier_one_is_told(at: int) -> None:
    """The second run starts at each write of the first one, and a consumer reads in the copy before the first goes
    on."""
    pair, number = Pair.of(LEGACY, LEGACY), itertools.count()
    later = {LEGACY.offset("g", P0): b"500", LEGACY.instance("g", "i1"): b'{"last":"y"}'}

    def other(_: int) -> None:
        if next(number) == at:
            for tree in (pair.memory(0), pair.memory(1)):
                tree.meanwhile = lambda _: None
            whole(pair.move("r2"))
            put(pair.memory(1), later)

    for tree in (pair.memory(0), pair.memory(1)):
        tree.meanwhile = other
    told = False
    try:
        whole(pair.move("r1"))
    except (FencedError, UsageError, UnavailableError):
        told = True

    record = pair.records()[0]
    assert record is not None
    assert record.moved is not None
    assert (record.moved.state, pair.readable()) == (MoveState.GONE, [False, True])
    second = record.moved.run == "r2"
    assert told is (second and at > 0)  # at the first write it finds that the group has moved already
    assert {path: pair.memory(1).data()[path] for path in later} == later or not second


def test_a_run_that_another_one_takes_over_from_ends_at_its_next_write() -> None:
    calm = Pair.of(LEGACY, LEGACY)
    whole(calm.move())
    last = calm.writes() - 1
    for at in range(1, last + 1):
        pair, number = Pair.of(LEGACY, LEGACY), itertools.count()

        def other(_: int, pair: Pair = pair, number: Iterator[int] = number, at: int = at) -> None:
            if next(number) == at:
                pair.move("r2").begin()

        for tree in (pair.memory(0), pair.memory(1)):
            tree.meanwhile = other
        with pytest.raises((FencedError, UsageError)) if at < last else nullcontext():
            whole(pair.move("r1"))
        assert pair.readable() == [False, at == last]
        whole(pair.move("r3"))
        assert pair.readable() == [False, True]


@pytest.mark.parametrize("at", range(12))
def test_a_run_that_was_hung_writes_no_offset_after_the_group_has_come_back(at: int) -> None:
    pair, number = Pair.of(), itertools.count()
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, store_name="kafka")))
    pair.commits[P0] = KafkaCommit(offset=900, stamp=Stamp(tenure=Tenure("aa", 0)))
    back: list[bool] = []

    def other(_: int) -> None:
        if next(number) == at:
            for tree in (pair.memory(0), pair.memory(1)):
                tree.meanwhile = lambda _: None
            whole(pair.move("r2"))
            pair.commits.clear()
            whole(pair.back().move("r3"))
            pair.memory(0).set(DRAFT.offset("g", P0), b"950")
            back.append(True)

    for tree in (pair.memory(0), pair.memory(1)):
        tree.meanwhile = other
    with suppress(FencedError, UsageError, UnavailableError):
        whole(pair.move("r1"))
    if back and at > 0:  # at the first write it begins again
        assert (pair.readable(), pair.offsets(0)["0"]) == ([True, False], b"950")


def test_behind_an_answer_that_is_lost_the_servers_are_in_step_before_the_record_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, seen = Pair.of(), list[str]()
    tree = pair.memory(0)
    monkeypatch.setattr(tree, "sync", lambda: seen.append("sync"))
    tree.before_read = lambda _: seen.append("read")
    tree.meanwhile = lambda _: seen.append("write")
    pair.fault(0, "after")
    pair.move().begin()
    assert seen == ["read", "write", "sync", "read"]


@pytest.mark.parametrize("ends", ["moved", "given up"])
def test_a_run_that_was_hung_before_it_made_the_copy_is_told_and_touches_none(ends: str) -> None:
    pair = Pair.of()
    hung = pair.move("r1")
    hung.begin()
    if ends == "moved":
        whole(pair.move("r2"))
    else:
        assert pair.move("r2").give_up()
    there = pair.memory(1).data()
    with pytest.raises(FencedError, match="this run ends, and has moved nothing"):
        hung._arrive()
    assert pair.memory(1).data() == there


def test_a_run_that_was_hung_before_its_last_write_does_not_open_a_later_copy() -> None:
    pair, calm = Pair.of(), Pair.of()
    hung = pair.move("r1")
    whole(calm.move())
    pair.fault(calm.writes() - 1, "crash-before")
    with pytest.raises(CrashError):
        whole(hung)
    assert pair.readable() == [False, False]
    whole(pair.move("r2"))
    whole(pair.back().move("r3"))
    later = pair.move("r4")
    later.begin()
    later._keep_old_members_out()
    later._arrive()  # its offsets are not there yet
    hung.open()
    assert pair.readable() == [False, False]


@pytest.mark.parametrize("source", [DRAFT, LEGACY])
def test_a_group_comes_back_with_what_it_did_in_the_other_tree(source: Layout) -> None:
    pair = Pair.of(source, LEGACY if source is DRAFT else DRAFT)
    whole(pair.move())
    there = pair.target.layout
    put(
        pair.memory(1),
        {
            there.offset("g", P0): b"500",
            there.offset("g", P2): b"1",
            there.state("g"): encode_state(GroupState(generation=12)),
            there.mark("g", "clicks"): encode_mark(Mark(incarnation=4, topic_id=None, czxid=9, root_czxid=2)),
        },
    )
    del pair.memory(1).nodes[there.offset("g", P1)]

    assert pair.back().move("r2").survey().notes == []
    whole(pair.back().move("r2"))

    assert pair.readable() == [True, False]
    assert pair.offsets(0) == {"0": b"500", "2": b"1"}
    data = pair.memory(0).data()
    assert decode_state(data[source.state("g")]).generation == 12
    assert data[source.mark("g", "clicks")] == encode_mark(Mark(incarnation=4, topic_id=None, czxid=0, root_czxid=0))
    assert source.registration("g", TOMBSTONE) not in data
    assert decode_record(data[source.record("g")]) == RECORDS[source.name]
    whole(pair.move("r3"))
    assert pair.readable() == [False, True]


def test_the_offset_that_counts_goes_along_and_is_written_to_the_node_first() -> None:
    pair = Pair.of()
    record = replace(DEFAULT_RECORD, store_name="kafka", store_step=2)
    pair.memory(0).set(DRAFT.record("g"), encode_record(record))
    mine, zombie = Stamp(tenure=Tenure("aa", 0), incarnation=3), Stamp(tenure=Tenure("aa", 99), incarnation=3)
    pair.commits.update(
        {
            P0: KafkaCommit(offset=900, stamp=mine),
            P1: KafkaCommit(offset=9_999, stamp=zombie),
            P2: KafkaCommit(offset=5, stamp=mine),
        }
    )
    assert pair.move().survey() == Moving(offsets=3, from_kafka=2)

    done = whole(pair.move())

    assert pair.offsets(0) == pair.offsets(1) == {"0": b"900", "1": b"7", "2": b"5"}
    assert (done.offsets, done.from_kafka) == (3, 2)
    there = pair.records()[1]
    assert there is not None
    assert (there.store_name, there.store_step) == ("kafka", 2)


def test_consumers_of_ours_are_waited_for_and_old_ones_refused() -> None:
    pair = Pair.of(LEGACY, DRAFT)
    pair.memory(0).set(LEGACY.ids("g"), b"")
    pair.memory(0).set(LEGACY.registration("g", "g_h-1-z0000000"), OURS)
    move = pair.move()
    move.survey()
    assert move.begin() is MoveState.LEAVING
    assert not move.stopped()
    record = pair.records()[0]
    assert record is not None
    pair.memory(0).set(
        LEGACY.record("g"), encode_record(replace(record, responses={"pause": Response(run="r1", state="paused")}))
    )
    assert move.stopped()
    pair.memory(0).set(LEGACY.registration("g", "g_old-1-0"), OLD)
    for call in (move.stopped, move.survey, move.carry_out):
        with pytest.raises(
            UsageError, match="group g is read by g_old-1-0, and cannot be paused: stop these consumers"
        ):
            call()
    assert pair.records()[1] is None
    assert pair.move("r9").give_up(only_mine=True) is False
    assert move.give_up()
    assert pair.records()[0] == replace(RECORDS["legacy"], responses={"pause": Response(run="r1", state="paused")})
    assert LEGACY.registration("g", TOMBSTONE) not in pair.memory(0).data()


def test_an_old_member_that_joins_in_the_middle_ends_the_move_and_the_source_goes_on_counting() -> None:
    pair = Pair.of(LEGACY, LEGACY)

    pair.memory(1).meanwhile = lambda _: pair.memory(0).set(LEGACY.registration("g", "g_old-1-0"), OLD)
    with pytest.raises(UsageError, match="is read by g_old-1-0"):
        whole(pair.move())
    there = pair.records()[1]
    assert there is not None
    assert there.moved is not None
    assert there.moved.state is MoveState.ARRIVING
    record = pair.records()[0]
    assert record is not None
    assert record.moved is not None
    assert record.moved.state is MoveState.LEAVING


@pytest.mark.parametrize("where", [0, 1])
def test_an_offset_that_somebody_writes_meanwhile_is_found_before_the_copy_counts(where: int) -> None:
    pair = Pair.of()

    def writes(_: int) -> None:
        if pair.offsets(1).get("1") == b"7" or (where == 0 and pair.offsets(1)):
            pair.memory(where).set((pair.source, pair.target)[where].layout.offset("g", P0), b"3")

    pair.memory(1).meanwhile = pair.memory(0).meanwhile = writes
    pair.memory(1).nodes[DRAFT.topic_offsets("g", "clicks")] = (b"", 0)
    for above in parents(DRAFT.topic_offsets("g", "clicks")):
        pair.memory(1).nodes.setdefault(above, (b"", 0))
    original = GroupMove._compare  # the write comes right before the comparison

    def compare(self: GroupMove) -> None:
        writes(0)
        original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupMove, "_compare", compare)
        with pytest.raises(UnavailableError, match=r"somebody wrote meanwhile \(clicks-0 differ\): run it again"):
            whole(pair.move())
    assert pair.readable() == [False, False]


def test_a_move_is_given_up_at_any_write_before_its_end_and_the_group_goes_on_where_it_was() -> None:
    calm = Pair.of(LEGACY, DRAFT)
    whole(calm.move())
    given_up = []
    for at in range(calm.writes()):
        pair = Pair.of(LEGACY, DRAFT)
        pair.fault(at, "crash-after")
        with suppress(CrashError):
            whole(pair.move())
        record = pair.records()[0]
        assert record is not None
        gone = record.moved is not None and record.moved.state is MoveState.GONE
        if gone:
            with pytest.raises(UsageError, match="was moved to zk-bb:2181: that has ended: a move back begins there"):
                pair.move("r2").give_up()
            continue
        given_up.append(pair.move("r2").give_up())
        assert pair.readable()[0]
        assert not pair.readable()[1]
        assert LEGACY.registration("g", TOMBSTONE) not in pair.memory(0).data()
        pair.memory(0).set(LEGACY.offset("g", P0), b"111")
        whole(pair.move("r3"))
        assert (pair.readable(), pair.offsets(1)) == ([False, True], {"0": b"111", "1": b"7"})
    assert given_up == [True] * len(given_up) != []
    assert Pair.of().move().give_up() is False


def test_a_group_that_people_had_paused_stays_paused_where_it_goes_and_where_it_was_given_up() -> None:
    for end in ("moved", "given up"):
        pair = Pair.of()
        requests = {"pause": Request(who="bob", run="p1")}
        paused = replace(RECORDS["draft"], requests=requests, responses={"pause": Response(run="p1", state="paused")})
        pair.memory(0).set(DRAFT.record("g"), encode_record(paused))
        if end == "moved":
            whole(pair.move())
            there = pair.records()[1]
            assert there is not None
            assert (there.moved, "pause" in there.requests) == (None, True)
        else:
            pair.move().begin()
            pair.move().give_up()
            assert pair.records()[0] == paused
