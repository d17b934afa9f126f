"""What a wished rebalance must do before it is answered, and what one that is refused must not do."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import DeleteNode, SetNode, Transaction

HOLD_MS = 600_000


def waiting_for_one(seed: int) -> Script:
    """Two of three static members; the share of the third, 0, waits for it."""
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
def test_a_wished_rebalance_ends_a_hold_whenever_its_coordinator_dies(seed: int, at: object) -> None:
    """The answer went before the end of the hold: the next coordinator found no wish, and waited again."""
    script = waiting_for_one(seed)
    world, old = script.world, script.leader()
    world.strike(old, at, "before", None)  # type: ignore[arg-type]
    script.wish("rebalance")
    world.run_until(lambda: world.struck, what="the crash")
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.stop("consumer0")
    script.settle()
    assert world.ensemble.names(DRAFT.instances(GROUP)) == ["consumer1", "consumer2"]
    script.calm()


@on_seeds()
def test_a_rebalance_that_is_refused_ends_no_hold(seed: int) -> None:
    script = waiting_for_one(seed)
    script.wish("hold")
    script.world.run_for(2_000)
    generation = script.generation()
    script.wish("rebalance", run="r1")
    script.world.run_for(5_000)
    assert script.record()["done"]["rebalance"]["state"] == "refused"
    assert script.generation() == generation
    assert script.world.ensemble.names(DRAFT.instances(GROUP)) == ["consumer0", "consumer1", "consumer2"]
