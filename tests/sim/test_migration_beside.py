"""`zkcoord offsets migrate` in a group that old members join. At each of its turns the tool needs all members to be
ours."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.mixed_scene import RECORD, MixedScene
from tests.sim.offset_log import LogStore
from tests.sim.script import on_seeds
from tests.sim.store_tool import TURN_MS, ToolTree
from zkcoord.core.mode import Mode
from zkcoord.core.record import GroupRecord
from zkcoord.migrate import current
from zkcoord.operating.store_migration import Migration, Places, Stage, Turn
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record

STEPS_TAKEN = {"begun": 0, "dual": 1, "kafka": 2}


class MovedBeside(MixedScene):
    """Two consumers of ours are alone, and their offsets can be moved. Old members use only ZooKeeper."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kafka = self.keep_in_kafka(dual_commit=False)
        self.old_offsets = {}
        self.start_ours("consumer0", "consumer1")
        self.await_shared("consumer0", "consumer1")
        self.world.run_until(lambda: self.mode() is Mode.COORDINATED, what="it is coordinated")

    def record(self) -> GroupRecord:
        """The group's record."""
        return decode_record(self.world.ensemble.data(RECORD) or b"")

    def migration(self, goal: str, run: str) -> Migration:
        """One run of the tool; it takes turns only when it is told to."""
        tree = ToolTree(self.world.ensemble)
        schema = current(tree)
        assert schema is not None
        places = Places(
            tree=tree,
            layout=LEGACY,
            tree_id=schema.tree_id,
            kafka=LogStore(self.kafka),
            existing=frozenset(self.all),
        )
        return Migration(places=places, group=GROUP, goal=goal, run={"who": "ann", "when": "now", "run": run})

    def turns(self, migration: Migration, until_step: int | None = None) -> Turn:
        """Let the run take turns, as the command does, until it is over, or has begun and reached this step."""
        while True:
            turn = migration.turn(self.world.now_ms)
            if turn.stage is Stage.REFUSED:
                migration.give_up()
            begun = self.record().migration is not None
            if turn.stage is not Stage.WAITING or (begun and self.record().store_step == until_step):
                return turn
            self.world.run_for(TURN_MS)


@on_seeds(3)
@pytest.mark.parametrize("taken", STEPS_TAKEN)
def test_f216_an_old_member_that_joins_in_the_middle_of_a_migration_ends_it_and_all_is_read_on(
    seed: int, taken: str
) -> None:
    """The run leaves the store as it is at that moment. Every old member finds every offset in its node."""
    scene = MovedBeside(seed)
    migration = scene.migration("kafka", "r1")
    scene.turns(migration, STEPS_TAKEN[taken])
    scene.start("old0")
    scene.world.run_until(lambda: len(scene.rules.registered) == 3, what="the old member is registered")
    last = scene.turns(migration)
    (old,) = scene.rules.members()
    assert last.why == f"it is shared with old members (mixed): it has 1 old member: {old}; replace these first"
    assert (last.stage, last.step) == (Stage.REFUSED, STEPS_TAKEN[taken])
    assert (scene.record().migration, scene.record().store_step) == (None, STEPS_TAKEN[taken])
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.world.run_for(5_000)
    scene.leave("old0")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    last = scene.turns(scene.migration("kafka", "r2"))
    assert (last.stage, last.store, last.step) == (Stage.DONE, "kafka", 2)
    scene.calm()
    assert not +scene.rules.excused
