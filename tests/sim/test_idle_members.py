"""A member decides nothing in steps that are only about the lease."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.script import Script, on_seeds
from zkcoord.core.member.decide import Decided, decide
from zkcoord.member import registered


@on_seeds()
def test_a_member_at_rest_decides_nothing_until_something_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(seed, consumers=1)
    script.application("consumer0").commits = False
    script.settle()
    world = script.world
    world.run_for(2_000)
    asked: list[int] = []

    def counted(view: Any, memory: Any, now_ms: int, sizes: Any) -> Decided:
        asked.append(now_ms)
        return decide(view, memory, now_ms, sizes)

    monkeypatch.setattr(registered, "decide", counted)
    world.run_for(20_000)
    assert asked == []
    script.grow("t", 5)
    script.settle("the new partition is read")
    assert asked
    script.calm()
