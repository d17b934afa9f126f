"""F225: another cluster answers between two lists of this one. F266: it could not be told apart."""

from __future__ import annotations

from tests.sim.script import on_seeds
from tests.sim.test_failures_mirror import Group
from zkcoord.core.topic_mirror import ABSENT_MS, CONFIRM_MS, RETURN_MS


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


@on_seeds(2)
def test_f266_a_topic_that_was_replaced_by_mistake_comes_back_when_all_answers_have_told_it_for_long(seed: int) -> None:
    group = Group(seed, coordinators=1)
    world, own = group.world, group.mirrored()["t"]
    group.delete_topic("t")
    group.create_topic("t", 4)
    world.run_until(lambda: group.mark().get("incarnation") == 2, what="another topic counts")
    group.settle()
    world.trace("only what the cluster has is told")
    group.delete_topic("t")
    group.create_topic("t", 4, topic_id=own)
    world.run_for(RETURN_MS - 10_000)
    assert group.mirrored()["t"] != own
    world.run_until(lambda: group.mirrored()["t"] == own, what="its own topic counts again")
    group.grow("t", 6)
    world.run_until(lambda: len(group.field.holdings) == 6, what="the new partitions are read")
    group.calm()
