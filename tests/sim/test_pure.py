"""A step of a coordinator or of a member never changes its arguments, whatever happens in a storm."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.mutations import group_storm
from tests.sim.scenarios import announcing_storm
from tests.sim.store_scene import store_storm
from zkcoord.core.coordinate import decide
from zkcoord.core.member import decide as deciding
from zkcoord.member import registered
from zkcoord.serving import role as coordinating


def checked(step: Callable[..., Any], made: Counter[str]) -> Callable[..., Any]:
    """Wrap a step: it must leave its view and memory unchanged, and give the same answer a second time. `made` counts
    the decisions by kind."""

    def twice(view: Any, memory: Any, *given: Any) -> Any:
        before = pickle.dumps((view, memory))
        first = step(view, memory, *given)
        assert pickle.dumps((view, memory)) == before
        assert step(view, memory, *given) == first
        made["steps"] += 1
        made.update(type(decision).__name__ for decision in first.decisions)
        return first

    return twice


def test_in_storms_decide_changes_nothing_and_answers_twice_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()
    monkeypatch.setattr(coordinating, "decide", checked(decide, made))
    for seed in range(10):
        group_storm(seed)
    assert made["steps"] > 100


def test_in_storms_what_a_member_decides_changes_nothing_and_is_twice_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()
    monkeypatch.setattr(registered, "decide", checked(deciding.decide, made))
    for seed in range(3):
        group_storm(seed)
        announcing_storm(seed)
        store_storm(seed, "kafka", steps=0)
    assert made["steps"] > 1_000
    assert made.keys() >= {"AskStart", "AcknowledgeStarts", "AskStop", "ReleasePartitions", "LosePartitions", "Rejoin"}
