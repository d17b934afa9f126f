"""A consumer reads on if the one that is to replace it cannot be given partitions."""

from __future__ import annotations

from tests.sim.field import STOP
from tests.sim.script import Script, on_seeds


@on_seeds(3)
def test_nothing_of_a_consumer_is_stopped_for_one_that_replaces_it_and_is_sent_away(seed: int) -> None:
    """The new consumer offers nothing that the group can use. It leaves, and tries again."""
    script = Script(seed, consumers=1, topics={"t": 2})
    script.settle()
    world = script.world
    former = script.member("consumer0")
    script.consumers.registers(replaces=former)
    script.consumers._assignors = ("its own",)
    began_ms = world.now_ms
    script.join("heir")
    world.run_until(lambda: len(world.events("rejected")) == 2, what="it is sent away, and once more")
    world.run_for(1_000)
    assert script.commands_sent(STOP, since_ms=began_ms) == []
    assert script.owned("consumer0") == script.partitions()
    script.consumers._assignors = ("sticky", "range")
    world.stop("heir")
    script.join("another")
    world.run_until(lambda: script.registered("another"), what="another one")
    world.run_until(lambda: len(script.held()) == 2 == len(script.owned("another")), what="one that can replaces it")
