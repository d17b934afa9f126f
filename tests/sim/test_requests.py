"""The order of a request's work and its answer, refused requests, and other edits of the record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import SESSION_MS, Chosen, Script, hold_calls, on_seeds, sends
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import DeleteNode, SetNode, Transaction

HOLD_MS = 600_000


def waiting_for_one(seed: int) -> Script:
    """A group of two of three static members. The share of the third one, consumer0, waits for its return."""
    script = Script(seed, consumers=3, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    gone = script.member("consumer0")
    script.leave("consumer0")
    script.world.run_until(lambda: (GROUP, gone) not in script.field.registrations, what="it leaves")
    script.world.run_for(2_000)
    return script


def forgets(transaction: Transaction) -> bool:
    return any(isinstance(w, DeleteNode) and "/instances/" in w.path for w in transaction.writes)


def answers(transaction: Transaction) -> bool:
    return any(isinstance(w, SetNode) and w.path == DRAFT.record(GROUP) for w in transaction.writes)


@on_seeds()
@pytest.mark.parametrize("at", [forgets, answers])
def test_a_requested_rebalance_ends_a_hold_whenever_its_coordinator_dies(seed: int, at: object) -> None:
    """Before the fix, the answer came before the end of the hold. The next coordinator found no request, and waited
    again."""
    script = waiting_for_one(seed)
    world, old = script.world, script.leader()
    world.strike(old, at, "before", None)  # type: ignore[arg-type]
    script.request("rebalance")
    world.run_until(lambda: world.struck, what="the crash")
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.stop("consumer0")
    script.settle()
    assert world.ensemble.names(DRAFT.instances(GROUP)) == ["consumer1", "consumer2"]
    script.calm()


@on_seeds()
def test_a_rebalance_that_is_refused_ends_no_hold(seed: int) -> None:
    script = waiting_for_one(seed)
    script.request("hold")
    script.world.run_for(2_000)
    generation = script.generation()
    script.request("rebalance", run="r1")
    script.world.run_for(5_000)
    assert script.record()["done"]["rebalance"]["state"] == "refused"
    assert script.generation() == generation
    assert script.world.ensemble.names(DRAFT.instances(GROUP)) == ["consumer0", "consumer1", "consumer2"]


def under_way(script: Script, chosen: Chosen) -> Callable[[], bool]:
    """True while the coordinator has sent such a write that is not executed yet."""
    wire = script.wire(script.leader())
    return lambda: any(ask.kind == "commit" and chosen(ask.payload) for ask in wire.requests)


@on_seeds()
def test_an_answer_replaces_nothing_that_somebody_wrote_into_the_record_meanwhile(seed: int) -> None:
    """Before the fix, of two answers in a row the second one named the version that a stranger's edit had made."""
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    script.request("hold", run="r1")
    world.run_until(lambda: script.answered("hold"), what="the answer")
    world.run_for(1_000)
    script.edit_record(wish={"delete": {"who": "test", "run": "r2"}})  # this takes the hold back, too
    world.run_until(under_way(script, answers), what="the answers are sent")
    script.set_policy(max_moves=5)
    world.run_until(lambda: not script.answered("hold"), what="the answers")
    world.run_for(1_000)
    assert script.record()["policy"]["max_moves"] == 5
    assert script.record()["done"]["delete"]["state"] == "refused"
    script.calm()


@on_seeds()
def test_commands_sent_with_an_answer_are_refused_after_another_request(seed: int) -> None:
    """Before the fix, starts were sent after the answer to a resume. A pause came before both, and the starts were
    carried out."""
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    script.request("pause", run="r1")
    world.run_until(lambda: script.answered("pause"), what="everything is stopped")
    script.resume()
    world.run_until(under_way(script, sends("start-fetcher")), what="starts are sent")
    script.request("pause", run="r2")
    paused_ms = world.now_ms
    world.run_until(lambda: script.record()["done"].get("pause", {}).get("run") == "r2", what="the answer")
    assert script.commands_sent("start-fetcher", since_ms=paused_ms) == []
    script.resume()
    script.settle()


@on_seeds()
def test_a_rebalance_requested_in_a_young_group_is_answered_when_carried_out(
    seed: int,
) -> None:
    """Before the fix, it was answered at once and did nothing: shares went on waiting for absent members."""
    script = Script(seed, consumers=2, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    script.set_policy(initial_delay_ms=5_000)
    for name in ("consumer0", "consumer1"):
        script.leave(name)
    world = script.world
    world.run_until(lambda: not script.field.registrations, what="they leave")
    script.join("late")
    world.run_until(lambda: script.registered("late"))
    world.run_for(500)
    script.request("rebalance", run="r1")
    world.run_until(lambda: script.answered("rebalance"), what="the answer")
    world.run_for(5_000)
    assert script.owned("late") == script.partitions()


@on_seeds()
@pytest.mark.parametrize("failover", [False, True])
def test_a_pause_is_answered_when_whoever_was_evicted_has_stopped_too(seed: int, failover: bool) -> None:
    """Before the fix, it was answered within the grace. The evicted member could read on, and pass over an offset that
    was reset."""
    script = Script(seed, consumers=3, topics={"t": 6})
    script.settle()
    world, gone = script.world, script.member("consumer0")
    script.set_policy(max_rebalance_retries=0)
    hold_calls(script.application("consumer0"))
    script.grow("t", 9)
    world.run_until(lambda: (GROUP, gone) in script.field.evicted, 120_000, "it is evicted")
    evicted_ms = world.now_ms
    script.process("consumer0").restarts = False
    script.request("pause", run="r1")
    if failover:
        old = script.leader()
        world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.answered("pause"), 20_000, "the answer")
    assert world.now_ms - evicted_ms >= SESSION_MS
    assert script.record()["done"]["pause"] == {"run": "r1", "state": "paused"}
    assert {holding.consumer for holding in script.field.holdings.values()} <= {gone}
