"""F225, F266: another cluster answers between two lists of this one. F268: brokers name no topic at all."""

from __future__ import annotations

from tests.sim.script import on_seeds
from tests.sim.test_failures_mirror import Group
from zkcoord.core.topic_mirror import ABSENT_MS, CONFIRM_MS, RETURN_MS
from zkcoord.core.topics import DELETED_MS


@on_seeds()
def test_f225_another_clusters_description_between_two_lists_is_not_taken_in(seed: int) -> None:
    """The other cluster answers every description: it has topics `t` and `x`, with other ids, partitions and
    replicas."""
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
def test_f266_a_wrongly_replaced_topic_comes_back_after_long_equal_answers(seed: int) -> None:
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


@on_seeds()
def test_f268_while_brokers_name_no_topic_at_all_groups_read_on_and_no_offset_goes(seed: int) -> None:
    """All brokers have just restarted, and their controller has not told them of any topic yet."""
    group = Group(seed, coordinators=1)
    world, offsets = group.world, group.offsets()
    since_ms, group.metadata.no_topics = world.now_ms, True
    world.run_for(ABSENT_MS + 2 * DELETED_MS)
    assert any("names no topic at all" in why for why in group.problems())
    group.metadata.no_topics = False
    group.settle()
    assert (group.stops(since_ms), world.events("topic_dropped"), group.mark()["incarnation"]) == ([], [], 1)
    assert all(group.offsets()[n] >= offset for n, offset in offsets.items())
    group.calm()
