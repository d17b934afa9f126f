"""The tree gets its id, or another id, while groups are at work. Commits in Kafka name this id (docs/offsets.md)."""

from __future__ import annotations

import json

import pytest

from tests.sim.script import on_seeds
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import StoreTool
from tests.sim.test_failures_stores import A_WHILE_MS, P0, equal, kill_owner
from zkcoord.tree.paths import SCHEMA
from zkcoord.tree.writes import ANY_VERSION, SetNode


def name_tree(scene: StoreScene, tree_id: str) -> None:
    """From now on the tree has this id, as after a migration."""
    ensemble = scene.world.ensemble
    schema = json.loads(ensemble.data(SCHEMA) or b"")
    ensemble.operate(SetNode(SCHEMA, json.dumps({**schema, "tree_id": tree_id}).encode(), ANY_VERSION))


def begin_without_id(seed: int) -> StoreScene:
    """A group that has settled in a tree of an earlier release."""
    scene = StoreScene(seed, consumers=0, checkpoint_ms=600_000)
    scene.world.run_until(lambda: scene.world.ensemble.data(SCHEMA) is not None, what="a tree")
    name_tree(scene, "")
    for n in range(3):
        scene.join(f"consumer{n}")
    scene.settle()
    return scene


@on_seeds(2)
def test_f138_a_group_moves_to_kafka_though_its_tree_got_its_id_after_its_members_joined(seed: int) -> None:
    scene = begin_without_id(seed)
    joined = dict(scene.field.registrations)
    name_tree(scene, "5e0b")
    scene.world.run_for(A_WHILE_MS)
    tool = StoreTool(scene, "kafka")
    scene.world.run_for(60_000)
    assert tool.over, tool.turns[-1]
    assert scene.field.registrations == joined, "nobody has to join again"
    kill_owner(scene, P0)
    scene.calm()
    assert equal(scene)


@pytest.mark.parametrize("store", ["dual", "kafka"])
@on_seeds(2)
def test_f138_commits_count_again_soon_after_the_tree_has_another_id(store: str, seed: int) -> None:
    scene = begin_in(seed, store, checkpoint_ms=600_000)
    scene.world.run_for(A_WHILE_MS)
    scene.world.run_until(lambda: equal(scene), what="Kafka has all")
    name_tree(scene, "77aa")
    scene.world.run_until(lambda: equal(scene), what="commits name the new id")
    kill_owner(scene, P0)
    scene.calm()
    assert equal(scene)
