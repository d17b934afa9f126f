"""`zkcoord uninstall` on a tree in memory, where it may break off anywhere, and on a real ZooKeeper."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.cli.old_world import ETL, OldWorld
from tests.cli.program import Run
from tests.migrate.memory_tree import CrashError, MemoryTree
from tests.operating.test_releasing import ADOPTED, GROUP_OF_THEIRS, OF_OURS, OURS, RECORD, REGISTERED, handed_over, put
from zkcoord.core.adoption import Adoption
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DONE, GroupRecord
from zkcoord.errors import CorruptError, SchemaError, UsageError
from zkcoord.migrate import current, stamp, upgrade
from zkcoord.operating.uninstalling import obstacles_of, take_away
from zkcoord.shell.ports import CommitDone, Outcome, UnreadableError
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.schema import encode_schema
from zkcoord.tree.snapshot import Read


def made(layout: str = "legacy") -> MemoryTree:
    """A tree with an adopted group of old consumers."""
    tree = MemoryTree()
    upgrade(tree, run_id="test", layout=layout)
    put(tree, GROUP_OF_THEIRS)
    put(tree, OF_OURS if layout == "legacy" else {})
    tree.commits.clear()
    return tree


def test_an_uninstallation_leaves_what_stands_below_consumers() -> None:
    tree = made()
    take_away(tree, current(tree))
    assert tree.data() == {"/consumers": b"", **{path: text.encode() for path, text in GROUP_OF_THEIRS.items()}}


def test_a_moved_groups_tombstone_goes_and_the_guard_against_old_consumers_stays() -> None:
    tree = made()
    moved = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181", run="r1")
    tree.set(RECORD, encode_record(replace(decode_record(tree.data()[RECORD]), moved=moved)))
    kept = {"/consumers/g/ids/zkcoord-moved": "zkcoord moved this group"}
    put(tree, kept)
    take_away(tree, current(tree))
    left = {**GROUP_OF_THEIRS, **kept}
    assert tree.data() == {"/consumers": b"", **{path: text.encode() for path, text in left.items()}}


@pytest.mark.parametrize("fault", ["crash-before", "crash-after"])
@pytest.mark.parametrize("at", range(4))
def test_a_broken_off_uninstallation_lets_nobody_serve_and_the_next_ends_it(at: int, fault: str) -> None:
    tree = made()
    tree.fault = lambda n: fault if n == at else ""
    with pytest.raises(CrashError):
        take_away(tree, current(tree))
    begun = (at, fault) > (0, "crash-before")
    if begun and current(tree) is not None:
        with pytest.raises(SchemaError, match="resume it with the program, or the command, that began it"):
            upgrade(tree, run_id="somebody")
    assert obstacles_of(tree, current(tree)) == []
    take_away(tree, current(tree))
    assert tree.data() == {"/consumers": b"", **{path: text.encode() for path, text in GROUP_OF_THEIRS.items()}}


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_f260_an_uninstallation_that_broke_off_at_any_node_is_ended_by_the_next_one(layout: str) -> None:
    """A large tree goes in many parts, and the last one may begin anywhere: also between the epoch and the schema."""
    calm = made(layout)
    take_away(calm, current(calm), 1)
    assert len(calm.commits) > 6
    for at, fault in itertools.product(range(len(calm.commits)), ("crash-before", "crash-after")):
        tree = made(layout)
        tree.fault = lambda n, at=at, fault=fault: fault if n == at else ""  # type: ignore[misc]
        with pytest.raises(CrashError):
            take_away(tree, current(tree), 1)
        tree.fault = lambda _: ""
        assert obstacles_of(tree, current(tree)) == []
        take_away(tree, current(tree), 1)
        assert tree.data() == calm.data(), (at, fault)


@pytest.mark.parametrize("ends", ["given up", "stamped"])
def test_f260_an_uninstallation_that_somebody_else_has_ended_removes_nothing_more(ends: str) -> None:
    """Another run that meets a consumer gives it up. From then on coordinators may be elected."""
    tree = made("draft")
    put(tree, {"/zkcoord/groups/g": "{}", "/zkcoord/groups/h": "{}"})

    def another(n: int) -> None:
        if n == 2:  # one node is gone
            schema = current(tree)
            assert schema is not None
            put(tree, {"/zkcoord/schema": encode_schema(replace(schema, migration=None)).decode()})
            if ends == "stamped":
                stamp(tree, goal="0001")

    tree.meanwhile = another
    with pytest.raises(UsageError, match="/zkcoord/schema: somebody gave the uninstallation up meanwhile"):
        take_away(tree, current(tree), 1)
    assert {"/zkcoord/groups/h", "/zkcoord/epoch", "/zkcoord/coordinators"} <= tree.data().keys()


def test_f260_a_run_that_meets_a_consumer_ends_no_migration_that_somebody_has_begun_since() -> None:
    tree = made()
    mark = {"from": "0003", "to": "0002", "run": "bob"}

    def another(n: int) -> None:
        if n == 1:
            schema = current(tree)
            assert schema is not None
            put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED})
            put(tree, {"/zkcoord/schema": encode_schema(replace(schema, migration=mark)).decode()})

    tree.meanwhile = another
    with pytest.raises(UsageError, match="not all was removed"):
        take_away(tree, current(tree))
    schema = current(tree)
    assert schema is not None and schema.migration == mark


def test_a_consumer_that_registers_in_between_has_it_given_up_and_coordinators_may_serve_again() -> None:
    tree = made()
    registered = {f"/consumers/g/ids/{OURS}": REGISTERED}
    before = {**tree.data(), **{path: text.encode() for path, text in registered.items()}}
    tree.meanwhile = lambda n: put(tree, registered) if n == 1 else None
    with pytest.raises(UsageError, match=f"not all was removed: {OURS} of zkcoord is registered"):
        take_away(tree, current(tree))
    assert tree.data() == {**before, "/zkcoord/epoch": b"1"}
    assert obstacles_of(tree, current(tree)) == [f"group g: {_there()}: stop them"]


def test_a_record_that_nobody_can_read_meanwhile_has_it_given_up() -> None:
    tree = made()
    tree.meanwhile = lambda n: put(tree, {RECORD: "garbage"}) if n == 0 else None
    with pytest.raises(CorruptError, match=f"{RECORD}: .*an operator"):
        take_away(tree, current(tree))
    schema = current(tree)
    assert schema is not None and schema.migration is None


def _there() -> str:
    return f"{OURS} of zkcoord is registered there, or still is an owner"


def test_coordinators_members_and_migrations_are_in_its_way() -> None:
    tree = made("draft")
    put(tree, {"/zkcoord/coordinators/3": "{}", "/consumers/groups/g": "", "/consumers/groups/g/ids": ""})
    put(tree, {f"/consumers/groups/g/ids/{OURS}": REGISTERED})
    mark: dict[str, Any] = {"from": "0001", "to": "0002", "run": "ann-1"}
    schema = {"version": 1, "revision": "0001", "layout": "draft", "migration": mark}
    put(tree, {"/zkcoord/schema": json.dumps(schema)})
    assert obstacles_of(tree, current(tree)) == [
        "the migration 0001 -> 0002 is in progress: end it with `zkcoord migrate upgrade`",
        "coordinator 3: stop them (a killed one goes with its session)",
        f"group g: {_there()}: stop them",
    ]


@pytest.mark.zookeeper
def test_for_people_and_programs(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        world = OldWorld(tree, chroot)
        world.group("g", ETL)
        theirs = [path for path, _ in world.everything()]
        upgrade(tree, run_id="test", layout="legacy")
        told = ("--offsets", "zookeeper", "--strategy", "range", "--kafka", "0.11")
        assert run("group", "adopt", "g", *told, "--zookeeper", chroot).exit_code == 0
        before = world.everything()

        done = run("uninstall", "--dry-run", "--zookeeper", chroot)
        assert (done.exit_code, "it would be 7 nodes" in done.stderr) == (0, True)
        assert [line.split() for line in done.stdout.splitlines()] == [
            ["PATH", "NODES"],
            ["/zkcoord", "1"],
            ["/zkcoord/channels", "1"],
            ["/zkcoord/coordinators", "1"],
            ["/zkcoord/epoch", "1"],
            ["/zkcoord/groups", "2"],
            ["/zkcoord/schema", "1"],
        ]
        assert world.everything() == before

        done = run("uninstall", "--output", "json", "--zookeeper", chroot)
        document = json.loads(done.stdout)
        assert (document["obstacles"], document["dry_run"], sum(document["removed"].values())) == ([], False, 7)
        assert tree.read([Read("/zkcoord")])[0].exists is False
        assert [path for path, node in world.everything() if node.exists] == [
            path for path in theirs if not path.startswith("/zkcoord")
        ]
        assert run("uninstall", "--zookeeper", chroot).exit_code == 2


def test_a_group_whose_offsets_were_moved_prevents_an_uninstallation() -> None:
    tree = made()
    moved = replace(ADOPTED, store_name="kafka", store_step=2)
    put(tree, {RECORD: encode_record(moved).decode()})
    (obstacle,) = obstacles_of(tree, current(tree))
    assert obstacle.startswith("group g: its offsets were moved to the store 'kafka': bring them back first")
    leaving = Moved(state=MoveState.LEAVING, tree="bb", address="zk2:2181", run="r1")
    put(tree, {RECORD: encode_record(replace(moved, moved=leaving)).decode()})
    assert obstacles_of(tree, current(tree)) == [
        "group g: it is being moved to zk2:2181: end that move first, or give it up"
    ]
    put(tree, {RECORD: encode_record(replace(moved, moved=replace(leaving, state=MoveState.GONE))).decode()})
    assert obstacles_of(tree, current(tree)) == []
    put(tree, {RECORD: "garbage"})
    (obstacle,) = obstacles_of(tree, current(tree))
    assert obstacle.startswith(f"{RECORD}: bad group record")


@pytest.mark.parametrize(("at", "fault"), [(1, "crash-after"), (2, "crash-before")])
def test_f363_an_uninstallation_that_broke_off_is_ended_where_old_members_keep_offsets_in_kafka(
    at: int, fault: str
) -> None:
    """The adoption was gone already, and the record's store was taken for one to which people had moved the offsets."""
    tree = made()
    told = Adoption(offsets="kafka", strategy="range", kafka="0.11")
    put(tree, {RECORD: encode_record(replace(ADOPTED, adoption=told, store_name="kafka")).decode()})
    tree.fault = lambda n: fault if n == at else ""
    with pytest.raises(CrashError):
        take_away(tree, current(tree))
    assert decode_record(tree.nodes[RECORD][0]).adoption is None
    assert obstacles_of(tree, current(tree)) == []
    take_away(tree, current(tree))
    assert tree.data() == {"/consumers": b"", **{path: text.encode() for path, text in GROUP_OF_THEIRS.items()}}


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_f365_a_coordinator_that_starts_before_the_first_removal_has_it_given_up(layout: str) -> None:
    """It made a new tree when the old one was gone, and the command said that all was removed."""
    tree = made(layout)
    before = tree.data()
    started = {"/zkcoord/coordinators/0": "{}"}
    tree.meanwhile = lambda n: put(tree, started) if n == 0 else None
    with pytest.raises(UsageError, match="not all was removed: coordinator 0: stop them, and run it again"):
        take_away(tree, current(tree))
    assert tree.data() == {**before, "/zkcoord/epoch": b"1", "/zkcoord/coordinators/0": b"{}"}


def test_f365_a_coordinator_that_starts_later_stays_a_candidate_and_the_next_run_ends_it() -> None:
    tree = made("draft")
    tree.meanwhile = lambda n: put(tree, {"/zkcoord/coordinators/0": "{}"}) if n == 1 else None
    with pytest.raises(UsageError, match="coordinator 0: stop them"):
        take_away(tree, current(tree), 1)
    schema = current(tree)
    assert schema is not None and schema.migration is not None
    del tree.nodes["/zkcoord/coordinators/0"]
    take_away(tree, current(tree))
    assert not [path for path in tree.data() if path.startswith("/zkcoord")]


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_f357_a_group_that_was_left_to_kafkas_consumers_prevents_no_uninstallation(layout: str) -> None:
    tree = made(layout)
    put(tree, {"/zkcoord/groups/g": handed_over("zookeeper", DONE)})
    assert obstacles_of(tree, current(tree)) == []


def test_a_tree_that_lost_its_epoch_is_left_as_it_is() -> None:
    """Only an uninstallation that broke off near its end goes on without one."""
    tree = made()
    del tree.nodes["/zkcoord/epoch"]
    before = tree.data()
    with pytest.raises(SchemaError, match="/zkcoord/epoch is missing: an operator must restore it"):
        take_away(tree, current(tree))
    assert tree.data() == before


def test_who_has_no_right_to_the_schema_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = made()
    refused = CommitDone(0, Outcome.REFUSED, failed_at=0, reason="NoAuth")
    monkeypatch.setattr(tree, "commit", lambda transaction: refused)
    with pytest.raises(UsageError, match="/zkcoord/schema"):
        take_away(tree, current(tree))


def test_several_coordinators_are_named_as_such() -> None:
    tree = made()
    put(tree, {"/zkcoord/coordinators/3": "{}", "/zkcoord/coordinators/4": "{}"})
    assert obstacles_of(tree, current(tree)) == ["coordinators 3, 4: stop them (a killed one goes with its session)"]


def uninstalls(tree: MemoryTree) -> None:
    """Another uninstallation, from its beginning to its end."""
    tree.before_read = lambda _: None
    take_away(tree, current(tree), 2)


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_of_two_uninstallations_at_once_each_ends_wherever_the_other_one_does_its_work(layout: str) -> None:
    """The first one said that an operator must restore the schema."""
    for number in itertools.count(1):
        tree = made(layout)
        schema = current(tree)
        reads = tree.act_at_read(number, partial(uninstalls, tree))
        take_away(tree, schema, 2)
        assert not [path for path in tree.data() if path.startswith("/zkcoord")]
        if reads() < number:
            break
    assert number > 5


def test_of_a_group_without_an_adoption_only_a_move_and_offsets_of_the_layout_draft_are_in_the_way() -> None:
    leaving = Moved(state=MoveState.LEAVING, tree="bb", address="zk2:2181", run="r1")
    in_kafka = GroupRecord(store_name="kafka", store_step=2)
    for layout, record, words in (
        ("legacy", GroupRecord(moved=leaving), "it is being moved to zk2:2181"),
        ("legacy", in_kafka, ""),
        ("draft", in_kafka, "its offsets were moved to the store 'kafka'"),
    ):
        tree = made(layout)
        put(tree, {RECORD: encode_record(record).decode()})
        found = obstacles_of(tree, current(tree))
        assert [words in each for each in found] == [True] * bool(words), (layout, found)


def test_f381_groups_of_old_consumers_that_may_not_be_read_prevent_no_uninstallation() -> None:
    """Nobody adopted them. The command ended at the first one, and there was no way out of zkcoord."""
    tree = made()
    theirs = {"/consumers/h": "", "/consumers/h/ids": "", "/consumers/h/ids/h_x": "{}"}
    put(tree, theirs)

    def forbids(reads: Sequence[Read]) -> None:
        if refused := [each.path for each in reads if each.path.startswith("/consumers/h/")]:
            raise UnreadableError(f"{refused[0]}: may not be read", ())

    tree.before_read = forbids
    assert obstacles_of(tree, current(tree)) == []
    take_away(tree, current(tree))
    assert tree.data().keys() == {"/consumers", *GROUP_OF_THEIRS, *theirs}


def test_a_consumer_whose_groups_record_somebody_deleted_is_still_in_the_way() -> None:
    tree = made()
    put(tree, {f"/consumers/g/ids/{OURS}": REGISTERED})
    for path in [path for path in tree.nodes if path.startswith(RECORD)]:
        del tree.nodes[path]
    assert obstacles_of(tree, current(tree)) == [f"group g: {_there()}: stop them"]
