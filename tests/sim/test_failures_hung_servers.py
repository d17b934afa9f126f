"""F56 (docs/failures.md): a server takes requests and answers none. A process that waits for an answer goes to another
server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.script import QUIET, SESSION_MS, Script, on_seeds
from tests.sim.wire import Wire

LEAVES_MS = SESSION_MS * 2 // 3


def hang(script: Script, name: str) -> Wire:
    """From now on the server of this process takes everything and sends nothing."""
    wire = script.wire(name)
    wire.up = wire.down = False
    script.refresh(name)
    return wire


def leaves(script: Script, name: str, wire: Wire) -> int:
    """Wait until the process is connected to another server. Returns how long that took."""
    world, hung_ms = script.world, script.world.now_ms
    store = next(store for store in script.process(name).stores if store.wire is wire)
    world.run_until(lambda: store.wire not in (wire, None), what=f"{name} leaves its server")
    return world.now_ms - hung_ms


@on_seeds(4)
def test_f56_a_member_that_holds_nothing_leaves_a_server_that_answers_nothing(seed: int) -> None:
    script = Script(seed, consumers=2, topics={"t": 1})
    script.settle()
    [idle] = [name for name in ("consumer0", "consumer1") if not script.owned(name)]
    script.world.run_for(2_000)
    registration = script.member(idle)
    assert leaves(script, idle, hang(script, idle)) <= LEAVES_MS + 200
    script.world.run_for(2 * SESSION_MS)
    assert script.member(idle) == registration
    script.calm()


@on_seeds(4)
@pytest.mark.parametrize("at", range(1, 4))
def test_f56_a_consumer_that_joins_leaves_a_server_that_answers_nothing(at: int, seed: int) -> None:
    """The server hangs after its n-th answer to the consumer."""
    script = Script(seed, consumers=1)
    script.settle()
    script.join("late")
    world = script.world

    def answers() -> int:
        return sum(who.startswith("late") for _, who, _ in world.asked)

    world.run_until(lambda: answers() >= at, what="it joins")
    assert not script.registered("late")
    assert leaves(script, "late", hang(script, "late")) <= SESSION_MS
    script.settle()
    script.calm()


@on_seeds(4)
def test_f56_a_coordinator_that_waits_for_an_answer_leaves_a_server_that_answers_nothing(seed: int) -> None:
    """The coordinator is told of a change and asks its server, which does not answer any more."""
    script = Script(seed, consumers=2)
    script.settle()
    leader = script.leader()
    wire = script.wire(leader)
    wire.up = False
    script.refresh(leader)
    script.grow("t", 6)
    script.world.run_until(lambda: bool(wire.requests), what="it asks")
    wire.down = False
    script.refresh(leader)
    assert leaves(script, leader, wire) <= SESSION_MS
    script.settle()
    script.calm()


@on_seeds(2)
def test_f56_servers_that_take_sessions_and_answer_nothing_are_left_without_haste(
    seed: int,
) -> None:
    """All servers behave so. This must not lead to a storm of reconnections."""
    script = Script(seed, replace(QUIET, reconnect_ms_max=1), consumers=1)
    script.settle()
    world, (store,) = script.world, script.process("consumer0").stores
    began_ms, connected = world.now_ms, 0
    store.wire.up = False  # type: ignore[union-attr]
    wire = store.wire
    while world.now_ms < began_ms + 10 * SESSION_MS:
        world.run_for(10)
        if store.wire is not None and store.wire is not wire:
            wire, connected = store.wire, connected + 1
            wire.up = False
            store.refresh()
    assert connected <= 10 * SESSION_MS // LEAVES_MS + 2
