"""Events while Kafka's consumers have a group: other tools, other runs, topics that are created again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.sim.actors import GROUP
from tests.sim.offset_log import LogFaults
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import StoreTool, ToolDiedError, ToolTree
from tests.sim.test_hand_over import T0, T1, begun, equal, hand_over, offsets, tool
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import HOLD, PAUSE, RESET
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.offsets.standing import standing
from zkcoord.offsets.writing import readers_of
from zkcoord.operating.hand_over import HandOver
from zkcoord.operating.requesting import take_back
from zkcoord.operating.store_migration import Stage
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.topic import Mark, encode_mark
from zkcoord.tree.writes import Transaction

TURN_MS = 300


def handed_over() -> StoreScene:
    """A group that has been handed over to Kafka's consumers."""
    scene = begun()
    hand_over(scene, tool(scene))
    return scene


def take(scene: StoreScene) -> None:
    """Take the group back, like a person who runs the command once."""
    way = tool(scene)
    equal(scene, way)
    way.resume()


# -- other tools


def test_f191_the_offsets_of_a_group_that_is_handed_over_are_not_moved_to_another_store() -> None:
    scene = handed_over()
    turn = StoreTool(scene, "zookeeper").finish()
    assert turn is not None
    assert (turn.stage, "is handed over to consumers of Kafka's own protocol" in turn.why) == (Stage.REFUSED, True)
    assert scene.store()[0] == "kafka"


def test_f191_a_group_whose_offsets_are_being_moved_is_not_handed_over() -> None:
    scene = begun()
    run = StoreTool(scene, "zookeeper")
    way = tool(scene)
    way.refuse_others()
    scene.world.run_until(lambda: bool(run.turns), what="it has begun")
    with pytest.raises(UsageError, match="are being moved between stores"):
        way.pause()


def test_f191_no_tool_sets_offsets_of_a_group_that_is_handed_over() -> None:
    scene = handed_over()
    with pytest.raises(UsageError, match=r"handed over.* then run `zkcoord group take-back g`"):
        readers_of(ToolTree(scene.world.ensemble).read, DRAFT, GROUP).refuse(GROUP, force=True)


def test_f191_an_earlier_resume_does_not_end_the_pause_of_a_handed_over_group() -> None:
    scene = handed_over()
    with pytest.raises(UsageError, match="handed over"):
        take_back(ToolTree(scene.world.ensemble), DRAFT, GROUP, (HOLD, PAUSE, RESET))  # type: ignore[arg-type]
    assert scene.record()["wish"]["pause"]["handed_over"] == "done"


# -- other runs


def test_f192_a_run_that_slept_through_a_return_does_not_end_the_next_hand_over() -> None:
    scene = handed_over()
    slept = tool(scene)
    slept.pause()
    assert slept.equal(scene.world.now_ms) is not None
    take(scene)
    scene.world.run_for(3_000)
    hand_over(scene, tool(scene))
    before = scene.record()["wish"]["pause"]
    for act in (slept.resume, slept.leave, lambda: slept.equal(scene.world.now_ms)):
        with pytest.raises(UsageError, match="somebody ended its pause meanwhile"):
            act()
    assert scene.record()["wish"]["pause"] == before


def test_f192_stores_that_grew_apart_again_before_the_end_are_not_taken_for_equal() -> None:
    """A late commit of a former owner lands after the partition was found equal."""
    scene = begun()
    late = scene.log.commits[T1]
    way = tool(scene)
    way.pause()
    scene.world.run_until(lambda: scene.answered("pause"), what="it is paused")
    while T1 in {each.partition for each in way.left} or not way.left:
        assert way.equal(scene.world.now_ms) is None
        scene.log.forget([T0])  # so that the hand-over cannot end yet
    scene.log.commit("consumer0-1", {T1: late})
    scene.world.run_until(lambda: way.equal(scene.world.now_ms) is not None, what="both stores are equal")
    found = offsets(scene)
    assert [node for node, _, _ in found] == [commit for _, commit, _ in found] == [c for _, _, c in found]


def test_f193_an_unforced_run_goes_on_with_a_broken_off_forced_take_back() -> None:
    scene = begun()
    ahead = scene.node(T1) + 500
    scene.log.stranger_commits(T1, ahead)
    forced = tool(scene)
    forced.force = True
    forced.pause()
    take(scene)
    assert offsets(scene)[1][0] >= ahead


class Disturbed(ToolTree):
    """Somebody else acts right before the first write of an offset; or, with `loses`, every second write gets no
    answer."""

    def __init__(self, scene: StoreScene, between: Callable[[], object] | None = None, *, loses: bool = False) -> None:
        super().__init__(scene.world.ensemble)
        self._between, self._loses = between, loses

    def commit(self, transaction: Transaction) -> CommitDone:
        if self._between is not None and any("/offsets/" in write.path for write in transaction.writes):
            between, self._between = self._between, None
            between()
        done = super().commit(transaction)
        lost = self._loses and self.tried % 2
        return CommitDone(0, Outcome.UNKNOWN) if lost else done


def test_f192_no_offset_is_written_for_a_pause_that_was_ended_in_the_same_moment() -> None:
    scene = begun()
    before = scene.writes_to(DRAFT.offset(GROUP, T0))
    way = tool(scene, Disturbed(scene, lambda: scene.edit_record(wish={})))
    way.pause()
    scene.world.run_until(lambda: scene.answered("pause"), what="it is paused")
    stopped = scene.writes_to(DRAFT.offset(GROUP, T0))  # by the owner that was stopped
    assert stopped > before
    assert way.equal(scene.world.now_ms) is None
    assert scene.writes_to(DRAFT.offset(GROUP, T0)) == stopped
    with pytest.raises(UsageError, match="somebody ended its pause meanwhile"):
        way.equal(scene.world.now_ms)


def test_f160_a_run_whose_answers_are_lost_goes_on_by_what_it_reads() -> None:
    scene = begun()
    tree = Disturbed(scene, loses=True)
    hand_over(scene, tool(scene, tree))
    ahead = scene.node(T1) + 500
    scene.log.stranger_commits(T1, ahead)
    way = tool(scene, tree)
    equal(scene, way)
    way.resume()
    assert (offsets(scene)[1], scene.record()["wish"]["pause"]) == ((ahead,) * 3, None)


def test_f160_a_run_waits_for_brokers_that_are_away() -> None:
    scene = begun()
    way = tool(scene)
    way.pause()
    scene.world.run_until(lambda: scene.answered("pause"), what="it is paused")
    scene.log.go_away(scene.world.now_ms + 10_000)
    assert (way.equal(scene.world.now_ms), way.trouble) == (None, "no broker answers")
    scene.world.run_until(lambda: way.equal(scene.world.now_ms) is not None, what="both stores are equal")
    assert way.trouble == ""
    way.leave()


def test_f191_a_group_with_an_old_member_or_with_its_offsets_in_zookeeper_is_not_handed_over() -> None:
    scene = begun()
    old = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
    scene.world.ensemble.ensure(DRAFT.registration(GROUP, "old"), old)
    with pytest.raises(UsageError, match=r"members that cannot be paused \(old\)"):
        tool(scene).refuse_others()
    way = tool(begin_in(1, "dual", topics={"t": 2}, consumers=1))
    for act in (way.refuse_others, way.pause):
        with pytest.raises(UsageError, match="keeps its offsets in the store 'dual'"):
            act()


@pytest.mark.parametrize("requests", [{"reset": {"run": "r"}}, {"delete": {"run": "r"}}])
def test_f191_a_group_under_a_reset_or_a_deletion_is_not_handed_over(
    requests: dict[str, dict[str, str]],
) -> None:
    scene = begun()
    way = tool(scene)
    way.refuse_others()
    scene.edit_record(wish=requests)
    for act in (way.refuse_others, way.pause):
        with pytest.raises(UsageError, match="wait until that is over"):
            act()


def test_f161_kafka_consumers_that_come_meanwhile_are_waited_for_and_their_commits_count() -> None:
    scene = handed_over()
    way = tool(scene)
    way.refuse_users()
    way.pause()
    scene.log.intrude(scene.world.now_ms + 10_000)
    assert way.equal(scene.world.now_ms) is None
    assert "is read by consumers of Kafka's own protocol" in way.trouble
    ahead = scene.node(T1) + 500
    scene.log.stranger_commits(T1, ahead)
    scene.world.run_until(lambda: way.equal(scene.world.now_ms) is not None, what="both stores are equal")
    assert offsets(scene)[1] == (ahead,) * 3


def test_f161_a_consumer_that_slept_through_the_hand_over_reads_and_commits_nothing() -> None:
    scene = begun()
    world = scene.world
    world.pause("consumer0")
    hand_over(scene, tool(scene))
    for partition in (T0, T1):
        scene.log.stranger_commits(partition, scene.node(partition) + 100)
    before, woken_ms = offsets(scene), world.now_ms
    world.resume("consumer0")
    world.run_for(15_000)
    assert offsets(scene) == before
    assert [scene.journal(event, since_ms=woken_ms) for event in ("start", "read")] == [[], []]
    assert [commit.stamp for commit in scene.log.commits.values()] == [None, None]


# -- topics


@pytest.mark.parametrize("members", ["stay", "leave"])
@pytest.mark.parametrize("later_ms", [0, 3_000, 70_000])
def test_f194_commits_of_a_topic_that_was_created_again_meanwhile_outlive_the_return(
    members: str, later_ms: int
) -> None:
    """The offsets of the earlier topic are removed by themselves. If the tool set the topic's nodes, the new offsets
    would be removed with them."""
    scene = handed_over()
    if members == "leave":
        for name in ("consumer0", "consumer1"):
            scene.leave(name)
        scene.world.run_for(3_000)
    scene.log.delete_topic("t")
    scene.delete_topic("t")
    scene.create_topic("t", 2)
    scene.world.run_for(later_ms)
    for partition in (T0, T1):
        scene.log.stranger_commits(partition, 20)
    way = tool(scene)
    equal(scene, way)
    assert [row.goes_on_at for row in way.rows()] == [20, 20]
    way.resume()
    began_ms = scene.world.now_ms
    if members == "leave":
        scene.join("consumer7")
    scene.world.run_until(lambda: starts(scene, began_ms).keys() == {T0, T1}, what="ours read on")
    scene.world.run_for(3_000)
    assert starts(scene, began_ms) == {T0: 20, T1: 20}


def starts(scene: StoreScene, since_ms: int) -> dict[TopicPartition, int]:
    """The offset at which each partition was started last."""
    return {entry.partition: entry.start for entry in scene.journal("start", since_ms=since_ms)}


def test_f194_offsets_of_an_earlier_topic_are_not_given_to_kafkas_consumers() -> None:
    scene = begun()
    for name in ("consumer0", "consumer1"):
        scene.leave(name)
    scene.world.run_for(3_000)
    scene.log.delete_topic("t")
    scene.delete_topic("t")
    scene.create_topic("t", 2)
    way = tool(scene)
    hand_over(scene, way)
    assert scene.log.commits == {}
    assert [row.goes_on_at for row in way.rows()] == [None, None]


def test_f195_offsets_matter_though_the_broker_that_was_asked_does_not_know_its_topics_yet() -> None:
    scene = begun()  # Kafka has lost the commit of one partition
    way = tool(scene)
    way.existing = standing(ToolTree(scene.world.ensemble).read, DRAFT, ())
    assert way.existing == {T0, T1}
    hand_over(scene, way)
    assert [row.partition for row in way.rows()] == [T0, T1]
    assert [commit for _, commit, _ in offsets(scene)] == [scene.node(T0), scene.node(T1)]


def test_f195_a_removed_topics_offset_prevents_no_hand_over() -> None:
    """Nobody reads such a topic, and Kafka takes no commits for it."""
    scene = begun()
    gone, new = TopicPartition("gone", 0), TopicPartition("new", 0)
    scene.world.ensemble.ensure(DRAFT.offset(GROUP, gone), b"7")
    mark = Mark(incarnation=1, topic_id="old", czxid=5, root_czxid=1)
    scene.world.ensemble.ensure(DRAFT.mark(GROUP, "gone"), encode_mark(mark))
    scene.log.stranger_commits(new, 3)  # Kafka knows this topic, the tree does not yet
    way = tool(scene)
    way.existing = standing(ToolTree(scene.world.ensemble).read, DRAFT, [new])
    assert way.existing == {T0, T1, new}
    hand_over(scene, way)
    assert scene.log.commits.get(gone) is None
    assert [row.partition for row in way.rows()] == [new, T0, T1]


# -- a storm


class Runs:
    """People hand a group over and take it back, again and again. A run may die at any of its writes."""

    def __init__(self, scene: StoreScene, seed: int) -> None:
        self._scene, self._drawn = scene, Random(f"hand-over {seed}")
        self._way: HandOver | None = None
        self._theirs = False  # Kafka's consumers have the group
        self.returns, self.ends_at = 0, -1
        self._later()

    def _later(self) -> None:
        world = self._scene.world
        world.at(world.now_ms + TURN_MS, self._turn)

    def _turn(self) -> None:
        try:
            self._go_on()
        except (ToolDiedError, UnavailableError):
            self._way = None
        if self.returns != self.ends_at:
            self._later()

    def _go_on(self) -> None:
        world, drawn = self._scene.world, self._drawn
        if self._way is None:
            dies_at = drawn.choice((None, None, 1, 2, 3, 4, 5)) if world.stormy else None
            tree = ToolTree(world.ensemble, dies_at, behind=drawn.random() < 0.5)
            self._way = tool(self._scene, tree)
            self._theirs = self._way.record().left_to_kafka  # the last run may have died after its last write
            self._way.pause()
            if self._theirs:
                self._read()
        elif self._way.equal(world.now_ms) is not None:
            self._end(self._way)

    def _end(self, way: HandOver) -> None:
        scene = self._scene
        if self._theirs:
            counted = {p: scene.ledger.counted(p) for p in self.read}
            if counted != self.read:
                scene.world.fail(f"Kafka's consumers have read to {self.read}, and {counted} counts")
            way.resume()
            self.returns += 1
        else:
            apart = {p: (scene.in_kafka(p), scene.ledger.counted(p)) for p in scene.partitions()}
            if any(commit != counts for commit, counts in apart.values()):
                scene.world.fail(f"Kafka's consumers would begin elsewhere: {apart}")
            way.leave()
        self._way = None

    def _read(self) -> None:
        """Kafka's consumers read some records, or jump back. Then they leave."""
        for partition in self._scene.partitions():
            commit = self._scene.in_kafka(partition)
            if commit is not None and self._drawn.random() < 0.7:
                there = commit + self._drawn.choice((-3, 40, 500))
                self._scene.log.stranger_commits(partition, min(max(0, there), self._scene.logs.end(partition)))
        self.read = {p: c.offset for p, c in self._scene.log.commits.items()}


def handing_over_storm(seed: int) -> StoreScene:
    """One seed. Kafka's late commits are left out: nobody fences them until Kafka's consumers come."""
    scene = begin_in(seed, "kafka", None, topics={"t": 4})
    world, runs = scene.world, Runs(scene, seed)
    scene.log.faults = LogFaults(lost_rate=0.1, reply_lost_rate=0.1, absences=2)
    scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, scene.partitions())
    world.storm(2_500)
    runs.ends_at = runs.returns + 2
    world.run_until(lambda: runs.returns == runs.ends_at, 60_000, "the group was taken back")
    scene.calm()
    return scene


@pytest.mark.parametrize("seed", seeds(8))
def test_f160_no_offset_is_lost_in_a_storm_of_hand_overs_and_returns(seed: int) -> None:
    handing_over_storm(seed)
