"""Offsets in Kafka where owners are claims of their consumers (layout `legacy`)."""

from __future__ import annotations

import pytest

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
