"""Storms of groups with old members whose claims somebody deletes. Consumers of ours announce their batches, and the
group changes its mode and its offset store. No range may be cut anew."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from random import Random

import pytest

from tests.sim.actors import GROUP
from tests.sim.batches import Sink
from tests.sim.mixed_scene import RECORD, MixedScene
from tests.sim.old_rules import is_old
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.test_mixed_ranges import announcing
from zkcoord.core.mode import Mode
from zkcoord.core.offset_store import KAFKA, STORES, ZOOKEEPER
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import decode_record
from zkcoord.tree.writes import ANY_VERSION, DeleteNode

SEEDS = 30
STEPS = 3_000


class Thefts:
    """A scene, and what happens to it in a storm. `seen` counts what happened."""

    def __init__(self, scene: MixedScene, sink: Sink, drawn: Random) -> None:
        self.scene, self.sink, self.seen = scene, sink, Counter[str]()
        self._drawn = drawn

    def delete_claim(self) -> None:
        """Somebody deletes a claim of a topic that only consumers of ours read."""
        claims = [p for p in sorted(self.scene.rules.claims) if p.topic == "t"]
        if claims:
            path = LEGACY.owner(GROUP, self._drawn.choice(claims))
            self.scene.world.ensemble.operate(DeleteNode(path, ANY_VERSION))
            self.seen["deleted"] += 1

    def join(self) -> None:
        """Another old member joins."""
        self.scene.start(f"old{self.seen['joined']}", topics={"u": 1})
        self.seen["joined"] += 1

    def leave(self) -> None:
        """An old member is asked to leave."""
        names = [
            n for n, p in self.scene.world.processes.items() if is_old(n) and p.running and self._drawn.random() < 0.7
        ]
        if names:
            self.scene.ask_to_leave(names[0])

    def crash(self) -> None:
        """A consumer of ours dies, and comes back later."""
        names = [n for n, p in self.scene.world.processes.items() if n.startswith("consumer") and p.running]
        if names:
            after_ms = int(self._drawn.random() * STORM_MS / 2)
            self.scene.world.crash(self._drawn.choice(names), restart_after_ms=after_ms)

    def move(self) -> None:
        """A tool takes a step between `dual` and `kafka`, if the group is coordinated and the last step is done."""
        record = decode_record(self.scene.world.ensemble.data(RECORD) or b"")
        registered = self.scene.rules.registered
        if self.scene.mode() is not Mode.COORDINATED or any(is_old(s.process) for s in registered.values()):
            return
        for session in registered.values():
            process = self.scene.world.processes[session.process]
            role = self.scene.role(session.process).registered if process.running else None
            if role is None or role.memory.switch or role.memory.store != (record.store_name, record.store_step):
                return
        if record.store_name != ZOOKEEPER:
            self.scene.move_to("dual" if record.store_name == KAFKA else KAFKA)
            self.seen["moved"] += 1


@cache
def stolen_storm(seed: int) -> Thefts:
    """One seed of such a storm, and the calm after it."""
    drawn = Random(f"stolen {int(seed)}")
    scene, sink = announcing(seed, drawn.choice(STORES), drawn.choice((0, 1, 2)), partitions=4, options=None)
    world, thefts = scene.world, Thefts(scene, sink, drawn)
    thefts.join()
    scene.start_ours("consumer0", "consumer1", "consumer2")
    acts = ((thefts.delete_claim, drawn.choice((4, 10, 25))), (thefts.join, drawn.choice((0, 1, 3))))
    for act, times in (*acts, (thefts.leave, drawn.choice((3, 6))), (thefts.crash, 4), (thefts.move, 12)):
        for _ in range(times):
            world.at(world.now_ms + int(drawn.random() * STORM_MS), act)
    world.at(world.now_ms + int(drawn.random() * STORM_MS), partial(scene.start_ours, "consumer3"))
    world.storm(STEPS)
    scene.calm()
    return thefts


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_over_claims_beside_old_members_cuts_no_range_anew(seed: int) -> None:
    stolen_storm(seed)


def test_such_storms_delete_claims_move_groups_and_repeat_ranges() -> None:
    """Otherwise the test above would prove nothing."""
    played = [stolen_storm(seed) for seed in range(SEEDS)]
    seen = sum((thefts.seen for thefts in played), Counter[str]())
    assert (seen["deleted"] > 5 * SEEDS, seen["moved"] > 5, seen["joined"] > SEEDS) == (True, True, True)
    assert sum(thefts.sink.again for thefts in played) > 5
