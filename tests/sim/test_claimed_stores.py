"""Offsets in Kafka where owners are claims of their consumers (layout `legacy`)."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import on_seeds
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import StoreTool
from tests.sim.test_failures_offsets import P0, holder, kill, reads_on
from zkcoord.core.model import TopicPartition
from zkcoord.operating.store_migration import Stage
from zkcoord.tree.paths import LEGACY, SCHEMA

P1 = TopicPartition("t", 1)


@on_seeds(4)
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_a_coordinated_group_of_claims_keeps_its_offsets_in_kafka_and_others_take_over_there(
    seed: int, store: str
) -> None:
    scene = begin_in(seed, store, topics={"t": 4}, layout=LEGACY)
    reads_on(scene)
    scene.join("late")
    scene.settle()
    kill(scene, holder(scene))
    scene.settle()
    reads_on(scene)
    scene.world.run_until(lambda: scene.in_kafka(P0) == scene.ledger.counted(P0), what="Kafka has it, too")
    scene.move(*{"dual": ("zookeeper",), "kafka": ("dual", "zookeeper")}[store])
    reads_on(scene)
    scene.calm()


@on_seeds(2)
def test_a_consumer_without_kafka_does_not_join_a_group_of_claims_whose_offsets_are_there(seed: int) -> None:
    scene: StoreScene = begin_in(seed, "dual", topics={"t": 4}, layout=LEGACY)
    scene.consumers._log = None
    scene.consumers.registers(offers=frozenset({"ping"}), offsets=None)
    scene.join("plain")
    begun_ms = scene.world.now_ms
    scene.world.run_until(lambda: bool(scene.world.events("waiting", begun_ms)), what="it says why it waits")
    assert "must give it bootstrap servers" in scene.world.events("waiting", begun_ms)[0].fields["why"]
    assert not scene.registered("plain")


@on_seeds(2)
def test_a_group_of_old_dual_committers_goes_on_in_dual_after_they_left(
    seed: int,
) -> None:
    scene = StoreScene(seed, topics={"t": 4}, layout=LEGACY, consumers=0)
    adoption = {**scene.record()["adoption"], "offsets": "kafka", "dual_commit": True}
    scene.edit_record(adoption=adoption, offsets={"store": "dual", "step": 0})
    scene.world.ensemble.ensure(LEGACY.offset(GROUP, P0), b"70")
    scene.log.stranger_commits(P0, 70)  # an old member committed there first
    scene.consumers.reset = "earliest"
    for name in ("consumer0", "consumer1"):
        scene.join(name)
    scene.settle()
    assert next(entry.start for entry in scene.journal("start", P0)) == 70
    reads_on(scene)
    scene.world.run_until(lambda: scene.in_kafka(P0) == scene.ledger.counted(P0), what="Kafka has it, too")
    scene.calm()


def old_in_kafka(seed: int) -> StoreScene:
    """A group whose old members committed to Kafka alone, and have left. Nobody has read it since. Partition t-1 has a
    node from long ago."""
    scene = StoreScene(seed, topics={"t": 4}, layout=LEGACY, consumers=0)
    scene.world.run_until(lambda: scene.world.ensemble.stat(SCHEMA) is not None, what="a tree")
    scene.ledger.others_count = True
    adoption = {**scene.record()["adoption"], "offsets": "kafka", "dual_commit": False}
    scene.edit_record(adoption=adoption, offsets={"store": "kafka", "step": 0})
    scene.world.ensemble.ensure(LEGACY.offset(GROUP, P1), b"20")
    for partition in scene.partitions():
        scene.log.stranger_commits(partition, 70 + partition.partition)
    scene.field.covered[GROUP, P1] = 71  # processed by the old members
    scene.consumers.reset = "earliest"
    return scene


def moved(scene: StoreScene, goal: str, run: str) -> None:
    last = StoreTool(scene, goal, run).finish()
    assert last is not None
    assert (last.stage, last.store) == (Stage.DONE, goal), last


@on_seeds(4)
def test_a_group_of_old_kafka_committers_goes_to_zookeeper_and_back_while_read(
    seed: int,
) -> None:
    scene = old_in_kafka(seed)
    for name in ("consumer0", "consumer1"):
        scene.join(name)
    scene.settle()
    for run, goal in enumerate(("zookeeper", "kafka", "dual")):
        moved(scene, goal, f"r{run}")
        scene.join(f"consumer{2 + run}")
        scene.settle()
        kill(scene, holder(scene))
        scene.settle()
        reads_on(scene)
    first = {entry.partition: entry.start for entry in reversed(scene.journal("start"))}
    assert first == {p: 70 + p.partition for p in scene.partitions()}
    scene.calm()


@pytest.mark.parametrize("way", [("dual",), ("zookeeper",), ("zookeeper", "kafka")], ids="-".join)
@on_seeds(2)
def test_unread_commits_of_old_members_to_kafka_alone_go_along(seed: int, way: tuple[str, ...]) -> None:
    scene = old_in_kafka(seed)
    for run, goal in enumerate(way):
        moved(scene, goal, f"r{run}")
    scene.join("consumer0")
    scene.settle()
    reads_on(scene)
    for partition in scene.partitions():  # each starts once, where the old members stopped
        assert [entry.start for entry in scene.journal("start", partition)] == [70 + partition.partition]
    scene.calm()


@on_seeds(2)
def test_f183_no_commit_of_an_old_member_is_left_in_kafka_for_the_way_back_from_zookeeper(seed: int) -> None:
    """Otherwise records that are read in the meantime would be read again."""
    scene = old_in_kafka(seed)
    moved(scene, "zookeeper", "r0")
    assert [p for p, commit in scene.log.commits.items() if commit.stamp is None] == []
    scene.join("consumer0")
    scene.settle()
    reads_on(scene)
    scene.leave("consumer0")
    scene.world.run_until(lambda: not scene.field.registrations and not scene.field.channels, what="it has left")
    left = {p: scene.node(p) for p in scene.partitions()}
    moved(scene, "dual", "r1")
    began_ms = scene.world.now_ms
    scene.join("consumer1")
    scene.world.run_until(scene.all_held, what="another one reads")
    starts = {entry.partition: entry.start for entry in scene.journal("start", since_ms=began_ms)}
    assert starts == left
