"""Failure cases of offset nodes that somebody deletes under members of each offset store (docs/failures.md)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.offset_log import Fate
from tests.sim.script import on_seeds
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.test_failures_stores import A_WHILE_MS, P0, owner
from zkcoord.tree.writes import ANY_VERSION, DeleteNode

IN_EACH_STORE = pytest.mark.parametrize("store", ["zookeeper", "dual", "kafka"])
SOON_MS = 60_000


def delete_at_stop(scene: StoreScene, name: str) -> None:
    """Somebody deletes the node of P0 at the moment at which the reader's application is told to stop P0."""
    application, path = scene.application(name), scene.world.layout.offset("g", P0)
    call, deleted = application.call, list[object]()

    def calls(token: int, what: str, argument: Any) -> None:
        if what == "stop" and not deleted:
            deleted.append(scene.world.ensemble.operate(DeleteNode(path, ANY_VERSION)))
        call(token, what, argument)

    application.call = calls  # type: ignore[method-assign]


@IN_EACH_STORE
@on_seeds(1)
def test_f139_a_deleted_node_does_not_delay_a_leaving_member(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    scene.world.run_for(A_WHILE_MS)
    name = owner(scene, P0)
    delete_at_stop(scene, name)
    left = scene.leave(name)
    scene.world.run_for(SOON_MS)
    assert left.done()
    scene.calm()


@IN_EACH_STORE
@on_seeds(1)
def test_f139_a_pause_comes_true_though_a_node_was_deleted(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    scene.world.run_for(A_WHILE_MS)
    delete_at_stop(scene, owner(scene, P0))
    scene.request("pause", run="r1")
    scene.world.run_for(SOON_MS)
    assert [scene.owned(f"consumer{number}") for number in range(3)] == [[], [], []]


@on_seeds(1)
def test_f139_a_partition_whose_node_went_under_an_unanswered_commit_is_restarted(seed: int) -> None:
    scene = begin_in(seed, "kafka")
    world = scene.world
    world.run_for(A_WHILE_MS)
    scene.log.fates += [(owner(scene, P0), "commit", Fate.LATE)]
    world.run_until(lambda: not scene.log.fates, what="a commit is sent")
    deleted_ms = world.now_ms
    world.ensemble.operate(DeleteNode(world.layout.offset("g", P0), ANY_VERSION))
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms=deleted_ms)), what="a new start")
    scene.calm()
