"""Static members that all restart together: their shares wait, also with nobody there who subscribes to the topic."""

from __future__ import annotations

import pytest

from tests.sim.script import Script, on_seeds


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
