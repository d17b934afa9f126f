"""`zkcoord offsets import` in the simulated world: a group goes on at the offsets of the file, in every store."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.reset_tool import ResetStore, ResetTree, Rewinds
from tests.sim.script import on_seeds
from tests.sim.store_scene import STORES, begin_in
from zkcoord.errors import UsageError
from zkcoord.operating.importing import Import


@pytest.mark.parametrize("offset", [250, 40], ids=["forwards", "backwards"])
@pytest.mark.parametrize("store", STORES)
@on_seeds()
def test_f246_an_import_counts_over_what_another_program_committed_to_kafka_before_it(
    store: str, offset: int, seed: int
) -> None:
    """The group is paused, so its consumers stay registered. They look at Kafka as soon as they have started."""
    scene = begin_in(seed, store, topics={"t": 4}, hold_ms=0)
    world, rewinds = scene.world, Rewinds(scene)
    world.run_for(5_000)
    work = Import(tree=ResetTree(scene, rewinds, None, behind=False), layout=world.layout)
    offsets = dict.fromkeys(scene.partitions(), offset)
    with pytest.raises(UsageError, match="zkcoord group pause"):
        work.write(GROUP, offsets, ResetStore(scene.log))
    scene.request("pause")
    world.run_until(lambda: scene.answered("pause"), what="nobody reads")
    for partition in scene.partitions():
        scene.log.stranger_commits(partition, 20)
    assert work.needs_kafka(GROUP) == (store == "kafka")
    work.write(GROUP, offsets, ResetStore(scene.log))
    rewinds.done(offsets)
    scene.resume()
    world.run_until(lambda: not rewinds.expected, what="all are read on")
    scene.calm()
    assert [scene.journal("foreign_offset"), len(rewinds.expected)] == [[], 0]
    assert {entry.start for entry in scene.journal("start") if entry.start in (20, offset)} == {offset}
