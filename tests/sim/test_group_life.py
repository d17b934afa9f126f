"""A group's life in the simulated world: hold, pause, resume, rebalance, and its phases."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.sim.actors import GROUP, coordinator
from tests.sim.field import START, STOP
from tests.sim.script import Script, hold_calls, on_seeds, sends
from zkcoord.core.ack_timeouts import ack_timeout_ms
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import SetNode, Transaction


def settled(seed: int, **size: Any) -> Script:
    """A settled group."""
    script = Script(seed, **size)
    script.settle()
    return script


def answered(script: Script, name: str, state: str | None) -> None:
    """Run until a coordinator has answered a request with this state."""
    script.world.run_until(lambda: (script.record()["done"].get(name) or {}).get("state") == state, what="the answer")


def answers(transaction: Transaction) -> bool:
    """True for a coordinator's transaction that writes into the record."""
    return any(isinstance(w, SetNode) and w.path == f"/zkcoord/groups/{GROUP}" for w in transaction.writes)


@on_seeds()
def test_a_held_group_stops_nobody_for_a_joiner_and_replaces_the_dead(seed: int) -> None:
    script = settled(seed, consumers=2)
    world = script.world
    script.request("hold")
    answered(script, "hold", "held")
    since_ms = world.now_ms
    script.join("consumer2")
    world.run_until(lambda: script.registered("consumer2"))
    world.run_for(5_000)
    assert script.owned("consumer2") == []
    assert script.commands_sent(STOP, since_ms=since_ms) == []
    dead = script.owned("consumer0")
    world.crash("consumer0", restart_after_ms=None)
    world.run_until(lambda: {script.owner(p) for p in dead}.isdisjoint({""}) and script.all_held(), what="its heirs")
    assert script.commands_sent(STOP, since_ms=since_ms) == []
    script.resume()
    answered(script, "hold", None)
    script.settle()
    script.calm()


@on_seeds()
def test_a_paused_group_stands_still_through_joins_deaths_and_a_failover(seed: int) -> None:
    script = settled(seed, consumers=3)
    world, old, generation = script.world, script.leader(), script.generation()
    script.request("pause")
    answered(script, "pause", "paused")
    since_ms = world.now_ms + 1  # a member may have read in this very millisecond, before its release
    assert [p for p in script.partitions() if script.owner(p)] == []
    script.join("consumer3")
    world.crash("consumer0", restart_after_ms=None)
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_for(20_000)
    assert script.commands_sent(START, since_ms=since_ms) == []
    assert script.journal("read", since_ms=since_ms) == []
    assert script.generation() == generation
    script.resume()
    script.settle()
    answered(script, "pause", None)
    script.calm()


@on_seeds()
def test_interrupted_moves_go_on_after_a_pause(seed: int) -> None:
    script = settled(seed, consumers=2)
    world = script.world
    slow = [hold_calls(script.application(name)) for name in ("consumer0", "consumer1")]
    script.join("consumer2")
    world.run_until(lambda: script.outstanding() > 0, what="a stop")
    script.request("pause")
    world.run_for(2_000)
    assert script.record()["done"] == {}  # the members have not stopped yet
    script.resume()
    for go_on in slow:
        go_on()
    script.settle()
    assert script.record()["done"] == {}
    script.calm()


@on_seeds()
def test_a_request_outlives_the_coordinator_that_dies_answering_it(seed: int) -> None:
    script = settled(seed, consumers=2)
    world, old = script.world, script.leader()
    world.strike(old, answers, "before", None)
    script.request("rebalance", run="r1")
    world.run_until(lambda: world.struck, what="the crash")
    answered(script, "rebalance", "done")
    assert script.record()["done"] == {"rebalance": {"run": "r1", "state": "done"}}
    assert script.record()["wish"]["rebalance"] is None
    script.settle()
    script.calm()


@on_seeds()
def test_a_rebalance_is_refused_while_the_group_is_paused(seed: int) -> None:
    script = settled(seed, consumers=2)
    script.request("pause")
    answered(script, "pause", "paused")
    script.request("rebalance", run="r2")
    answered(script, "rebalance", "refused")
    assert script.record()["done"]["rebalance"]["reason"] == "the group is paused: resume it first"
    script.calm()


@on_seeds()
def test_a_failed_group_stays_failed_over_a_failover_until_it_changes(seed: int) -> None:
    rebalance_ms = 2_000
    script = settled(seed, consumers=2, rebalance_timeout_ms=rebalance_ms)
    world = script.world
    script.set_policy(on_timeout="fail", max_rebalance_retries=0)
    hold_calls(script.application("consumer0"))
    script.grow("t", 8)
    world.run_until(lambda: bool(script.state().get("failed")), what="the mark")
    failed, old = script.state()["failed"], script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_for(ack_timeout_ms(rebalance_ms, 0) // 2)
    assert script.state()["failed"] == failed
    script.join("consumer2")
    world.run_until(lambda: script.state()["failed"] is None, what="it is cleared by the change")
    world.run_until(lambda: bool(script.state().get("failed")), what="and comes back")
    assert script.state()["failed"]["since_generation"] > failed["since_generation"]
    world.crash("consumer0")
    script.settle()
    script.calm()


@on_seeds()
def test_a_failed_group_is_tried_again_when_somebody_asks(seed: int) -> None:
    script = settled(seed, consumers=2, rebalance_timeout_ms=2_000)
    world = script.world
    script.set_policy(on_timeout="fail", max_rebalance_retries=0)
    go_on = hold_calls(script.application("consumer0"))
    script.grow("t", 8)
    world.run_until(lambda: bool(script.state().get("failed")), what="the mark")
    script.request("rebalance")
    answered(script, "rebalance", "done")
    world.run_until(lambda: script.state()["failed"] is None, what="it is cleared")
    go_on()
    script.settle()
    assert script.state()["failed"] is None
    script.calm()


@on_seeds()
def test_members_that_start_together_cause_one_generation(seed: int) -> None:
    script = Script(seed, consumers=0)
    world = script.world
    script.join("consumer0")
    script.settle()
    script.set_policy(initial_delay_ms=3_000)
    world.run_for(1_000)
    world.crash("consumer0", restart_after_ms=None)
    world.run_until(lambda: not script.field.registrations, what="it is empty")
    world.run_for(1_000)
    generation, began_ms = script.generation(), world.now_ms
    for n in (1, 2, 3):
        world.at(began_ms + 700 * n, lambda n=n: script.join(f"consumer{n}"))
    world.run_for(2_500)
    script.settle()
    assert script.generation() == generation + 1
    assert min(t.time_ms for t in script.commands_sent(START, since_ms=began_ms)) >= began_ms + 3 * 700 + 3_000
    script.calm()


@on_seeds()
def test_every_change_of_phase_is_told_with_its_cause(seed: int) -> None:
    script = settled(seed, consumers=2)
    world = script.world
    world.run_for(100)
    since_ms = world.now_ms
    script.join("consumer2")
    world.run_until(lambda: script.registered("consumer2"))
    script.settle()
    world.run_for(1_000)
    told = [t.fields for t in world.told if t.name in ("group_phase", "rebalance_stable") and t.time_ms >= since_ms]
    assert [fields["state"] for fields in told][:1] == ["PreparingRebalance"]
    assert [fields["state"] for fields in told][-1:] == ["Stable"]
    assert told[0]["why"] == f"the target is another one: {script.member('consumer2')} can be given work"
    assert told[-1]["why"] == "every partition has a reader, and no command is outstanding"
    script.calm()


@on_seeds(4)
def test_after_a_failover_with_work_to_do_nobody_is_told_that_the_group_is_stable(seed: int) -> None:
    script = settled(seed, consumers=2)
    world, old = script.world, script.leader()
    world.strike(old, sends(STOP), "before", None)
    script.join("consumer2")
    world.run_until(lambda: world.struck, what="the crash")
    script.settle()
    world.run_for(1_000)
    since_ms = world.events("elected")[-1].time_ms
    told = [t.fields["state"] for t in world.told if "state" in t.fields and t.time_ms >= since_ms]
    assert told[0] == "PreparingRebalance"
    assert told.count("Stable") == 1
    script.calm()


class Journal:
    """A coordinator's journal in memory. It collects the phases of the group, with their causes."""

    def __init__(self) -> None:
        self.turn = True
        self.told: list[tuple[str, str]] = []

    def checkpoint(self, _line: dict[str, Any]) -> None:
        self.turn = False

    def write(self, line: dict[str, Any]) -> None:
        for output in line["outputs"]:
            if output.get("event") in ("group_phase", "rebalance_stable"):
                self.told.append((output["fields"]["state"], output["fields"]["why"]))


@on_seeds()
def test_every_state_of_a_group_stands_in_the_journal_with_its_cause(seed: int) -> None:
    """Empty, PreparingRebalance, AwaitingSync, Stable and Dead are played; each lasts until the test has seen it."""
    script, journal = Script(seed, coordinators=0, consumers=0), Journal()
    world = script.world
    world.spawn("coordinator0", partial(coordinator, pages=journal))
    world.run_until(lambda: script.field.epoch_session is not None, what="an election")
    stable = ("Stable", "every partition has a reader, and no command is outstanding")

    def until(told: tuple[str, str]) -> list[tuple[str, str]]:
        """The phases in the journal so far, up to this one."""
        world.run_until(lambda: told in journal.told, what=f"{told} among {journal.told}")
        found = journal.told.copy()
        journal.told.clear()
        return found

    world.ensemble.ensure(DRAFT.ids(GROUP))
    assert until(("Empty", "it has no members")) == [("Empty", "it has no members")]
    script.join("consumer0")
    starting = hold_calls(script.application("consumer0"))
    assert [state for state, _ in until(("AwaitingSync", "outstanding: 1 start-fetcher"))] == [
        "PreparingRebalance",
        "AwaitingSync",
    ]
    starting()
    assert until(stable) == [stable]
    stopping = hold_calls(script.application("consumer0"))
    script.join("consumer1")
    starting = hold_calls(script.application("consumer1"))
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="a stop")
    joined = f"the target is another one: {script.member('consumer1')} can be given work"
    assert until(("PreparingRebalance", joined)) == [("PreparingRebalance", joined)]
    stopping()
    awaiting = ("AwaitingSync", "outstanding: 1 start-fetcher")
    assert until(awaiting) == [awaiting]
    starting()
    assert until(stable) == [stable]
    for name in ("consumer0", "consumer1"):
        world.stop(name)
    assert until(("Empty", "it has no members"))[0][0] == "PreparingRebalance"
    script.request("delete", run="r1", offsets=True)
    dead = ("Dead", "it is being deleted (run r1)")
    assert until(dead) == [dead]
    script.calm()
