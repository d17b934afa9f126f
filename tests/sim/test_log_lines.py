"""Each event of a storm is a line for people of less than 200 characters, however long its names are. A warning adds
its whole reason."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tests.sim.options import seeds
from tests.sim.scenarios import announcing_storm, storm
from tests.sim.world import World
from zkcoord.core.model import TopicPartition
from zkcoord.logs import NOTICE, Text, plain

LONG = "click-stream-enrichment-" * 10
"""As long as a name of a topic, a group or a host may be."""

HIDDEN = ("level", "mono_ms")
"""Fields that are not in a line for people."""


@pytest.fixture(params=seeds(2))
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    """The events of two storms, with their fields."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    trace = World.trace

    def keep(world: World, *words: Any) -> None:
        if len(words) == 3 and isinstance(words[2], Mapping):
            found.append((str(words[1]), words[2]))
        trace(world, *words)

    monkeypatch.setattr(World, "trace", keep)
    storm(request.param)
    announcing_storm(request.param)
    return found


def stretched(value: Any) -> Any:
    """The value with long names and sentences instead of short ones."""
    if isinstance(value, TopicPartition):
        return TopicPartition(LONG, value.partition)
    if isinstance(value, Mapping):
        return {stretched(key): stretched(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [stretched(item) for item in value]
    return f"{value} {LONG}" if isinstance(value, str) else value


def line(event: str, fields: Mapping[str, Any], level: int = NOTICE) -> str:
    """The line of the event at this level."""
    record = logging.LogRecord("zkcoord.events", level, "", 0, event, None, None)
    record.__dict__.update(zkcoord_event=event, zkcoord_fields={k: v for k, v in fields.items() if k != "level"})
    return Text().format(record)


def test_lines_for_people_have_less_than_200_characters(told: list[tuple[str, Mapping[str, Any]]]) -> None:
    assert {"elected", "took_over", "start_sent", "rebalance_started", "registered"} <= {event for event, _ in told}
    for event, fields in told:
        assert len(line(event, fields)) < 200, (event, plain(fields))
        far = line(event, {key: stretched(value) for key, value in fields.items()})
        assert len(far) < 200 and f" {event}" in far, (event, plain(fields))
        warned = line(event, fields, logging.WARNING)
        why = fields.get("why")
        assert len(warned) < 200 + len(json.dumps(why, ensure_ascii=False)) * bool(why), (event, plain(fields))
        assert not isinstance(why, str) or why in warned or json.dumps(why, ensure_ascii=False) in warned
        assert all(f" {key}=" in far for key, value in fields.items() if value is not None and key not in HIDDEN), far
