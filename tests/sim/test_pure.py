"""A step of a coordinator changes nothing that it is handed: in storms, whatever they come to."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.sim.mutations import group_storm
from zkcoord.core.coordinate import Decided, decide
from zkcoord.serving import role as coordinating


def test_in_storms_decide_changes_nothing_and_answers_twice_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def checked(view: Any, memory: Any, *given: Any) -> Decided:
        nonlocal steps
        steps += 1
        before = pickle.dumps((view, memory))
        first = decide(view, memory, *given)
        assert pickle.dumps((view, memory)) == before
        assert decide(view, memory, *given) == first
        return first

    monkeypatch.setattr(coordinating, "decide", checked)
    for seed in range(10):
        group_storm(seed)
    assert steps > 100
