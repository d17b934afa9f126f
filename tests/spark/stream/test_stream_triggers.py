"""How long the streaming source lets Spark wait at a trigger. Nothing is real."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.spark.fakes import World
from zkcoord.spark.stream.handover import Handover
from zkcoord.spark.stream.offsets import EMPTY
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

OPTIONS = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}


def test_without_a_partition_a_query_is_answered_soon_if_its_triggers_have_an_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise Spark warns at each trigger that the batch is falling behind."""
    waits, clock = list[int](), SimpleNamespace(ms=1_000)
    monkeypatch.setattr("zkcoord.spark.stream.source.mono_ms", lambda: clock.ms)
    monkeypatch.setattr(Handover, "next", lambda self, timeout_ms: waits.append(timeout_ms))
    source = Source(stream_options({**OPTIONS, "joinWaitMs": "7"}), World(), "run")
    try:
        for clock.ms in (1_000, 2_000, 3_000, 3_010, 3_020, 4_000):
            assert source.latest(EMPTY) == EMPTY
    finally:
        source.stop()
    assert waits == [7, 100, 100, 1_000, 1_000, 100]
