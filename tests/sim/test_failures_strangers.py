"""F225: another cluster answers between two lists of this one."""

from __future__ import annotations

from tests.sim.script import on_seeds
from tests.sim.test_failures_mirror import Group
from zkcoord.core.topic_mirror import ABSENT_MS, CONFIRM_MS


@on_seeds()
def test_f225_what_another_cluster_tells_between_two_lists_of_this_one_is_not_taken_in(seed: int) -> None:
    """It answers every description: its `t` and `x` are there, with another id, partitions and replicas."""
    group = Group(seed, coordinators=1)
    before_ms, known = group.world.now_ms, group.mirrored()
    group.metadata.between_rate = 1.0
    group.create_topic("x", 2)
    group.world.run_for(3 * CONFIRM_MS + ABSENT_MS)
    assert group.metadata.reached["another cluster between two lists"] >= 10
    assert (group.mirrored(), group.stops(before_ms), len(group.field.holdings)) == (known, [], 4)
    group.metadata.between_rate = 0.0
    group.world.run_until(lambda: "x" in group.mirrored(), what="this cluster tells of it")
    assert group.mirrored()["x"] == group.metadata.now["x"].topic_id
    group.calm()
