"""A member whose own ranges fill its status is granted their partitions again: there they take no more room."""

from __future__ import annotations

import pytest

from tests.sim.script import on_seeds
from tests.sim.test_replay import ask, position, process, scene, told
from tests.sim.test_room import announce_all
from zkcoord.core import room
from zkcoord.core.room import range_bytes


@on_seeds(3)
def test_who_was_paused_with_a_full_status_reads_on_when_the_group_is_resumed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped in the middle of its own batch, and of what it had been handed: nobody else may have these."""
    script = scene(seed, partitions=4)
    ranges = announce_all(script, "consumer0") | announce_all(script, "consumer1")
    world = script.world
    monkeypatch.setattr(room, "HELD_BYTES_MAX", sum(range_bytes(p, r) + 8 for p, r in ranges.items()))
    world.stop("consumer1")
    script.settle("all is handed to the other")
    script.wish("pause")
    world.run_until(lambda: (script.record()["done"].get("pause") or {}).get("state") == "paused", 20_000, "paused")
    world.run_for(5_000)
    script.resume()
    script.settle("it reads on")
    for partition, its_range in ranges.items():
        assert told(script, partition)[-1] == ("consumer0", its_range)
        process(script, "consumer0", partition, *its_range)
    world.run_for(100)
    ask(script, "consumer0", "commit", {p: end for p, (_, end) in ranges.items()}).result()
    assert {p: position(script, p) for p in ranges} == {p: end for p, (_, end) in ranges.items()}
