"""`zkcoord migrate move --give-up` on a real server, and what other moves have left: copies, and groups elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.cli.migrate.test_move import P0, moving, set_up
from tests.cli.program import Run
from tests.integration.world import World
from tests.waiting import wait_until
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord, Request
from zkcoord.errors import UnavailableError
from zkcoord.offsets.move import GroupMove
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.request import requested

pytestmark = pytest.mark.zookeeper

AWAY = "127.0.0.1:1/gone"


def test_an_unfinished_move_is_given_up_though_the_other_tree_is_gone(run: Run, here: World, there: World) -> None:
    set_up(here, DRAFT)
    record = decode_record(here.data(DRAFT.record("g")))
    give_up = ("migrate", "move", "--to", AWAY, "--give-up", "--zookeeper", here.zookeeper)
    nothing = run(*give_up)
    assert (nothing.exit_code, nothing.stdout, "nothing was given up: no move to there" in nothing.stderr) == (
        0,
        "",
        True,
    )
    moved = Moved(state=MoveState.LEAVING, tree="bb", address=AWAY, run="r1")
    here.put(DRAFT.record("g"), encode_record(requested(replace(record, moved=moved), "pause", Request(run="r1"))))

    result = run(*give_up)

    assert (result.exit_code, result.stdout) == (0, "group g: goes on here\n")
    assert f"what was copied to {AWAY} stays there, since it cannot be removed now" in result.stderr
    assert "nobody reads it; run this again when that tree answers" in result.stderr
    wait_until(lambda: decode_record(here.data(DRAFT.record("g"))) == record, "also the answer to the pause is gone")
    code, rows, text = moving(run, here, there, "--group", "g")
    assert (code, rows[0]["state"]) == (0, "moved"), text
    code, rows, text = moving(run, here, there, "--give-up")
    given_up = {"group": "g", "given_up": False, "copy_removed": False}
    assert (code, rows, "a move back begins there" in text) == (0, [given_up], True)


def fails_behind_the_copy(run: Run, here: World, there: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """A move of all groups whose copy of g is whole, and is given up by the command itself."""

    def fails(move: GroupMove) -> object:
        raise UnavailableError("somebody wrote meanwhile")

    with monkeypatch.context() as patch:
        patch.setattr(GroupMove, "_compare", fails)
        code, rows, text = moving(run, here, there)
    assert (code, rows) == (5, []), text
    assert decode_record(here.data(DRAFT.record("g"))).moved is None
    return text


def test_a_copy_of_a_move_that_failed_is_removed_by_the_command_that_is_printed_on_either_side(
    run: Run, here: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(here, DRAFT)
    text = fails_behind_the_copy(run, here, there, monkeypatch)
    assert f"group g: goes on here; --give-up removes what was copied to {there.zookeeper}" in text
    shown = run("group", "describe", "g", "--zookeeper", there.zookeeper).stdout
    told = " ".join(shown.split())
    assert f"this group is arriving from {here.zookeeper}" in told
    printed = re.search(r"run `zkcoord ([^`]+)` again at (\S+) if it broke off.* with (--\S+) the group", told)
    assert printed is not None, shown
    command, address, option = printed.groups()
    assert "the copy here is removed" in told

    result = run(*command.split(), option, "--to", there.zookeeper, "--zookeeper", address)

    assert (result.exit_code, result.stdout) == (0, f"group g: its copy at {there.zookeeper} is removed\n")
    assert there.children(DRAFT.groups) == []
    again = run(*command.split(), option, "--to", there.zookeeper, "--zookeeper", address, "--output", "json")
    assert again.stdout == '{"group":"g","given_up":false,"copy_removed":false}\n'
    assert decode_record(here.data(DRAFT.record("g"))) == GroupRecord()
    code, rows, text = moving(run, here, there, "--group", "g")
    assert (code, rows[0]["state"]) == (0, "moved"), text


def test_a_copy_that_cannot_be_removed_is_told_and_the_others_are(
    run: Run, here: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(here, DRAFT)
    fails_behind_the_copy(run, here, there, monkeypatch)
    here.put(DRAFT.offset("a", P0), b"1")
    with monkeypatch.context() as patch:
        patch.setattr(GroupMove, "_leave", lambda move: None)
        patch.setattr(GroupMove, "open", lambda move: None)
        assert moving(run, here, there, "--group", "a")[0] == 0
    there.put(DRAFT.registration("g", "c1"), b"{}")
    code, rows, text = moving(run, here, there, "--give-up")
    told = [(row["group"], row["given_up"], row["copy_removed"]) for row in rows]
    assert (code, told) == (0, [("a", True, True), ("g", False, False)]), text
    assert "c1 registered there: stop these consumers first" in text
    assert there.children(DRAFT.groups) == ["g"]


def test_groups_that_another_move_has_are_left_out_of_a_move_of_all_and_are_refused_by_name(
    run: Run, here: World, there: World
) -> None:
    set_up(here, DRAFT)
    for group, state in (("gone", MoveState.GONE), ("leaving", MoveState.LEAVING), ("arriving", MoveState.ARRIVING)):
        moved = Moved(state=state, tree="cc", address="zk3:2181/kafka", run="r1")
        here.put(DRAFT.record(group), encode_record(GroupRecord(moved=moved)))
    code, rows, text = moving(run, here, there, "--group", "gone")
    assert (code, rows) == (2, []), text
    assert "group gone was moved to zk3:2181/kafka: end that move first; nothing was moved" in text
    for words, state in ((("--dry-run",), "would be moved"), ((), "moved"), ((), "was moved already")):
        code, rows, text = moving(run, here, there, *words)
        assert (code, [(row["group"], row["state"]) for row in rows]) == (0, [("g", state)]), text
        for where in ("gone was moved to", "leaving is being moved to", "arriving is arriving from"):
            assert f"group {where} zk3:2181/kafka: it is left out" in text
