"""A coordinator logs each member that joins, leaves or dies, as an event of its own; a failover repeats nothing."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from zkcoord.errors import invariant

NAMES = ("member_joined", "member_left", "member_died")


def told(script: Script, since_ms: int) -> list[tuple[str, str]]:
    """Event and consumer, in their order."""
    found = [each for each in script.world.told if each.name in NAMES and each.time_ms >= since_ms]
    invariant(all(each.fields["group"] == GROUP for each in found), "of this group")
    return [(each.name, each.fields["consumer"]) for each in found]


@on_seeds()
def test_joins_leaves_and_deaths_are_told_once_each_with_what_was_owned(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 6})
    script.settle()
    world, begun_ms = script.world, script.world.now_ms
    script.join("late")
    script.settle("four share it")
    late, first, second = (script.member(name) for name in ("late", "consumer0", "consumer1"))
    script.leave("consumer0")
    world.run_until(lambda: (GROUP, first) not in script.field.registrations, 20_000, "it has left")
    world.run_until(script.all_held, 20_000, "others have its share")
    world.crash("consumer1", restart_after_ms=None)
    world.run_until(lambda: (GROUP, second) not in script.field.registrations, 20_000, "it is dead")
    world.run_until(lambda: script.all_held() and bool(world.events("member_died")), 20_000, "others have its share")
    world.run_for(2_000)

    assert told(script, begun_ms) == [("member_joined", late), ("member_left", first), ("member_died", second)]
    (died,) = world.events("member_died")
    assert (died.fields["partitions"] > 0, died.fields["members"]) == (True, 2)


@on_seeds()
def test_a_coordinator_that_takes_over_tells_nothing_of_the_members_that_it_finds(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 6})
    script.settle()
    before, begun_ms = script.leader(), script.world.now_ms
    script.world.crash(before, restart_after_ms=None)
    script.world.run_until(lambda: len(script.world.events("elected")) > 1, 40_000, "another one serves")
    script.world.run_for(5_000)

    assert told(script, begun_ms) == []
