"""Offsets in Kafka where owners are claims of their consumers (layout `legacy`)."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import on_seeds
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.test_failures_offsets import P0, holder, kill, reads_on
from zkcoord.tree.paths import LEGACY


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
def test_a_group_whose_old_members_committed_to_both_stores_is_gone_on_with_in_dual_once_they_have_left(
    seed: int,
) -> None:
    scene = StoreScene(seed, topics={"t": 4}, layout=LEGACY, consumers=0)
    adoption = {**scene.record()["adoption"], "offsets": "kafka", "dual_commit": True}
    scene.edit_record(adoption=adoption, offsets={"store": "dual", "step": 0})
    scene.world.ensemble.ensure(LEGACY.offset(GROUP, P0), b"70")
    scene.log.stranger_commits(P0, 70)  # as an old member committed there first
    scene.consumers.reset = "earliest"
    for name in ("consumer0", "consumer1"):
        scene.join(name)
    scene.settle()
    assert next(entry.start for entry in scene.journal("start", P0)) == 70
    reads_on(scene)
    scene.world.run_until(lambda: scene.in_kafka(P0) == scene.ledger.counted(P0), what="Kafka has it, too")
    scene.calm()
