"""Eager groups in the simulated world: joins, deaths, failovers and switches in the middle."""

from __future__ import annotations

from typing import Any

from tests.sim.actors import GROUP
from tests.sim.field import START, STOP
from tests.sim.script import Script, hold_calls, on_seeds, sends


def eager(seed: int, **size: Any) -> Script:
    """A settled eager group."""
    script = Script(seed, **size)
    script.settle()
    script.edit_record(rebalance="eager")
    return script


@on_seeds()
def test_a_join_stops_every_partition_before_any_starts(seed: int) -> None:
    script = eager(seed, consumers=2)
    world = script.world
    joined_ms, generation = world.now_ms, script.generation()
    script.join("consumer2")
    world.run_until(lambda: script.generation() > generation, what="the raise")
    script.settle()
    stops = [tried.time_ms for p in script.partitions() for tried in script.commands_sent(STOP, p, joined_ms)]
    starts = [tried.time_ms for p in script.partitions() for tried in script.commands_sent(START, p, joined_ms)]
    assert (len(stops), len(starts)) == (4, 4)
    released = [entry.time_ms for entry in script.journal("stop", since_ms=joined_ms)]
    assert max(released) <= min(starts)
    assert script.state()["stopping"] is False
    assert script.generation() == generation + 1
    script.calm()


@on_seeds()
def test_a_switch_to_eager_alone_moves_nothing(seed: int) -> None:
    script = eager(seed, consumers=2)
    since_ms, generation = script.world.now_ms, script.generation()
    script.world.run_for(5_000)
    assert script.commands_sent(STOP, since_ms=since_ms) == []
    assert script.generation() == generation
    script.calm()


@on_seeds()
def test_a_failover_in_the_middle_of_the_stops_goes_on_where_it_stood(seed: int) -> None:
    script = eager(seed, consumers=3)
    world, old = script.world, script.leader()
    go_on = hold_calls(script.application("consumer0"))
    script.join("consumer3")
    world.run_until(lambda: bool(script.state().get("stopping")) and script.outstanding("consumer0") > 0)
    generation = script.generation()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_for(3_000)
    assert script.state()["stopping"] is True
    assert [p for p in script.partitions() if script.owner(p) != ""] == script.owned("consumer0")
    go_on()
    script.settle()
    assert script.state()["stopping"] is False
    assert script.generation() >= generation
    script.calm()


@on_seeds()
def test_a_death_among_those_who_stop_does_not_keep_the_others_waiting(seed: int) -> None:
    script = eager(seed, consumers=3)
    world = script.world
    hold_calls(script.application("consumer0"))
    script.join("consumer3")
    world.run_until(lambda: bool(script.state().get("stopping")) and script.outstanding("consumer0") > 0)
    world.crash("consumer0", restart_after_ms=None)
    script.settle()
    assert script.state()["stopping"] is False
    script.calm()


@on_seeds()
def test_switched_to_cooperative_in_the_middle_nobody_waits_for_the_slow_one(seed: int) -> None:
    script = eager(seed, consumers=3)
    world = script.world
    go_on = hold_calls(script.application("consumer0"))
    script.join("consumer3")
    world.run_until(lambda: bool(script.state().get("stopping")) and script.outstanding("consumer0") > 0)
    slow = script.owned("consumer0")
    script.edit_record(rebalance="cooperative")
    others = [p for p in script.partitions() if p not in slow]
    world.run_until(lambda: script.state()["stopping"] is False, what="the eager stop is over")
    world.run_until(lambda: all(script.owner(p) for p in others), what="the others are granted")
    assert script.owned("consumer0") == slow
    go_on()
    script.settle()
    script.calm()


@on_seeds()
def test_switched_to_eager_in_the_middle_everybody_stops(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    slow = [hold_calls(script.application(name)) for name in ("consumer0", "consumer1")]
    script.join("consumer2")
    world.run_until(lambda: script.outstanding() > 0, what="a stop")
    script.edit_record(rebalance="eager")
    world.run_until(lambda: bool(script.state().get("stopping")), what="the eager stop")
    for go_on in slow:
        go_on()
    script.settle()
    assert script.state()["stopping"] is False
    script.calm()


@on_seeds()
def test_the_coordinator_dies_right_after_the_first_grant(seed: int) -> None:
    script = eager(seed, consumers=2)
    world = script.world
    old = script.leader()
    world.strike(old, sends(START), "after_applied_reply_lost", None)
    script.join("consumer2")
    world.run_until(lambda: world.struck, what="the crash")
    world.run_until(lambda: script.leader() != old, what="another serves")
    script.settle()
    assert (GROUP, script.member("consumer2")) in script.field.registrations
    script.calm()


@on_seeds()
def test_a_pause_taken_back_during_the_stops_lets_nobody_start_too_early(
    seed: int,
) -> None:
    """The pause is taken back while one member is still stopping. Before the fix the other members were granted
    partitions first."""
    script = eager(seed, consumers=2, topics={"t": 3})
    world = script.world
    fewest = min(("consumer0", "consumer1"), key=lambda name: len(script.owned(name)))  # it will keep all of them
    mine = script.owned(fewest)
    go_on = hold_calls(script.application(fewest))
    script.join("consumer2")
    world.run_until(lambda: bool(script.state().get("stopping")) and script.outstanding(fewest) > 0)
    script.request("pause")
    world.run_until(lambda: script.state()["stopping"] is False, what="the pause counts")
    others = [p for p in script.partitions() if p not in mine]
    world.run_until(lambda: [p for p in others if script.owner(p)] == [], what="the others have stopped")
    since_ms = world.now_ms
    script.resume()
    world.run_for(3_000)
    assert script.owned(fewest) == mine
    assert script.commands_sent(START, since_ms=since_ms) == []
    go_on()
    script.settle()
    assert script.owned(fewest) == mine
    script.calm()
