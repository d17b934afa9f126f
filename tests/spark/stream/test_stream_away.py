"""A streaming query that begins while Kafka is away waits, as a running query does. Nothing is real."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.spark.fakes import DEADLINE_S, FakeMembership, InThread, World
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UnknownPartitionError
from zkcoord.logs import NOTICE
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.offsets import EMPTY, offset_of, ranges_in
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

P0 = TopicPartition("t", 0)
OPTIONS = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}
RANGES = (OffsetRange("t", 0, 0, 4),)
BROKEN = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=RANGES), {})


@pytest.fixture
def away() -> World:
    """Kafka is away."""
    made = World()
    made.limits = Limits(kafka_again_ms=1)
    made.given, made.ends, made.away = {P0: 0}, {P0: 10}, True
    return made


def source_of(world: World, join_wait_ms: int = 60_000) -> Source:
    return Source(stream_options({**OPTIONS, "joinWaitMs": str(join_wait_ms)}), world, "run")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The events of outages, each with its level."""
    events = [(getattr(each, "zkcoord_event", ""), each.levelname) for each in caplog.records]
    return [each for each in events if each[0].startswith("kafka_")]


def await_warning(caplog: pytest.LogCaptureFixture) -> None:
    wait_until(lambda: told(caplog) == [("kafka_away", "WARNING")], str(told(caplog)))


def test_a_restarted_query_whose_last_batch_is_incomplete_waits_for_kafka(
    away: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(away)
    assert source.tasks(BROKEN, BROKEN) == []
    asking = InThread(lambda: source.tasks(EMPTY, BROKEN))
    await_warning(caplog)
    with caplog.at_level(NOTICE, "zkcoord.spark"):
        away.away = False
        assert asking.result() == [RANGES]
    assert told(caplog) == [("kafka_away", "WARNING"), ("kafka_back", "NOTICE")]
    source.stop()


def test_a_broker_that_has_just_come_back_and_knows_no_topic_yet_is_waited_for(
    away: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the query would end with the error that the records of its last batch are gone."""

    def unknown(partitions: Any, policy: Any) -> dict[TopicPartition, int]:
        if not known.is_set():
            asked.set()
            raise UnknownPartitionError("Kafka does not know t-0", partitions)
        return dict.fromkeys(partitions, 0)

    known, asked = threading.Event(), threading.Event()
    source = source_of(away)
    asking = InThread(lambda: source.tasks(EMPTY, BROKEN))
    await_warning(caplog)
    away.reset_positions = unknown  # type: ignore[method-assign]
    away.away = False
    assert asked.wait(DEADLINE_S)
    assert not asking.done
    known.set()
    assert asking.result() == [RANGES]
    source.stop()


def test_a_query_that_begins_waits_for_kafka_before_it_joins_its_group(
    away: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(away)
    asking = InThread(lambda: source.latest(EMPTY))
    await_warning(caplog)
    assert away.events == []
    away.limits = Limits(member_wait_ms=0)  # the time for joining begins only when Kafka has answered
    away.away = False
    assert ranges_in(asking.result()) == (OffsetRange("t", 0, 0, 10),)
    source.stop()


def test_a_query_that_begins_waits_for_kafka_no_longer_than_it_was_told(
    away: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    away.limits = Limits(kafka_again_ms=1, member_wait_ms=1)
    with pytest.raises(UnavailableError, match="Kafka does not answer"):
        source_of(away, 1).tasks(EMPTY, BROKEN)
    source = source_of(away, 1)
    with pytest.raises(UnavailableError, match="Kafka does not answer"):
        source.latest(EMPTY)
    source.stop()
    assert away.events == []


def test_a_query_that_waits_for_kafka_can_be_stopped(away: World, caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(away)
    asking = InThread(lambda: source.latest(EMPTY))
    await_warning(caplog)
    source.stop()
    with pytest.raises(UnavailableError):
        asking.result()
    assert source._thread is not None
    source._thread.join(DEADLINE_S)
    assert not source._thread.is_alive()


def test_the_end_of_a_querys_membership_is_not_taken_for_an_absent_kafka(
    away: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeMembership, "error", UnavailableError("left without an answer from ZooKeeper"))
    away.away = False
    source = source_of(away)
    with pytest.raises(UnavailableError, match="left without an answer"):
        source.latest(EMPTY)
    source.stop()
    assert away.events == ["join", "leave"]
