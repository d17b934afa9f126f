"""One consumer of zkcoord's in a group under traffic, and what is noted of every reader there. All times are of the
wall clock, in ms."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.integration.processes import Child, now_ms
from tests.old_consumers.lab import SESSION_MS
from tests.waiting import wait_until

COMMIT_MS = 1_000  # of both kinds of members; an old member's default is a minute

OURS = """
import logging, sys, time
from zkcoord.clock import mono_ms
from zkcoord.errors import ZkcoordError
from zkcoord.kafka import KafkaConsumer
from zkcoord.logs import configure, emit
from zkcoord.signals import stopping

configure("json", logging.INFO)
with stopping() as asked, KafkaConsumer(
    sys.argv[1], "SERVERS", "g", ["t"], from_beginning=True, session_timeout_ms=int(sys.argv[2])
) as consumer:
    committed_ms = mono_ms()
    while not asked.is_set():
        messages, now_ms = consumer.poll_many(100, 0.1), mono_ms()
        for message in messages:
            emit("record", partition=message.partition(), offset=message.offset(), mono_ms=now_ms)
        if now_ms - committed_ms >= COMMIT_MS:
            committed_ms = now_ms
            try:
                consumer.commit()
            except ZkcoordError as error:
                emit("not_committed", why=str(error))
"""


@dataclass(frozen=True, order=True)
class Row:
    """A record that was processed."""

    at_ms: int
    partition: int
    offset: int
    reader: str


@dataclass(frozen=True)
class Hold:
    """A time in which a reader may hand out a partition's records."""

    reader: str
    partition: int
    begin_ms: int
    end_ms: int


def wall_ms() -> int:
    """The clock of everything here."""
    return time.time_ns() // 1_000_000


class Ours:
    """One consumer of zkcoord, in a process of its own."""

    def __init__(self, name: str, hosts: str, servers: str) -> None:
        self.name = name
        self.process = Child(OURS.replace("SERVERS", servers).replace("COMMIT_MS", str(COMMIT_MS)), hosts, SESSION_MS)
        self._offset_ms = wall_ms() - now_ms()  # from the clock of the logs to the wall clock

    def ids(self) -> set[str]:
        """The ids under which it was registered."""
        return {event["consumer"] for event in self.process.of("registered")}

    def rows(self) -> list[Row]:
        """What it processed."""
        read = self.process.of("record")
        return [Row(e["mono_ms"] + self._offset_ms, e["partition"], e["offset"], self.name) for e in read]

    def holds(self) -> Iterator[Hold]:
        """From each start to its stop, or its loss; without an end while it goes on."""
        begun: dict[str, int] = {}
        for event in self.process.of("fetch_started", "fetch_stopped", "fetch_lost", "session_lost"):
            at_ms, named = event["mono_ms"] + self._offset_ms, event.get("offsets", event.get("partitions", ()))
            if event["event"] == "fetch_started":
                begun |= dict.fromkeys(named, at_ms)
                continue
            for p in list(begun) if event["event"] == "session_lost" else named:
                if p in begun:
                    yield Hold(self.name, _number(p), begun.pop(p), at_ms)
        last: dict[int, int] = {row.partition: row.at_ms for row in self.rows()}
        yield from (Hold(self.name, _number(p), at_ms, last.get(_number(p), at_ms)) for p, at_ms in begun.items())

    def leave(self) -> None:
        """Its own shutdown."""
        self.process.signal(signal.SIGTERM)
        wait_until(lambda: self.process.process.poll() is not None, f"{self.name} ends")
        assert self.process.process.returncode == 0, self.process.noise


def _number(partition: str) -> int:
    return int(partition.rpartition("-")[2])
