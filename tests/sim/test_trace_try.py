"""A partition that broke three consumers is tried by one that joined later, and stays there."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from tests.sim.test_failures_quarantine import POISON, cannot_start, poisoned
from zkcoord.tree.paths import DRAFT


@on_seeds(4)
def test_who_joined_later_keeps_the_partition_that_it_tries(seed: int) -> None:
    """Once it read, the target gave the partition to who had least; released for that it was for the later one alone
    again: an eager group raised a generation, and stopped everybody, without end."""
    script = Script(seed, consumers=0, topics={"t": 6})
    world, names = script.world, [f"consumer{number}" for number in range(4)]
    for name in names:
        script.join(name)
        cannot_start(script.application(name))
    world.run_until(lambda: bool(world.ensemble.data(DRAFT.state(GROUP))) and str(POISON) in poisoned(script), 30_000)
    world.run_until(lambda: not script.outstanding(), 20_000, "nothing is under way")
    script.edit_record(rebalance="eager")
    script.join("mended")
    world.run_until(lambda: script.owner(POISON).startswith("g_mended-"), 20_000, "who joins gets a try")
    generation = script.generation()
    world.run_until(script.all_held, 20_000, "everything is read")
    world.run_for(10_000)
    assert script.generation() == generation
    assert script.owner(POISON).startswith("g_mended-")
    script.calm()
