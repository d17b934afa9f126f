"""A tool changes a group's offset store while its consumers read, and while people, programs and consumers fail."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.sim.actors import GROUP
from tests.sim.moments import CrashPlan
from tests.sim.offset_log import LogFaults
from tests.sim.scenarios import STORM_MS
from tests.sim.script import Script, on_seeds
from tests.sim.store_scene import STORM_STEPS, StoreScene, begin_in
from tests.sim.store_tool import StoreTool, ToolTree, tools_at_work
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.offset_store import STORES
from zkcoord.group_report import read_group
from zkcoord.operating.store_migration import Stage
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.writes import SetNode

RECORD = DRAFT.record(GROUP)

WAYS = [("zookeeper", "dual"), ("dual", "kafka"), ("kafka", "dual"), ("dual", "zookeeper")]


def settled(scene: StoreScene, store: str) -> None:
    """Every member uses this store, and the group comes to rest."""
    scene.settle()
    assert scene.store()[0] == store
    assert scene.told()
    assert scene.record()["offsets"].keys() == {"store", "step"}  # no run is noted in the record
    scene.calm()


@pytest.mark.parametrize(("store", "goal"), WAYS)
@on_seeds()
def test_a_tool_moves_a_group_that_reads_and_a_second_run_changes_nothing(seed: int, store: str, goal: str) -> None:
    scene = begin_in(seed, store)
    step = scene.store()[1]
    began_ms = scene.world.now_ms
    last = StoreTool(scene, goal).finish()
    assert last is not None
    assert (last.stage, last.store, last.step) == (Stage.DONE, goal, step + 1)
    assert scene.commands_sent("stop-fetcher", since_ms=began_ms) == []  # nobody stops reading
    again = StoreTool(scene, goal, "r2")
    assert again.finish() == last
    assert again.tree.written == []
    settled(scene, goal)


@pytest.mark.parametrize(("store", "goal"), WAYS)
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("behind", [False, True])
def test_f115_a_migration_whose_tool_died_at_any_write_is_gone_on_with(
    store: str, goal: str, at: int, behind: bool
) -> None:
    scene = begin_in(1, store)
    step = scene.store()[1]
    tool = StoreTool(scene, goal, dies_at=at, behind=behind)
    tool.finish()
    assert tool.died  # the tool has three writes: begin, step, end
    last = StoreTool(scene, goal, "r2").finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal)
    assert scene.store()[1] == step + 1  # no step is taken twice
    settled(scene, goal)


def test_consumers_of_kafkas_own_protocol_hinder_the_way_to_kafka_and_not_the_way_back() -> None:
    for goal, stage in (("kafka", Stage.REFUSED), ("zookeeper", Stage.DONE)):
        scene = begin_in(1, "dual")
        tool = StoreTool(scene, goal)
        tool.migration.places.kafka.users = lambda _group: ["x on host"]  # type: ignore[method-assign]
        last = tool.finish()
        assert last is not None
        assert (last.stage, "the group id (x on host): stop them" in last.why) == (stage, stage is Stage.REFUSED)


def test_a_forced_tool_tells_only_lasting_differences_and_equalizes_free_partitions() -> None:
    scene = begin_in(1, "dual", topics={"t": 2}, consumers=1)
    scene.world.run_for(3_000)
    scene.request("pause")
    scene.world.run_until(lambda: scene.answered("pause"), what="nobody reads")
    scene.log.forget(list(scene.log.commits))
    tool = StoreTool(scene, "kafka")
    tool.migration.force = True
    last = tool.finish()
    assert last is not None
    assert (last.stage, last.store, tool.migration.differences) == (Stage.DONE, "kafka", [])
    assert [scene.in_kafka(p) for p in scene.partitions()] == [scene.node(p) for p in scene.partitions()]


@on_seeds()
def test_f116_the_later_of_two_tools_takes_over_and_the_earlier_writes_nothing(seed: int) -> None:
    scene = begin_in(seed, "dual")
    first = StoreTool(scene, "zookeeper", "r1")
    scene.world.run_until(lambda: bool(first.turns), what="the first has begun")
    second = StoreTool(scene, "dual", "r2")
    scene.world.run_until(lambda: bool(second.turns), what="the second has begun")
    written = len(first.tree.written)
    assert first.finish() is not None
    assert second.finish() is not None
    assert first.turns[-1].stage is Stage.REFUSED
    assert first.turns[-1].why == "ann of r2 moves it to 'dual' since now"
    assert len(first.tree.written) == written
    assert second.turns[-1].stage is Stage.DONE
    settled(scene, "dual")


@pytest.mark.parametrize("what", ["another run", "reset", "delete"])
@on_seeds()
def test_f116_a_tool_takes_no_step_once_another_one_or_a_request_has_come_since_its_last_look(
    what: str, seed: int
) -> None:
    scene = begin_in(seed, "zookeeper")
    first = StoreTool(scene, "kafka", "r1")
    scene.world.run_until(lambda: bool(first.turns), what="the first has begun")
    second, kafka = StoreTool(scene, "zookeeper", "r2"), first.migration.places.kafka

    def meanwhile(group: str) -> list[str]:
        """Asking for the users is the last question before the tool writes."""
        if what == "another run":
            second.migration.turn(scene.world.now_ms)
        else:
            scene.request(what, run="x")
        return []

    kafka.users = meanwhile  # type: ignore[method-assign]
    written = len(first.tree.written)
    first.migration.turn(scene.world.now_ms)
    assert (scene.store()[0], len(first.tree.written)) == ("zookeeper", written)
    assert scene.record()["wish"].get(what) or len(second.tree.written) == 1


@pytest.mark.parametrize(("store", "goal"), WAYS)
@on_seeds()
def test_f117_a_step_goes_on_when_its_coordinator_dies_in_the_middle(seed: int, store: str, goal: str) -> None:
    scene = begin_in(seed, store)
    tool = StoreTool(scene, goal)
    scene.world.run_until(lambda: scene.store()[0] == goal, what="the step is taken")
    scene.world.crash(scene.leader(), restart_after_ms=None, exact=True)
    last = tool.finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal)
    settled(scene, goal)


@pytest.mark.parametrize(("store", "goal"), WAYS)
@on_seeds()
def test_f42_a_join_and_a_death_in_the_middle_of_a_step_end_in_one_store(seed: int, store: str, goal: str) -> None:
    scene = begin_in(seed, store)
    tool = StoreTool(scene, goal)
    scene.world.run_until(lambda: scene.store()[0] == goal, what="the step is taken")
    scene.join("late")
    scene.world.crash("consumer0", restart_after_ms=1_000, exact=True)
    last = tool.finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal)
    settled(scene, goal)


@pytest.mark.parametrize(("store", "goal"), [("zookeeper", "kafka"), ("kafka", "zookeeper")])
@on_seeds()
def test_f42_a_join_and_a_death_in_each_step_of_the_whole_way(seed: int, store: str, goal: str) -> None:
    scene = begin_in(seed, store)
    tool = StoreTool(scene, goal)
    for number, step in enumerate((scene.store()[1] + 1, scene.store()[1] + 2)):
        scene.world.run_until(lambda step=step: scene.store()[1] == step, what="a step is taken")  # type: ignore[misc]
        scene.join(f"late{number}")
        scene.world.crash(f"consumer{number}", restart_after_ms=None if number else 1_000, exact=True)
    last = tool.finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal)
    settled(scene, goal)


@pytest.mark.parametrize(("store", "goal"), WAYS)
def test_f42_f117_a_store_step_is_taken_whoever_dies_around_any_of_its_writes(store: str, goal: str) -> None:
    whole = begin_in(1, store, consumers=2, topics={"t": 3})
    before = dict(whole.world.write_counts)
    StoreTool(whole, goal).finish()
    points = [
        CrashPlan(name, number, when, 1_000)
        for name, last in whole.world.write_counts.items()
        for number in range(before.get(name, 0) + 1, last + 1)
        for when in ("before", "after_applied_reply_lost")
    ]
    assert len(points) >= 8  # each consumer gets the command, and obeys it
    for point in points:
        scene = begin_in(1, store, consumers=2, topics={"t": 3})
        scene.world.plan(point)
        last = StoreTool(scene, goal).finish()
        assert last is not None, point
        assert (last.stage, last.store) == (Stage.DONE, goal), point
        settled(scene, goal)


@on_seeds()
def test_f118_a_joining_member_without_the_store_gets_nothing_and_stops_the_tool(seed: int) -> None:
    scene = begin_in(seed, "dual")
    scene.consumers.registers(offers=frozenset({"ping"}), offsets=("zookeeper",))
    scene.join("older")
    scene.world.run_until(lambda: scene.registered("older"), what="it is registered")
    older = scene.member("older")
    scene.world.run_until(lambda: older in scene.state().get("problem", ""), what="it is named")
    assert scene.owned("older") == []
    last = StoreTool(scene, "kafka").finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.REFUSED, "dual")
    assert last.why.startswith(f"these consumers cannot use the store 'kafka': {older}: ")
    back = StoreTool(scene, "zookeeper", "r2").finish()
    assert back is not None
    assert back.stage is Stage.DONE
    settled(scene, "zookeeper")
    assert scene.owned("older") != []


@pytest.mark.parametrize("goal", ["zookeeper", "kafka"])
@on_seeds()
def test_a_group_without_members_is_moved_the_whole_way_and_keeps_its_offsets(seed: int, goal: str) -> None:
    scene = everybody_left(seed)
    counted = {p: scene.ledger.counted(p) for p in scene.partitions()}
    for run, store in (("r1", "kafka"), ("r2", goal)):
        last = StoreTool(scene, store, run).finish()
        assert last is not None
        assert (last.stage, last.store) == (Stage.DONE, store)
    assert {p: scene.ledger.counted(p) for p in scene.partitions()} == counted
    assert (
        {p: scene.node(p) for p in scene.partitions()} == counted == {p: scene.in_kafka(p) for p in scene.partitions()}
    )


def everybody_left(seed: int) -> StoreScene:
    """A group that has read records, and has no members any more."""
    scene = begin_in(seed, "zookeeper")
    scene.world.run_for(3_000)
    for n in range(3):
        scene.leave(f"consumer{n}")
    scene.world.run_until(lambda: not scene.field.registrations and not scene.field.channels, what="all have left")
    return scene


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("behind", [False, True])
def test_f115_a_tool_that_died_while_it_made_offsets_equal_has_moved_none_of_them(at: int, behind: bool) -> None:
    """The tool has five writes: begin, step, the nodes of partitions that nobody holds, step, end. After the third one,
    Kafka does not have the offsets yet."""
    scene = everybody_left(1)
    counted = {p: scene.ledger.counted(p) for p in scene.partitions()}
    tool = StoreTool(scene, "kafka", dies_at=at, behind=behind)
    tool.finish()
    assert tool.died
    last = StoreTool(scene, "kafka", "r2").finish()
    assert last is not None
    assert (last.stage, last.store, last.step) == (Stage.DONE, "kafka", 2)
    assert {p: scene.ledger.counted(p) for p in scene.partitions()} == counted
    assert {p: scene.in_kafka(p) for p in scene.partitions()} == counted


def test_a_kafka_that_is_away_is_waited_for() -> None:
    scene = begin_in(1, "zookeeper")
    scene.log.go_away(scene.world.now_ms + 5_000)
    tool = StoreTool(scene, "kafka")
    scene.world.run_until(lambda: len(tool.turns) > 3, what="some turns")
    assert {(turn.stage, turn.why) for turn in tool.turns} == {(Stage.WAITING, "no broker answers")}
    assert tool.tree.written == []
    last = tool.finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, "kafka")
    settled(scene, "kafka")


@on_seeds()
def test_a_group_that_was_deleted_keeps_its_store_with_its_offsets(seed: int) -> None:
    """Otherwise a member that joins later would find an old offset in ZooKeeper, or none at all."""
    scene = begin_in(seed, "dual")
    scene.world.run_for(3_000)
    for n in range(3):
        scene.leave(f"consumer{n}")
    scene.world.run_until(lambda: not scene.field.registrations and not scene.field.channels, what="all have left")
    scene.request("delete", run="d1")
    scene.world.run_until(lambda: scene.state().get("deleted") is True, what="it is deleted")
    assert scene.store() == ("dual", 1)
    assert "d1" not in str(scene.record())
    assert read_group(ToolTree(scene.world.ensemble), scene.world.layout, GROUP).deleted
    scene.join("again")
    scene.world.run_until(lambda: scene.all_held() and scene.told(), what="it reads, by the store")
    assert not read_group(ToolTree(scene.world.ensemble), scene.world.layout, GROUP).deleted


@on_seeds()
def test_a_consumer_of_kafkas_own_protocol_in_the_group_id_is_named_and_nothing_is_begun(seed: int) -> None:
    scene = begin_in(seed, "zookeeper")
    scene.log.intrude(scene.world.now_ms + 60_000)
    tool = StoreTool(scene, "kafka")
    last = tool.finish()
    assert last is not None
    assert last.stage is Stage.REFUSED
    assert last.why.startswith(
        "consumers of Kafka's own protocol use the group id (console-consumer on host): stop them"
    )
    assert tool.tree.written == []


def test_a_group_of_a_tree_without_an_id_is_not_moved_nor_one_that_goes_to_another_tree() -> None:
    """When such a tree got its id later, all tenures would end at once."""
    scene = begin_in(1, "zookeeper")
    tool = StoreTool(scene, "dual")
    places, tool.migration.places = tool.migration.places, replace(tool.migration.places, tree_id="")
    last = tool.migration.turn(scene.world.now_ms)
    assert (last.stage, "the tree has no id" in last.why) == (Stage.REFUSED, True)
    tool.migration.places = places
    moved = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181", run="r1")
    node = scene.world.ensemble.stat(RECORD)
    assert node is not None
    record = replace(decode_record(scene.world.ensemble.data(RECORD) or b""), moved=moved)
    scene.world.ensemble.operate(SetNode(RECORD, encode_record(record), node.version))
    last = tool.migration.turn(scene.world.now_ms)
    assert (last.stage, last.why) == (Stage.REFUSED, "it was moved to zk2:2181")
    assert tool.tree.written == []


@pytest.mark.parametrize(("name", "why"), [("reset", "its offsets are being reset"), ("delete", "it is being deleted")])
def test_a_group_that_is_being_reset_or_deleted_is_not_moved(name: str, why: str) -> None:
    scene = begin_in(1, "zookeeper")
    scene.request(name, run="x")
    tool = StoreTool(scene, "dual")
    last = tool.migration.turn(scene.world.now_ms)
    assert (last.stage, last.why) == (Stage.REFUSED, f"{why}: wait until that is over")
    assert tool.tree.written == []


def test_an_undone_step_delays_the_next_and_leaves_the_way_back_open() -> None:
    """A consumer that hangs delays the next step, and is named. The way back does not need this consumer."""
    scene = begin_in(1, "zookeeper")
    scene.process("consumer0").pause()
    slow = scene.member("consumer0")
    tool = StoreTool(scene, "kafka", "r1")
    scene.world.run_until(lambda: scene.store() == ("dual", 1), what="the first step")
    scene.world.run_until(lambda: len(tool.turns) > 8, what="some turns")
    assert (tool.turns[-1].store, tool.turns[-1].why) == ("dual", f"{slow} has not obeyed yet (dual, step 1)")
    back = StoreTool(scene, "zookeeper", "r2")
    scene.world.run_until(lambda: scene.store() == ("zookeeper", 2), what="the way back")
    assert (GROUP, slow) in scene.field.registrations  # it still hangs, and nobody waited for it
    scene.process("consumer0").resume()
    last = back.finish()
    assert last is not None
    assert last.stage is Stage.DONE
    settled(scene, "zookeeper")


@on_seeds(6)
def test_the_store_tool_moves_no_offset_in_a_storm_and_comes_to_its_store(seed: int) -> None:
    tools_storm(seed)


def tools_storm(seed: int) -> None:
    """Coordinators, consumers and tools die; Kafka answers late, in part or not at all; strangers commit."""
    drawn = Random(f"tools {int(seed)}")
    scene = begin_in(seed, drawn.choice(STORES), None, topics={"t": 6})
    world = scene.world
    scene.log.faults = LogFaults.drawn(seed)
    scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, scene.partitions())
    tools_at_work(scene, drawn, world.now_ms + STORM_MS)
    for action in (lambda: scene.join("late"), lambda: Script.leave(scene, "consumer0")):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STORM_STEPS)
    scene.calm()
    goal = drawn.choice(STORES)
    last = StoreTool(scene, goal, "last").finish(60_000)
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal)
    scene.calm()
