"""Shared code of the benchmarks on a real ZooKeeper: processes that answer over a pipe, a bare session, a log, figures.

All times are `time.monotonic_ns()`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from verdict import arguments

from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CommitDone, Link, LinkChanged, Outcome, ReadDone, StoreInput, SyncDone, WatchFired
from zkcoord.shell.zk import connection
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction, Write

DEADLINE_S = 60.0
LOOK_S = 0.01  # between two looks at a condition
SESSION_TIMEOUT_MS = 60_000  # so long that no session expires, pings are rare, and a lease sync comes every 10 s
POINTS = ((2, 100), (10, 1_000), (50, 1_000))
GROUP, TOPIC = "etl", "clicks"

now_ns = time.monotonic_ns


class Child:
    """A process that holds one object; `ask` calls a method of the object there, and waits for the result."""

    def __init__(self, factory: Callable[..., Any], *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, factory, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the method's result; RuntimeError with the traceback if it raised, and if there is no result in
        time."""
        self._pipe.send((method, arguments))
        if not self._pipe.poll(DEADLINE_S + 10):
            raise RuntimeError(f"{method}: no answer within {DEADLINE_S + 10:.0f} s")
        succeeded, answer = self._pipe.recv()
        if not succeeded:
            raise RuntimeError(f"{method} failed in its process:\n{answer}")
        return answer

    def close(self) -> None:
        """Call `close` of its object, which ends the sessions, then end the process."""
        try:
            self.ask("close")
        finally:
            self._pipe.close()
            self._process.join(5)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()


def _serve(pipe: Connection, factory: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    served = None
    try:
        while True:
            method, given = pipe.recv()
            try:
                served = served or factory(*arguments)
                pipe.send((True, getattr(served, method)(*given)))
            except Exception:
                pipe.send((False, traceback.format_exc()))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)  # `close` has ended the sessions; nothing else needs to be waited for


class Client:
    """A session of the product's own store. Answers are handled on the session's thread, on which they arrive."""

    def __init__(self, connect: str) -> None:
        self._tokens = count(1)
        self._waiting: dict[int, Callable[[Any, int], None]] = {}
        self.watching: dict[str, Callable[[int], None]] = {}
        self.refused: list[str] = []
        self._link = threading.Event()
        self.store = zookeeper_sessions(connect, session_timeout_ms=SESSION_TIMEOUT_MS)(self._take)

    def connected(self) -> None:
        """Wait for the connection."""
        if not self._link.wait(DEADLINE_S):
            raise RuntimeError("ZooKeeper did not accept the session in time")

    def read(self, reads: Sequence[Read], then: Callable[[tuple[Node, ...], int], None]) -> None:
        """Read nodes; `then` is called with the nodes and the time."""
        token = next(self._tokens)
        self._waiting[token] = lambda item, at_ns: then(item.nodes, at_ns)
        self.store.read(token, reads)

    def commit(self, writes: Sequence[Write], then: Callable[[int], None] | None = None) -> None:
        """Send a multi; `then` is called with the time of its reply. After a refusal `check` fails the run."""
        token = next(self._tokens)

        def replied(item: CommitDone, at_ns: int) -> None:
            if item.outcome is not Outcome.COMMITTED:
                self.refused.append(f"{item.outcome}: {item.reason} of {writes[item.failed_at]}")
            if then is not None:
                then(at_ns)

        self._waiting[token] = replied
        self.store.commit(token, Transaction(writes=tuple(writes), why="benchmark"))

    def check(self) -> None:
        """RuntimeError if any multi was refused."""
        if self.refused:
            raise RuntimeError(f"{len(self.refused)} multis were refused: {self.refused[0]}")

    def nodes(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Read nodes, and wait for them."""
        answer: Future[tuple[Node, ...]] = Future()
        self.read(reads, lambda nodes, _: answer.set_result(nodes))
        return answer.result(DEADLINE_S)

    def write(self, *writes: Write) -> int:
        """Send a multi and wait for its reply; return the time of the reply."""
        answer: Future[int] = Future()
        self.commit(writes, answer.set_result)
        at_ns = answer.result(DEADLINE_S)
        self.check()
        return at_ns

    def _take(self, item: StoreInput) -> None:
        at_ns = now_ns()
        match item:
            case ReadDone() | CommitDone() | SyncDone():
                self._waiting.pop(item.token)(item, at_ns)
            case WatchFired(path):
                fired = self.watching.get(path)
                if fired is not None:
                    fired(at_ns)
            case LinkChanged(link=Link.CONNECTED):
                self._link.set()


class Log:
    """The partitions that each member holds, and since when, by the members' logs. Any thread adds to it.

    One thread waits for a condition. It looks now and then, since the figures come from the log's own times: a thread
    that is woken at each entry takes processor time from the members.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held: dict[TopicPartition, str] = {}
        self.loads: dict[str, int] = {}  # of living members
        self._free_since_ns: dict[TopicPartition, int] = {}
        self.started: list[int] = []  # times of acknowledged starts
        self.moved = 0
        self.unowned_ns: list[int] = []
        self.seen_ns = 0

    def begin(self) -> None:
        """Forget the measurements, but not which partitions are held."""
        with self._lock:
            self.started, self.moved, self.unowned_ns, self.seen_ns = [], 0, [], 0

    def joined(self, consumer: str) -> None:
        """Note that a member has joined."""
        with self._lock:
            self.loads.setdefault(consumer, 0)

    def died(self, consumer: str, at_ns: int) -> None:
        """Note that a member's registration is gone."""
        with self._lock:
            self.loads.pop(consumer, None)
            for partition in [p for p, holder in self.held.items() if holder == consumer]:
                del self.held[partition]
                self._free_since_ns[partition] = at_ns

    def seen(self, at_ns: int) -> None:
        """Note that a command came."""
        with self._lock:
            self.seen_ns = at_ns

    def stop(self, consumer: str, partitions: Iterable[TopicPartition], at_ns: int) -> None:
        """Note that a member does not read these partitions any more."""
        with self._lock:
            for partition in partitions:
                if self.held.pop(partition, None) is not None and consumer in self.loads:
                    self.loads[consumer] -= 1
                self._free_since_ns[partition] = at_ns

    def start(self, consumer: str, partitions: Iterable[TopicPartition], at_ns: int) -> None:
        """Note that a member's start was acknowledged."""
        with self._lock:
            self.started.append(at_ns)
            for partition in partitions:
                self.held[partition] = consumer
                self.loads[consumer] = self.loads.get(consumer, 0) + 1
                self.moved += 1
                free_ns = self._free_since_ns.pop(partition, None)
                if free_ns is not None:
                    self.unowned_ns.append(at_ns - free_ns)

    def settled(self, members: int, partitions: int) -> None:
        """Wait until this number of members holds all partitions, in even shares."""
        least = partitions // members

        def even() -> bool:
            enough = len(self.held) == partitions and len(self.loads) == members
            return enough and min(self.loads.values()) >= least

        self._wait(even, lambda: f"{len(self.held)} of {partitions} held, by {sorted(self.loads.values())}")

    def wait_members(self, members: int) -> None:
        """Wait until this number of members has registered."""
        self._wait(lambda: len(self.loads) == members, lambda: f"{len(self.loads)} of {members} registered")

    def wait_seen(self) -> int:
        """Wait for the command; return the time when it came."""
        self._wait(lambda: self.seen_ns > 0, lambda: "no command seen")
        return self.seen_ns

    def _wait(self, condition: Callable[[], bool], trouble: Callable[[], str]) -> None:
        pause, end_ns = threading.Event(), now_ns() + int(DEADLINE_S * 1e9)
        while True:
            with self._lock:
                if condition():
                    return
                if now_ns() > end_ns:
                    raise RuntimeError(trouble())
            pause.wait(LOOK_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One event: times in ms, counts as they are; requests without pings and lease syncs (`apart`)."""

    settled_ms: float
    unowned_ms: tuple[float, ...]
    moved: int
    stable_ms: float | None = None
    requests: int | None = None
    apart: int = 0

    @property
    def unowned_p50_ms(self) -> float:
        """The median time without an owner, over the partitions that had an owner before."""
        return median(self.unowned_ms) if self.unowned_ms else 0.0


def result(log: Log, t0_ns: int) -> Result:
    """Return the result of an event at `t0_ns`, from a log. It ends with the last start."""
    return Result(
        settled_ms=(max(log.started) - t0_ns) / 1e6,
        unowned_ms=tuple(ns / 1e6 for ns in log.unowned_ns),
        moved=log.moved,
    )


class Pings:
    """Counts the pings of all sessions of this process from the moment when this object is made."""

    def __init__(self) -> None:
        self.count = 0
        original = connection.Connection._send_ping

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return original(*arguments)

        connection.Connection._send_ping = counted


def repeated(what: str) -> argparse.ArgumentParser:
    """Return the options of a benchmark that measures each point several times."""
    parser = arguments(what)
    parser.add_argument("--runs", type=whole, metavar="N", help="runs of each (default 7, quick 1 or 2)")
    where = "only this point: members, partitions"
    parser.add_argument("--point", type=wholes(2), action="append", metavar="N,P", help=where)
    return parser


def whole(text: str) -> int:
    """Return an option's number. A wrong number is reported before anything is measured."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return number


def wholes(many: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parser for this many numbers with commas between them."""

    def numbers(text: str) -> tuple[int, ...]:
        found = tuple(map(whole, text.split(",")))
        if len(found) != many:
            raise argparse.ArgumentTypeError(f"{text!r}: write {many} numbers with commas between them")
        return found

    return numbers
