"""Rolling upgrades: the lowest protocol of all members and coordinators decides what is sent (issue 4, "Janitor")."""

from __future__ import annotations

import json
from functools import partial

from tests.sim.actors import coordinator
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import CANDIDATES
from zkcoord.tree.writes import CreateNode, DeleteNode


def describe(script: Script, number: int, data: bytes) -> None:
    """Create the candidate's node of a coordinator of another version."""
    assert not script.world.ensemble.operate(CreateNode(f"{CANDIDATES}/{number}", data)).reason


def said(script: Script, path: str) -> list[str]:
    """The different texts that coordinators reported about a node."""
    return sorted({told.fields["why"] for told in script.world.events("unreadable") if told.fields["path"] == path})


def rejected(script: Script) -> list[str]:
    return [told.fields["why"] for told in script.world.events("rejected")]


def upgraded(low: int, high: int) -> bytes:
    return json.dumps({"protocols": f"{low}-{high}"}).encode()


@on_seeds()
def test_a_standby_of_the_old_protocol_keeps_the_new_one_out_until_it_is_gone(seed: int) -> None:
    """Both coordinators are upgraded to 1-2, one after the other. Then members that speak only 2 may join."""
    script = Script(seed, coordinators=0, consumers=0)
    world = script.world
    world.spawn("coordinator0", partial(coordinator, description=upgraded(1, 2)))
    world.run_until(lambda: bool(world.events("elected")), what="an election")
    world.spawn("coordinator1", coordinator)
    script.consumers.registers(protocols=(1, 2))
    script.join("consumer0")
    script.settle()
    world.run_until(lambda: len(world.ensemble.names(CANDIDATES)) == 2, what="the standby")
    script.consumers.registers(protocols=(2, 3))
    script.join("consumer1")
    world.run_until(lambda: bool(rejected(script)), 20_000, "it is sent away")
    assert set(rejected(script)) == {"speaks the protocols 2 to 3, the others 1"}
    world.stop("coordinator1")
    script.settle()  # the member registers again, and is admitted
    assert script.owned("consumer1")
    script.calm()


@on_seeds()
def test_an_unreadable_candidate_speaks_the_first_protocol(seed: int) -> None:
    script = Script(seed, coordinators=0, consumers=2)
    world = script.world
    world.spawn("coordinator0", partial(coordinator, description=upgraded(1, 2)))
    world.run_until(lambda: bool(world.events("elected")), what="an election")
    describe(script, 7, b"\x00 no JSON")
    describe(script, 8, b'{"protocols":"two"}')
    describe(script, 9, b"")
    script.consumers.registers(protocols=(2, 2))
    script.join("consumer2")
    world.run_until(lambda: bool(rejected(script)), 20_000, "it is sent away")
    assert set(rejected(script)) == {"speaks the protocol 2, the others 1"}
    assert [said(script, f"{CANDIDATES}/{number}") for number in (7, 8, 9)] == [[], [], []]
    world.stop("consumer2")
    script.settle()
    script.calm()


@on_seeds()
def test_a_coordinator_that_stood_before_and_shares_no_protocol_is_waited_for_and_told(seed: int) -> None:
    """Nobody takes over from a coordinator whose members it would have to send away. Both coordinators tell the
    operator."""
    script = Script(seed, coordinators=1, consumers=1)
    world = script.world
    script.settle()
    describe(script, 9, upgraded(2, 2))
    world.run_until(lambda: bool(said(script, f"{CANDIDATES}/9")), what="the serving one tells")
    (why,) = said(script, f"{CANDIDATES}/9")
    assert why.startswith(
        "coordinator 9 speaks the protocol 2, the others 1: the two cannot take over from one another"
    )
    script.join("consumer1")
    script.settle()  # the group goes on
    world.crash("coordinator0", restart_after_ms=1_000)  # now the other coordinator stands first
    world.run_until(lambda: bool(said(script, CANDIDATES)), 20_000, "it waits and tells")
    assert said(script, CANDIDATES) == [
        "coordinator 9 speaks the protocol 2, the others 1: waiting until it is gone; stop one of the two"
    ]
    assert len(world.events("elected")) == 1
    stat = world.ensemble.stat(f"{CANDIDATES}/9")
    assert stat is not None
    assert not world.ensemble.operate(DeleteNode(f"{CANDIDATES}/9", stat.version)).reason
    world.run_until(lambda: len(world.events("elected")) == 2, what="it serves again")
    script.settle()
    script.calm()
