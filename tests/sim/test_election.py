"""A candidate reads the groups right after its election. A candidate that loses the election follows no group."""

from __future__ import annotations

from tests.sim.actors import GROUP, coordinator
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import Transaction


def is_election(transaction: Transaction) -> bool:
    """True for the multi that elects a coordinator."""
    return transaction.why == "election"


@on_seeds()
def test_a_candidate_asks_for_the_groups_before_its_election_is_answered(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    world.stop(old)
    world.run_until(lambda: script.leader() != old, what="the standby's election has happened at the server")
    new = script.leader()
    waiting = [ask for ask in script.wire(new).requests if ask.kind == "read"]
    assert DRAFT.ids(GROUP) in [read.path for ask in waiting for read in ask.payload]
    script.calm()


@on_seeds()
def test_a_candidate_that_loses_the_election_follows_no_group(seed: int) -> None:
    """Two standbys see at the same time that the coordinator is gone. Both send an election, and one is refused."""
    script = Script(seed, consumers=2)
    world = script.world
    world.spawn("coordinator2", coordinator)
    script.settle()
    old = script.leader()
    names = [name for name in world.processes if name.startswith("coordinator") and name != old]
    wires = [script.wire(name) for name in names]
    world.stop(old)

    def both_stand() -> bool:
        for wire in wires:  # stop the connection once it has an election to send
            wire.up = not any(ask.kind == "commit" and is_election(ask.payload) for ask in wire.requests)
        return not any(wire.up for wire in wires)

    world.run_until(both_stand, what="both stand")
    for wire, name in zip(wires, names, strict=True):
        wire.up = True
        script.refresh(name)
    world.run_until(lambda: script.leader() != old, what="one is elected")
    script.settle("it serves")
    (loser,) = {wire.session.process for wire in wires} - {script.leader()}
    world.run_for(1_000)
    since_ms = world.now_ms + 1
    script.join("late")
    script.settle("the late one has its share")
    read = [path for at_ms, who, path in world.asked if at_ms >= since_ms and who.startswith(f"{loser}#")]
    assert [path for path in read if path.startswith(f"{DRAFT.group(GROUP)}/")] == []
    script.calm()
