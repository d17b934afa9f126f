"""`zkcoord migrate move` on real servers: two chroots, both layouts, two ensembles, with consumers and coordinators."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.migrate.conftest import chroot_of
from tests.cli.program import Run
from tests.integration.world import World, named
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import PAUSE, GroupRecord, Request
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper
from zkcoord.errors import UnavailableError
from zkcoord.migrate import upgrade
from zkcoord.offsets.move import GroupMove
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.registration import TOMBSTONE
from zkcoord.tree.request import requested
from zkcoord.tree.schema import decode_schema

pytestmark = pytest.mark.zookeeper

P0, P1 = (TopicPartition("clicks", number) for number in range(2))
ADOPTED = GroupRecord(adoption=Adoption(offsets="zookeeper", strategy="range", kafka="1.1"))


def moving(run: Run, source: World, target: World, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    result = run(
        *("migrate", "move", "--to", target.zookeeper, *words),
        *("--output", "json", "--zookeeper", source.zookeeper, "--timeout-ms", "30000"),
    )
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def set_up(world: World, layout: Layout) -> None:
    """A group with offsets, and a coordinator."""
    upgrade(world.tree, run_id="test", layout=layout.name)
    world.put(layout.record("g"), encode_record(ADOPTED if layout is LEGACY else GroupRecord()))
    world.put(layout.offset("g", P0), b"100")
    world.put(layout.offset("g", P1), b"7")
    world.coordinate(layout.name)


def round_trip(run: Run, source: World, target: World, layouts: tuple[Layout, Layout]) -> None:
    """A group goes over under its consumers, and comes back."""
    set_up(source, layouts[0])
    old = source.join("g", "clicks")
    wait_until(lambda: old.held() == named("clicks", 0, 1), "it reads here")
    assert old.begun == {P0: 100, P1: 7}

    code, rows, text = moving(run, source, target, "--layout", layouts[1].name)
    assert (code, rows[0]["offsets"], rows[0]["state"]) == (0, 2, "moved"), text
    assert ("group g: adopt it there" in text) is (layouts == (DRAFT, LEGACY))
    wait_until(lambda: old.held() == [], "the member has seen its release, too")
    record = decode_record(source.data(layouts[0].record("g")))
    assert record.moved is not None
    assert (record.moved.state, record.moved.address) == (MoveState.GONE, target.zookeeper)
    assert source.tree.read and (TOMBSTONE in source.children(layouts[0].ids("g"))) is layouts[0].adopts
    shown = run("group", "describe", "g", "--zookeeper", source.zookeeper)
    assert f"this group was moved to {target.zookeeper}" in shown.stdout
    refused = run("group", "resume", "g", "--zookeeper", source.zookeeper)
    assert (refused.exit_code, f"group g was moved to {target.zookeeper}" in refused.stderr) == (2, True)

    if layouts[1] is LEGACY:
        target.put(LEGACY.record("g"), encode_record(ADOPTED))  # as `group adopt` does
    target.coordinate(layouts[1].name)
    new = target.join("g", "clicks")
    wait_until(lambda: new.begun == {P0: 100, P1: 7}, "it goes on there")
    assert old.held() == []
    for position in (150, 151):
        new.consumer.commit({P0: position})
    old.consumer.stop()

    code, rows, text = moving(run, target, source, "--layout", layouts[0].name, "--group", "g")
    assert (code, rows[0]["offsets"]) == (0, 2), text
    wait_until(lambda: new.held() == [], "the member has seen its release, too")
    again = source.join("g", "clicks")
    wait_until(lambda: again.begun == {P0: 151, P1: 7}, "it goes on here again")
    wait_until(lambda: again.held() == named("clicks", 0, 1), "it reads")
    assert (TOMBSTONE in source.children(layouts[0].ids("g"))) is False
    assert new.held() == []


@pytest.mark.parametrize("layouts", [(DRAFT, DRAFT), (LEGACY, DRAFT), (DRAFT, LEGACY)], ids=["dd", "ld", "dl"])
def test_a_group_goes_to_another_chroot_or_layout_under_its_consumers_and_comes_back(
    layouts: tuple[Layout, Layout], run: Run, here: World, there: World
) -> None:
    round_trip(run, here, there, layouts)


@pytest.mark.parametrize("layout", [DRAFT, LEGACY], ids=["draft", "legacy"])
def test_f307_consumers_in_the_old_place_say_once_where_their_group_went_and_who_must_act(
    layout: Layout, run: Run, here: World, there: World
) -> None:
    """In the layout legacy one that is started there waits with its registration: there is the tombstone."""
    set_up(here, layout)
    stays = here.join("g", "clicks")
    wait_until(lambda: stays.held() == named("clicks", 0, 1), "it reads here")
    code, _, text = moving(run, here, there, "--layout", layout.name)
    assert code == 0, text
    why = (
        f"the group was moved to {there.zookeeper}, and nothing is read here any more: stop this consumer, and start it"
        " with that address of ZooKeeper"
    )
    told = [("warning", why)]

    def said(event: str) -> list[tuple[str, str]]:
        return [("warning", fields["why"]) for fields in here.reports.of(event) if fields["group"] == "g"]

    wait_until(lambda: said("group_elsewhere") == told, "the one that stays says so")
    here.join("g", "clicks")
    event, expected = ("waiting", told) if layout is LEGACY else ("group_elsewhere", told * 2)
    wait_until(lambda: said(event) == expected, "the one that is started says so")
    assert said("no_coordinator") == []


def test_a_group_goes_to_another_ensemble_and_comes_back(run: Run, here: World) -> None:
    with (
        EmbeddedZooKeeper(fsync=False, max_session_timeout_ms=60_000) as server,
        World(chroot_of(server.hosts, "/there")) as there,
    ):
        there.topic("clicks", 2)
        round_trip(run, here, there, (DRAFT, DRAFT))


def test_a_dry_run_looks_at_both_trees_and_writes_nothing(run: Run, here: World, there: World) -> None:
    set_up(here, DRAFT)
    before = here.data(DRAFT.record("g"))
    code, rows, text = moving(run, here, there, "--dry-run")
    assert (code, rows) == (
        0,
        [{"group": "g", "offsets": 2, "from_kafka": 0, "nodes": 0, "state": "would be moved"}],
    ), text
    assert (here.data(DRAFT.record("g")), there.children("/")) == (before, ["brokers"])


def test_groups_go_in_the_waves_of_a_file_or_by_name(run: Run, here: World, there: World, tmp_path: Path) -> None:
    set_up(here, DRAFT)
    for group in ("a", "h"):
        here.put(DRAFT.offset(group, P0), b"1")
    file = tmp_path / "groups.toml"
    file.write_text("[groups.h]\n[groups.g]\nwave = 2\n[groups.a]\nwave = 2\n", encoding="utf-8")
    for words, groups, state in (
        (("--dry-run",), ["h", "g", "a"], "would be moved"),
        (("--wave", "1"), ["h"], "moved"),
        (("--wave", "2"), ["g", "a"], "moved"),
    ):
        code, rows, text = moving(run, here, there, "--from", str(file), *words)
        assert (code, [(row["group"], row["state"]) for row in rows]) == (0, [(each, state) for each in groups]), text
    for wrong, why in (
        (("--wave", "1"), "--wave chooses among the groups of a file: give --from, too"),
        (("--from", str(file), "--group", "g"), "--from names the groups itself: give no --group with it"),
    ):
        code, _, text = moving(run, here, there, *wrong)
        assert (code, why in text) == (2, True), text


def test_if_one_group_cannot_go_none_does(run: Run, here: World, there: World) -> None:
    set_up(here, DRAFT)
    here.put(DRAFT.offset("h", P0), b"1")
    here.put(DRAFT.registration("h", "c"), b'{"version":1,"subscription":{"clicks":1},"pattern":"static"}')
    code, rows, text = moving(run, here, there)
    assert (code, rows) == (2, [])
    assert "group h is read by c, and cannot be paused: stop these consumers first; nothing was moved" in text
    assert decode_record(here.data(DRAFT.record("g"))).moved is None
    code, rows, text = moving(run, here, there, "--group", "g")
    assert (code, [row["group"] for row in rows]) == (0, ["g"]), text
    here.remove(DRAFT.registration("h", "c"))
    code, rows, text = moving(run, here, there, "--dry-run")
    planned = [(row["group"], row["state"]) for row in rows]
    assert (code, planned) == (0, [("g", "was moved already"), ("h", "would be moved")]), text
    code, rows, text = moving(run, here, there)
    told = [(row["group"], row["offsets"], row["state"]) for row in rows]
    assert (code, told) == (0, [("g", 0, "was moved already"), ("h", 1, "moved")]), text


def test_a_pause_that_nobody_carries_out_is_taken_back(run: Run, here: World, there: World) -> None:
    coordinator = here.coordinate()
    member = here.join("g", "clicks")
    wait_until(lambda: member.held() == named("clicks", 0, 1), "it reads")
    coordinator.stop()
    here.put(DRAFT.offset("a", P0), b"1")
    result = run("migrate", "move", "--to", there.zookeeper, "--zookeeper", here.zookeeper, "--timeout-ms", "300")
    assert (result.exit_code, "pause of group g is not done after 300 ms" in result.stderr) == (5, True), result.stderr
    assert result.stdout.splitlines()[1].split() == ["a", "1", "0", "0", "moved"]
    record = decode_record(here.data(DRAFT.record("g")))
    assert (record.moved, record.requests) == (None, {})
    assert member.held() == named("clicks", 0, 1)


def ends_in_the_middle(run: Run, here: World, there: World, spoil: Callable[[], object]) -> tuple[int, str]:
    """A move that cannot be carried out any more when its pause is; returns when its group is read here again."""
    upgrade(there.tree, run_id="test", layout=DRAFT.name)
    coordinator = here.coordinate()
    member = here.join("g", "clicks")
    wait_until(lambda: member.held() == named("clicks", 0, 1), "it reads")
    coordinator.stop()
    with ThreadPoolExecutor() as pool:
        moved = pool.submit(moving, run, here, there)
        wait_until(lambda: decode_record(here.data(DRAFT.record("g"))).moved is not None, "the move has begun")
        spoil()
        here.coordinate()
        wait_until(lambda: member.held() == [], "it is paused")
        code, rows, text = moved.result()
    assert rows == []
    wait_until(lambda: member.held() == named("clicks", 0, 1), "it reads again")
    record = decode_record(here.data(DRAFT.record("g")))
    assert (record.moved, record.requests) == (None, {})
    return code, text


def test_the_pause_of_a_move_that_is_refused_in_its_midst_ends_with_the_command(
    run: Run, here: World, there: World
) -> None:
    record = encode_record(GroupRecord())
    code, text = ends_in_the_middle(run, here, there, lambda: there.put(DRAFT.record("g"), record))
    assert (code, "there is a group g at" in text) == (2, True), text


@pytest.mark.parametrize(
    ("other", "failure"),
    [("", UnavailableError("lost")), ("other", UnavailableError("lost")), ("", KeyboardInterrupt())],
)
def test_a_moves_pause_with_a_lost_answer_ends_unless_another_run_has_it(
    run: Run, here: World, there: World, monkeypatch: pytest.MonkeyPatch, other: str, failure: BaseException
) -> None:
    """It had been begun, and nobody knew. `other`: the name of another run."""
    for side in (here, there):
        upgrade(side.tree, run_id="test", layout=DRAFT.name)
    here.put(DRAFT.record("g"), encode_record(GroupRecord()))
    begin = GroupMove.begin

    def lost(move: GroupMove) -> MoveState:
        begin(move)
        assert decode_record(here.data(DRAFT.record("g"))).requests.keys() == {PAUSE}
        if other:
            begin(replace(move, asked=replace(move.asked, run=other)))
        raise failure

    monkeypatch.setattr(GroupMove, "begin", lost)
    code, _, text = moving(run, here, there)
    assert code == (130 if isinstance(failure, KeyboardInterrupt) else 5), text
    record = decode_record(here.data(DRAFT.record("g")))
    assert ("" if record.moved is None else record.moved.run, bool(record.requests)) == (other, bool(other))


def test_the_pause_of_an_earlier_run_stays_when_the_one_that_goes_on_with_it_fails(
    run: Run, here: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in (here, there):
        upgrade(side.tree, run_id="test", layout=DRAFT.name)
    tree_id = decode_schema(there.data("/zkcoord/schema")).tree_id
    left = Moved(state=MoveState.LEAVING, tree=tree_id, address=there.zookeeper, run="earlier", paused=False)
    paused = replace(requested(GroupRecord(), PAUSE, Request(run="earlier")), moved=left)
    here.put(DRAFT.record("g"), encode_record(paused))

    def fails(move: GroupMove) -> object:
        raise UnavailableError("somebody wrote meanwhile")

    monkeypatch.setattr(GroupMove, "carry_out", fails)
    monkeypatch.setattr(GroupMove, "stopped", lambda move: True)
    code, _, text = moving(run, here, there)
    assert (code, "somebody wrote meanwhile" in text) == (5, True), text
    record = decode_record(here.data(DRAFT.record("g")))
    assert (record.moved is not None, record.requests.keys()) == (True, {PAUSE})


@pytest.mark.long
def test_the_pause_of_a_move_whose_other_ensemble_dies_in_its_midst_ends_with_the_command(
    run: Run, here: World
) -> None:
    with (
        EmbeddedZooKeeper(fsync=False, max_session_timeout_ms=60_000) as server,
        World(chroot_of(server.hosts, "/there")) as there,
    ):
        there.topic("clicks", 2)
        code, text = ends_in_the_middle(run, here, there, server.stop)
    assert code == 5, text


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no zkcoord tree at"),
        ({"version": 1, "revision": "0001", "layout": "draft"}, "has no id: run `zkcoord migrate upgrade` there"),
        (
            {
                "version": 1,
                "revision": "0001",
                "layout": "draft",
                "migration": {"from": "0001", "to": "0002", "run": "x"},
            },
            "a migration is in progress",
        ),
        ({"version": 1, "revision": "0009", "layout": "draft"}, "newer than this program"),
    ],
)
def test_a_tree_that_cannot_be_moved_from_is_refused(
    schema: dict[str, Any] | None, why: str, run: Run, here: World, there: World
) -> None:
    if schema is not None:
        here.put("/zkcoord/schema", schema)
    code, _, text = moving(run, here, there)
    assert (code, why in text, there.children("/")) == (7, True, ["brokers"]), text


def test_the_same_tree_another_layout_and_an_unknown_group_are_refused(run: Run, here: World, there: World) -> None:
    set_up(here, DRAFT)
    upgrade(there.tree, run_id="test", layout="legacy")
    for target, words, code, why in (
        (here, (), 2, "is the same tree: name another chroot or ensemble"),
        (there, (), 7, "has layout legacy, not draft"),
        (there, ("--layout", "legacy", "--group", "x"), 2, "there is no group 'x'"),
    ):
        found = moving(run, here, target, *words)
        assert (found[0], why in found[2]) == (code, True), found


def test_a_tree_made_by_a_move_has_the_named_topic_source_or_that_of_this_tree(
    run: Run, here: World, zookeeper: Any
) -> None:
    set_up(here, DRAFT)  # at a revision that knows no other source
    here.put(DRAFT.offset("h", P0), b"1")
    here.put("/cluster/id", {"version": "1", "id": "c1"})
    empty = [chroot_of(zookeeper.hosts, f"/{uuid.uuid4().hex}") for _ in range(2)]
    with World(empty[0]) as coordination, World(empty[1]) as another:
        for source, target, words in ((here, coordination, ("--topics", "kafka")), (coordination, another, ())):
            for more in (("--dry-run",), ()):
                code, rows, text = moving(run, source, target, *words, *more)
                assert (code, [row["offsets"] for row in rows]) == (0, [2, 1]), text
            schema = decode_schema(target.data("/zkcoord/schema"))
            assert (schema.topics, schema.cluster_id, schema.migration) == ("kafka", "c1", None)
            told = "has no /zkcoord/topics yet: a coordinator must have mirrored it before consumers start"
            assert text.count(told) == 1, "not once for each group"


def test_a_tree_that_is_there_keeps_its_source_of_topics(run: Run, here: World, there: World) -> None:
    set_up(here, DRAFT)
    upgrade(there.tree, run_id="test")
    before = there.data("/zkcoord/schema")
    code, _, text = moving(run, here, there, "--topics", "kafka")
    assert (code, "takes its topics from zookeeper, not from kafka: leave --topics out" in text) == (7, True), text
    assert there.data("/zkcoord/schema") == before
    assert moving(run, here, there, "--topics", "zookeeper")[0] == 0
