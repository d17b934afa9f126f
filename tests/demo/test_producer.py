"""The producer's records, and its pace."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from zkcoord.demo.options import Options
from zkcoord.demo.producer import Source, produce
from zkcoord.errors import UsageError


class FakeProducer:
    """Takes `room` records at a time, until it is polled; tells `error` of each."""

    def __init__(self, room: int = 1_000_000, error: str | None = None) -> None:
        self.records: list[tuple[int, bytes, bytes]] = []
        self._room = self._left = room
        self._error = error
        self._told: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, *, partition: int, on_delivery: Any) -> None:
        if not self._left:
            raise BufferError
        self._left -= 1
        self.records.append((partition, value, key))
        self._told.append(on_delivery)

    def poll(self, _timeout_s: float) -> None:
        self._left = self._room
        for tell in self._told:
            tell(self._error, None)
        self._told.clear()


def numbers(records: list[tuple[int, bytes, bytes]], partition: int) -> list[int]:
    """The sequence numbers of one partition, in the order of writing."""
    return [json.loads(value)["seq"] for its, value, _ in records if its == partition]


@pytest.mark.parametrize("room", [1_000_000, 3], ids=["a fast broker", "a slow broker"])
def test_each_partition_gets_the_numbers_from_0_on_without_a_gap(room: int) -> None:
    producer = FakeProducer(room)
    source = Source(producer, "clicks", 3)
    source.write(3)
    source.write(10)
    assert {p: numbers(producer.records, p) for p in range(3)} == {0: [0, 1, 2, 3], 1: [0, 1, 2], 2: [0, 1, 2]}
    assert source.counts() == {0: 4, 1: 3, 2: 3}
    assert all(key for _, _, key in producer.records)


def test_a_record_that_was_not_delivered_ends_it() -> None:
    producer = FakeProducer(error="the broker is full")
    source = Source(producer, "clicks", 1)
    produce(source, producer, 100_000, threading.Event())
    assert source.failed == "the broker is full"


def test_it_ends_when_it_is_asked_to() -> None:
    asked = threading.Event()
    asked.set()
    producer = FakeProducer()
    produce(Source(producer, "clicks", 1), producer, 1, asked)
    assert producer.records == []


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"seconds": 1}, "--seconds 1: choose from 5 to 3,600"),
        ({"rate": 0}, "--rate 0: choose from 1 to 100,000"),
        ({"partitions": 2}, "--partitions 2: choose from 3 to 1,000"),
        ({"output": "xml"}, "--output xml: choose table or json"),
    ],
)
def test_impossible_options_are_refused(chosen: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Options(**chosen).check()
