"""A coordinator logs each member that joins, leaves or dies, as an event of its own. A failover repeats no such event.
The groups that a new coordinator finds at rest are only counted."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, Told, on_seeds, sends
from zkcoord.core.view import STOP
from zkcoord.errors import invariant
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CreateNode

NAMES = ("member_joined", "member_left", "member_died")


def told(script: Script, since_ms: int) -> list[tuple[str, str]]:
    """The events and their consumers, in order."""
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


def crowd(seed: int, groups: int) -> Script:
    """A usual group, which is Stable, and `groups` groups without members, all at rest."""
    script = Script(seed, consumers=2, topics={"t": 4})
    script.settle()
    for n in range(groups):
        for path in (DRAFT.group(f"crowd{n:02d}"), DRAFT.ids(f"crowd{n:02d}")):
            invariant(not script.world.ensemble.operate(CreateNode(path, b"")).reason, f"{path} is new")
    found = script.world.events
    script.world.run_until(lambda: len(found("group_found")) > groups and script.balanced(), 20_000, "all are found")
    script.world.run_for(2_000)
    return script


def lines(script: Script, since_ms: int) -> list[Told]:
    """The coordinators' lines in a log at its usual level."""
    return [
        each
        for each in script.world.told
        if each.time_ms >= since_ms and each.client.startswith("coordinator") and each.fields.get("level") != "debug"
    ]


@on_seeds(1)
def test_a_coordinator_that_finds_many_groups_at_rest_says_so_in_a_line(seed: int) -> None:
    script = crowd(seed, 49)
    world, begun_ms = script.world, script.world.now_ms
    world.crash(script.leader(), restart_after_ms=None)
    world.run_until(lambda: bool(world.events("took_over", begun_ms)), 60_000, "it has seen all groups")
    world.run_for(3_000)

    assert [each.name for each in lines(script, begun_ms)] == ["elected", "took_over"]
    (found,) = world.events("took_over", begun_ms)
    assert (found.fields["groups"], found.fields["states"], "unread" in found.fields) == (
        50,
        {"Empty": 49, "Stable": 1},
        False,
    )


@on_seeds(1)
def test_of_many_groups_those_that_move_at_a_failover_have_lines_of_their_own(seed: int) -> None:
    script = crowd(seed, 49)
    world, old = script.world, script.leader()
    world.strike(old, sends(STOP), "before", None)
    script.join("late")
    world.run_until(lambda: world.struck, what="the crash")
    script.settle()
    world.run_for(1_000)
    elected_ms = world.events("elected")[-1].time_ms

    (found,) = world.events("took_over", elected_ms)
    assert found.fields["states"] == {"Empty": 49, "PreparingRebalance": 1}
    of_groups = [each for each in lines(script, elected_ms) if each.name in ("group_phase", "rebalance_stable")]
    assert {each.fields["group"] for each in of_groups} == {GROUP}
    assert next(each.fields["state"] for each in of_groups) == "PreparingRebalance"
    assert [each.name for each in of_groups][-1] == "rebalance_stable"
