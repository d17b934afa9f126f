"""Failure cases of static members (docs/failures.md): restarts that move nothing, two processes of one instance."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import START, STOP, consumer_of
from tests.sim.script import Script, hold_calls, on_seeds
from zkcoord.errors import FencedError
from zkcoord.tree.paths import DRAFT

HOLD_MS = 30_000
SLACK_MS = 1_500


def process_of(thread: str) -> str:
    """The process that a thread names: `<group>_<process>-<ms>-<hex>-<n>`."""
    return consumer_of(thread).removeprefix(f"{GROUP}_").partition("-")[0]


def moves(script: Script, since_ms: int) -> list[tuple[str, str, str]]:
    """Partitions that came to another process than the one that owned them last: path, from, to."""
    last: dict[str, str] = {}
    found = []
    for txn in script.world.ensemble.log:
        for change in txn.changes:
            if "/owners/t/" not in change.path or change.after is None or not change.after.data:
                continue
            now = process_of(change.after.data.decode())
            before = last.get(change.path, now)
            if before != now and txn.time_ms >= since_ms:
                found.append((change.path, before, now))
            last[change.path] = now
    return found


@on_seeds()
@pytest.mark.parametrize("clean", [True, False])
def test_a_rolling_restart_of_ten_static_members_moves_nothing(seed: int, clean: bool) -> None:
    script = Script(seed, consumers=10, topics={"t": 23}, hold_ms=HOLD_MS)
    script.settle()
    world = script.world
    began_ms, generation = world.now_ms, script.generation()
    owned = {f"consumer{n}": script.owned(f"consumer{n}") for n in range(10)}
    for name in owned:
        before = script.member(name)
        if clean:
            script.leave(name)
            world.run_until(lambda before=before: (GROUP, before) not in script.field.registrations, what="it leaves")
            world.run_for(2_000)
            script.process(name).restarts = True
            world.crash(name, restart_after_ms=100)
        else:
            world.crash(name, restart_after_ms=500)
        world.run_until(lambda name=name: script.process(name).running, what="it starts again")
        script.settle(f"{name} is back")
        assert script.member(name) != before
    assert {name: script.owned(name) for name in owned} == owned
    assert moves(script, began_ms) == []
    assert script.generation() == generation
    stops = script.commands_sent(STOP, since_ms=began_ms)
    assert len(stops) == (0 if clean else 10)  # a crashed consumer is still registered when the next one joins
    assert len(script.commands_sent(START, since_ms=began_ms)) == 10
    script.calm()


@on_seeds()
def test_a_share_is_held_over_a_failover_and_given_on_when_nobody_comes(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    world = script.world
    gone, owned = script.member("consumer0"), script.owned("consumer0")
    script.leave("consumer0")
    world.run_until(lambda: (GROUP, gone) not in script.field.registrations, what="it leaves")
    world.run_for(HOLD_MS // 2)
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    elected_ms = world.now_ms
    world.run_for(HOLD_MS - SLACK_MS)
    assert [script.owner(p) for p in owned] == [""] * len(owned)  # the hold began again
    world.run_until(lambda: all(script.owner(p) for p in owned), 20_000, "they are given on")
    assert HOLD_MS - 10 <= world.now_ms - elected_ms <= HOLD_MS + 2 * SLACK_MS
    assert world.ensemble.names(f"{DRAFT.instances(GROUP)}") == ["consumer1", "consumer2"]
    world.stop("consumer0")
    script.calm()


@on_seeds()
def test_f40_a_fixed_name_used_by_two_processes_leaves_the_newer_and_ends_the_older(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    world = script.world
    older, owned = script.member("consumer0"), script.owned("consumer0")
    began_ms = world.now_ms
    script.consumers.registers(instance="consumer0")
    script.join("twin")
    world.run_until(lambda: (GROUP, older) not in script.field.registrations, 20_000, "the older goes")
    assert script.field.gone[GROUP, older].how == "close"
    assert world.events("rejected")[0].fields["why"].startswith("another process has registered as the instance")
    world.run_until(lambda: len(script.owned("twin")) == len(owned), 20_000, "the newer has the share")
    assert script.owned("twin") == owned
    assert {move[1:] for move in moves(script, began_ms)} == {("consumer0", "twin")}
    loop = script.actor("consumer0").loop
    assert loop.finished
    assert isinstance(loop.fatal, FencedError)
    world.stop("consumer0")
    script.calm()


@on_seeds()
def test_f40_an_older_process_that_does_not_go_is_evicted_after_its_rebalance_timeout(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 6}, hold_ms=HOLD_MS, rebalance_timeout_ms=3_000)
    script.settle()
    world = script.world
    older, owned = script.member("consumer0"), script.owned("consumer0")
    hold_calls(script.application("consumer0"))
    script.consumers.registers(instance="consumer0")
    script.join("twin")
    world.run_until(lambda: bool(script.commands_sent("reject")), 20_000, "the reject")
    asked_ms = world.now_ms
    world.run_until(lambda: (GROUP, older) not in script.field.registrations, 20_000, "its eviction")
    assert script.field.gone[GROUP, older].how == "evicted"
    assert 3_000 - 10 <= world.now_ms - asked_ms <= 3_000 + SLACK_MS
    world.run_until(lambda: all(script.owner(p) == script.member("twin") for p in owned), 20_000, "it has the share")
    loop = script.actor("consumer0").loop
    assert loop.finished
    assert isinstance(loop.fatal, FencedError)
    world.stop("consumer0")
    script.calm()


@on_seeds()
def test_a_second_registration_that_replaces_the_first_moves_the_minimum(seed: int) -> None:
    script = Script(seed, consumers=4, topics={"t": 11})
    script.settle()
    world = script.world
    began_ms = world.now_ms
    first, owned = script.member("consumer0"), script.owned("consumer0")
    script.consumers.registers(replaces=first, subscription={"t": 1, "other": 1})
    script.join("again")
    world.run_until(lambda: not script.owned("consumer0") and len(script.owned("again")) == len(owned), 20_000, "all")
    assert script.owned("again") == owned
    assert {move[1:] for move in moves(script, began_ms)} == {("consumer0", "again")}
    script.leave("consumer0")
    world.run_until(lambda: (GROUP, first) not in script.field.registrations, 20_000, "it ends")
    world.stop("consumer0")
    script.settle()
    assert len(moves(script, began_ms)) == len(owned)
    script.calm()


@on_seeds()
@pytest.mark.parametrize("count", [1, 2])
def test_when_all_static_members_leave_and_return_nothing_moves_and_no_generation_is_raised(
    seed: int, count: int
) -> None:
    script = Script(seed, consumers=count, topics={"t": 6}, hold_ms=600_000)
    script.settle()
    world, names = script.world, [f"consumer{n}" for n in range(count)]
    generation, owned = script.generation(), {name: script.owned(name) for name in names}
    for name in names:
        script.leave(name)
    world.run_until(lambda: not script.field.registrations, what="all have left")
    world.run_for(5_000)
    assert script.generation() == generation
    for name in names:
        script.process(name).restarts = True
        world.crash(name, restart_after_ms=100)
    world.run_until(lambda: all(script.process(n).running and script.registered(n) for n in names), what="all are back")
    script.settle()
    assert ({name: script.owned(name) for name in names}, script.generation()) == (owned, generation)
    script.calm()
