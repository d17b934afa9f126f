"""The start offsets of a group that nobody has read for a while. Each clause of the rule of the tenure has a scene."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import on_seeds
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import tree_id
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.tree.writes import ANY_VERSION, DeleteNode

P0 = TopicPartition("t", 0)
BACK = 50  # how many offsets a commit is behind


def left(seed: int, store: str) -> StoreScene:
    """A group that has read records, keeps its offsets in this store, and has no members any more."""
    scene = begin_in(seed, store, topics={"t": 4}, consumers=1)
    scene.consumers.reset = "earliest"
    scene.world.run_until(lambda: (scene.ledger.counted(P0) or 0) > 2 * BACK, what="it has read")
    scene.leave("consumer0")
    scene.world.run_until(lambda: not scene.field.registrations and not scene.field.channels, what="it has left")
    scene.world.run_for(1_000)  # commits on their way to Kafka have landed
    return scene


def commit(scene: StoreScene, offset: int, tree: str | None = None) -> None:
    """Somebody commits in the node's present tenure, in this tree or in another one with the same history."""
    stat = scene.world.ensemble.stat(scene.world.layout.offset(GROUP, P0))
    assert stat is not None
    stamp = Stamp(tenure=Tenure(tree or tree_id(scene), stat.mzxid))
    scene.log.commit("", {P0: KafkaCommit(offset=offset, stamp=stamp)})


def first_start(scene: StoreScene) -> int:
    """The offset at which the next consumer begins."""
    began_ms = scene.world.now_ms
    scene.join("again")
    scene.world.run_until(lambda: bool(scene.journal("start", P0, began_ms)), what="it is read again")
    return scene.journal("start", P0, began_ms)[0].start


@pytest.mark.parametrize("store", ["dual", "kafka"])
@on_seeds(2)
def test_a_commit_of_another_tree_does_not_count_though_its_transaction_has_the_same_number(
    store: str, seed: int
) -> None:
    scene = left(seed, store)
    node = scene.node(P0)
    commit(scene, node - BACK, tree="another")
    assert first_start(scene) == node


@pytest.mark.parametrize("store", ["dual", "kafka"])
@on_seeds(2)
def test_a_commit_in_the_tenure_of_the_node_counts(store: str, seed: int) -> None:
    scene = left(seed, store)
    node = scene.node(P0)
    commit(scene, node - BACK)
    assert first_start(scene) == node - BACK


@pytest.mark.parametrize("store", ["dual", "kafka"])
@on_seeds(2)
def test_without_a_node_what_kafka_has_counts(store: str, seed: int) -> None:
    scene = left(seed, store)
    node = scene.node(P0)
    commit(scene, node)
    scene.world.ensemble.operate(DeleteNode(scene.world.layout.offset(GROUP, P0), ANY_VERSION))
    assert first_start(scene) == node


@on_seeds(2)
def test_in_the_store_zookeeper_nobody_asks_kafka(seed: int) -> None:
    scene = left(seed, "zookeeper")
    node = scene.node(P0)
    commit(scene, node - BACK)
    assert first_start(scene) == node
    assert [request for request in scene.log.requests if request[2] == "read"] == []
