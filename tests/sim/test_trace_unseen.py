"""Two commands for one consumer in one step, the first obeyed before the coordinator looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.script import QUIET, Script, hold_calls, on_seeds


@on_seeds(6)
def test_a_refused_start_that_nobody_saw_is_granted_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two starts is refused, and gone, when the coordinator lists the channel; the second stands."""
    monkeypatch.setattr("zkcoord.tree.writes.ITEMS_MAX", 2)
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1)
    world, application = script.world, script.application("consumer0")
    failed = []

    def fails_once(name: str) -> bool:
        if name == "start" and not failed:
            failed.append(name)
            return True
        return False

    application._raises = fails_once
    world.run_until(lambda: len(script.commands_sent("start-fetcher")) == 2, what="both starts are sent")
    leader = script.wire(script.leader())
    leader.down = False  # the coordinator hears late of what happens
    world.run_until(lambda: bool(failed), what="the first is refused by the application")
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="the first is acknowledged")
    stopped = hold_calls(application)
    leader.down = True
    world.run_for(1_000)
    stopped()
    script.settle()
    script.calm()
