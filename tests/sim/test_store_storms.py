"""Storms of groups with offsets in ZooKeeper, in both stores, and in Kafka, and of groups that change their store."""

from __future__ import annotations

import pytest

from tests.sim.options import seeds
from tests.sim.store_scene import store_storm


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("store", ["zookeeper", "dual", "kafka"])
def test_offsets_survive_a_storm_in_each_store(seed: int, store: str) -> None:
    store_storm(seed, store, steps=0)


@pytest.mark.parametrize("seed", seeds(8))
def test_offsets_survive_a_storm_while_the_group_is_moved(seed: int) -> None:
    store_storm(seed)
