"""What a move that was given up has left in the other tree goes, or becomes the tombstone again that stood there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError
from tests.offsets.two_trees import OURS, P0, P2, Pair, put, whole
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.errors import UsageError
from zkcoord.operating.copies import remove_copy, remove_lost_copy
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.registration import TOMBSTONE

LAYOUTS = pytest.mark.parametrize("layouts", [(DRAFT, DRAFT), (LEGACY, DRAFT), (DRAFT, LEGACY), (LEGACY, LEGACY)])


def removed(pair: Pair) -> bool:
    return remove_copy(pair.source, pair.target, "g")


def broken_off(pair: Pair, at: int) -> bool:
    """A move that dies behind this write; True if it can be given up, which it is then."""
    pair.fault(at, "crash-after")
    with suppress(CrashError):
        whole(pair.move())
    pair.fault(0, "")
    record = pair.records()[0]
    if record is None or record.moved is None or record.moved.state is not MoveState.LEAVING:
        return False
    assert pair.move("r2").give_up()
    return True


def copied(pair: Pair) -> bool:
    return pair.records()[1] is not None


@LAYOUTS
def test_a_copy_is_removed_wherever_the_move_broke_off_and_the_name_is_free_there(
    layouts: tuple[Layout, Layout],
) -> None:
    calm = Pair.of(*layouts)
    before = calm.memory(1).data()
    whole(calm.move())
    found = 0
    for at in range(calm.writes()):
        pair = Pair.of(*layouts)
        if not broken_off(pair, at):
            continue
        was_copied = copied(pair)
        assert removed(pair) is was_copied
        found += was_copied
        left = pair.memory(1).data().keys() - before.keys()
        assert not [path for path in left if path.endswith("/g") or "/g/" in path], left
        assert not removed(pair)
        assert pair.readable() == [True, False]
        whole(pair.move("r3"))
        assert (pair.readable(), pair.offsets(1)) == ([False, True], {"0": b"100", "1": b"7"})
    assert found > 3


def left_behind(layouts: tuple[Layout, Layout], *, back: bool = False) -> Pair:
    """A copy of a move that was given up. `back`: to where the group was moved from before."""
    pair = Pair.of(*layouts)
    if back:
        whole(pair.move("r0"))
        pair = pair.back()
    move = pair.move()
    move.begin()
    move._arrive()
    move._copy_nodes()
    move._copy_offsets({P0: 100, P2: 3})
    assert move.give_up()
    return pair


@LAYOUTS
@pytest.mark.parametrize("fault", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("back", [False, True])
def test_a_removal_breaks_off_anywhere_and_is_run_again(layouts: tuple[Layout, Layout], fault: str, back: bool) -> None:
    memory = left_behind(layouts, back=back).memory(1)
    first = len(memory.commits)
    for strike in range(50):
        pair = left_behind(layouts, back=back)
        pair.memory(1).fault = lambda number, at=first + strike: fault if number == at else ""
        with suppress(CrashError):
            removed(pair)
        struck = len(pair.memory(1).commits) > first + strike
        removed(pair)
        record = pair.records()[1]
        if back:
            assert record is not None
            gone = Moved(state=MoveState.GONE, tree=pair.source.tree_id, address=pair.source.address, run="r1")
            assert record.moved == gone
        else:
            assert record is None
            assert not [path for path in pair.memory(1).data() if "/g/" in path]
        assert pair.readable() == [True, False]
        if not struck:
            assert strike > 0
            return
    pytest.fail("the removal never ends")


def test_where_the_group_had_been_before_its_tombstone_stands_again_also_behind_two_tries() -> None:
    pair = Pair.of(LEGACY, DRAFT)
    whole(pair.move("r0"))
    back = pair.back()
    for run in ("r1", "r2"):
        move = back.move(run)
        move.begin()
        move._arrive()
        assert back.move("r3").give_up()
    assert removed(back)
    record = back.records()[1]
    assert record is not None
    assert record.moved is not None
    assert (record.moved.state, record.moved.address, record.moved.back) == (MoveState.GONE, "zk-bb:2181", False)
    assert LEGACY.registration("g", TOMBSTONE) in pair.memory(0).data()
    whole(back.move("r4"))
    assert pair.readable() == [True, False]
    assert LEGACY.registration("g", TOMBSTONE) not in pair.memory(0).data()


def test_a_copy_stays_while_its_move_may_go_on_or_has_ended() -> None:
    pair = Pair.of()
    move = pair.move()
    move.begin()
    move._arrive()
    before = pair.memory(1).data()
    with pytest.raises(UsageError, match="group g at zk-aa:2181 is being moved to zk-bb:2181: its copy stays"):
        removed(pair)
    move._leave()
    with pytest.raises(UsageError, match="group g at zk-aa:2181 was moved to zk-bb:2181: its copy stays"):
        removed(pair)
    assert pair.memory(1).data() == before
    move.open()
    assert not removed(pair)


def test_a_copy_of_a_third_trees_group_stays() -> None:
    pair = Pair.of()
    arriving = Moved(state=MoveState.ARRIVING, tree="cc", address="zk-cc:2181", run="c1")
    pair.memory(1).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, moved=arriving)))
    assert not removed(pair)


def test_a_group_that_has_gone_to_a_third_tree_since_leaves_no_copy_here() -> None:
    pair = left_behind((DRAFT, DRAFT))
    gone = Moved(state=MoveState.GONE, tree="cc", address="zk-cc:2181", run="c1")
    pair.memory(0).set(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, moved=gone)))
    assert removed(pair)


@pytest.mark.parametrize("back", [False, True])
def test_a_move_that_begins_again_meanwhile_keeps_its_copy(back: bool) -> None:
    pair = left_behind((DRAFT, DRAFT), back=back)

    def begins_again(_: int) -> None:
        pair.memory(1).meanwhile = lambda _: None
        whole(pair.move("r5"))

    pair.memory(1).meanwhile = begins_again
    with pytest.raises(UsageError, match=r"group g: somebody moves it again: its copy at .* stays"):
        removed(pair)
    assert pair.readable() == [False, True]
    assert pair.offsets(1) == {"0": b"100", "1": b"7"}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_members_registered_at_a_copy_must_stop_first(when: str) -> None:
    pair = left_behind((DRAFT, DRAFT))

    def joins(_: int) -> None:
        put(pair.memory(1), {DRAFT.registration("g", "c1"): OURS})

    if when == "before":
        joins(0)
    else:
        pair.memory(1).meanwhile = joins
    with pytest.raises(UsageError, match=r"/zkcoord/groups/g: c1 registered there: stop these consumers first"):
        removed(pair)
    assert pair.records()[1] is not None
    assert DRAFT.registration("g", "c1") in pair.memory(1).data()


def lost(pair: Pair, address: str = "") -> None:
    remove_lost_copy(pair.target.tree, pair.target.layout, "g", address or pair.source.address)


@LAYOUTS
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("fault", ["", "before", "after", "crash-before", "crash-after"])
def test_a_copy_whose_source_is_lost_is_deleted_whole(layouts: tuple[Layout, Layout], back: bool, fault: str) -> None:
    pair = left_behind(layouts, back=back)
    memory, first = pair.memory(1), len(pair.memory(1).commits)
    memory.fault = lambda number: fault if number == first else ""
    with suppress(CrashError):
        lost(pair)
    if pair.records()[1] is not None:
        lost(pair)
    left = [path for path in memory.data() if path.endswith("/g") or "/g/" in path]
    assert (left, pair.records()[1]) == ([], None)
    with pytest.raises(UsageError, match=r"group g is not arriving from zk-\w\w:2181 here: it is no copy"):
        lost(pair)


def test_only_a_copy_that_arrives_from_the_lost_address_is_deleted() -> None:
    pair = left_behind((DRAFT, DRAFT))
    before = pair.memory(1).data()
    with pytest.raises(
        UsageError, match="group g is not arriving from zk-cc:2181 here: it is arriving from zk-aa:2181"
    ):
        lost(pair, "zk-cc:2181")
    put(pair.memory(1), {DRAFT.registration("g", "c1"): OURS})
    with pytest.raises(UsageError, match="c1 registered there: stop these consumers first"):
        lost(pair)
    assert before.items() <= pair.memory(1).data().items()

    ended = Pair.of()
    whole(ended.move())
    back = ended.back()
    with pytest.raises(UsageError, match="group g is not arriving from zk-bb:2181 here: it was moved to zk-bb:2181"):
        lost(back)
    assert ended.offsets(1) == {"0": b"100", "1": b"7"}
