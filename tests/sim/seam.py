"""The border between simulated programs and the product. While a scene is played, the product's modules use threads,
locks, queues and clocks of the simulated world (`tests/sim/threads.py`) instead of Python's, and a simulated ZooKeeper
and Kafka.

Each replacement looks at the calling thread. A thread that belongs to no simulated program gets the real thing.
"""

from __future__ import annotations

import concurrent.futures._base as futures
import queue
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import zkcoord.consumer
import zkcoord.kafka.consumer
import zkcoord.kafka.resets
import zkcoord.shell.driver
from tests.sim.sync import SimCondition, SimEvent, SimLock, SimQueue, SimRLock, SimTimer
from tests.sim.threads import Crew, SimThread, current
from zkcoord.consumer import Consumer

WALL_MS = 1_700_000_000_000
UNTRACED = ("zkcoord-consumer",)
"""Threads whose every step is one input's: a loop's own (its order with the others is what counts)."""


def _either(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `simulated` on a thread of a simulated program, and `real` on any other thread."""
    return lambda *args, **kwargs: (real if current() is None else simulated)(*args, **kwargs)


def _mine() -> SimThread:
    me = current()
    assert me is not None
    return me


def _now_ms() -> int:
    return _mine().crew.now_ms()


def _wall_ns() -> int:
    return (WALL_MS + _mine().crew.process.world.now_ms) * 1_000_000


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=_mine().crew.process.world.rng.getrandbits(128))


class _Module:
    """A module of Python's with some names replaced by simulated ones."""

    def __init__(self, module: Any, **simulated: Callable[..., Any]) -> None:
        self._real = module
        for name, function in simulated.items():
            setattr(self, name, _either(function, getattr(module, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


THREADING: Any = _Module(
    threading,
    Thread=SimThread,
    Timer=SimTimer,
    Lock=SimLock,
    RLock=SimRLock,
    Condition=SimCondition,
    Event=SimEvent,
    get_ident=lambda: _mine().ident,
    current_thread=_mine,
)
TIME: Any = _Module(
    time,
    monotonic=lambda: _now_ms() / 1000,
    monotonic_ns=lambda: _now_ms() * 1_000_000,
    perf_counter=lambda: _now_ms() / 1000,
    perf_counter_ns=lambda: _now_ms() * 1_000_000,
    clock_gettime=lambda clock: _now_ms() / 1000,
    clock_gettime_ns=lambda clock: _now_ms() * 1_000_000,
    time=lambda: _wall_ns() / 1e9,
    time_ns=_wall_ns,
    sleep=lambda seconds: _mine().crew.sleep(seconds),
)
QUEUE: Any = _Module(queue, SimpleQueue=SimQueue)
UUID: Any = _Module(uuid, uuid4=_uuid4)
SOCKET: Any = _Module(socket, gethostname=lambda: _mine().crew.process.name)

IN_PLACE_OF: tuple[tuple[Any, Any], ...] = (
    (threading, THREADING),
    (time, TIME),
    (queue, QUEUE),
    (uuid, UUID),
    (socket, SOCKET),
    (threading.Thread, THREADING.Thread),
    (threading.Lock, THREADING.Lock),
    (threading.Condition, THREADING.Condition),
    (threading.Event, THREADING.Event),
    (queue.SimpleQueue, QUEUE.SimpleQueue),
    (uuid.uuid4, UUID.uuid4),
)
"""Whatever name of a module of the product is one of the first is the second."""


class _Sessions:
    """Stands in for `KazooSessions`. The world delivers the inputs of a session, not a thread of the program."""

    def __init__(self, open_session: Callable[..., Any]) -> None:
        self._open_session = open_session
        self.told: Callable[[bool], None] = lambda here: None

    def __call__(self, sink: Callable[[Any], None]) -> Any:
        def take(item: Any) -> None:
            sink(item)
            self.told(False)

        return self._open_session(take)


def _sessions(*args: Any, **kwargs: Any) -> Any:
    return _Sessions(_mine().crew.process.open_session)


def _told(name: str, fields: Any) -> None:
    process = _mine().crew.process
    process.world.trace(process.client, name, fields)


def _kafka(name: str) -> Callable[..., Any]:
    """Call the function of this name of the process's own Kafka."""
    return lambda *args, **kwargs: getattr(_mine().crew.process.kafka, name)(*args, **kwargs)  # type: ignore[attr-defined]


def _outside() -> Iterator[tuple[Any, str, Any]]:
    """Names that the product uses of its surroundings: module, name, simulated value."""
    yield zkcoord.consumer, "zookeeper_sessions", _sessions
    yield zkcoord.consumer, "emit_fields", _told
    yield zkcoord.consumer, "kafka_commits", _kafka("commits")
    yield zkcoord.kafka.resets, "SteadyClient", _kafka("client")
    yield zkcoord.kafka.fetcher, "open_consumer", _kafka("open_consumer")


@cache
def _places() -> tuple[tuple[Any, str, Any, Any], ...]:
    """All replacements: module, name, real value, simulated value."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("zkcoord.")]
    found = [
        (module, name, real, simulated)
        for module in [*modules, futures]
        for name, value in sorted(vars(module).items())
        for real, simulated in IN_PLACE_OF
        if value is real
    ]
    outside = [(module, name, getattr(module, name), new) for module, name, new in _outside()]
    return (*found, *((module, name, real, _either(new, real)) for module, name, real, new in outside))


@cache
def traced_files() -> frozenset[str]:
    """The product's files in whose lines a thread may lose the baton: files whose code several threads of a program
    run. Few of them are in `shell`: the rest of `shell` runs within a step, and only one thread at a time makes a
    step."""
    package = Path(zkcoord.consumer.__file__).parent
    files = [package / "shell" / f"{name}.py" for name in ("clock", "driver", "inbox", "worker")]
    rooms = [package / name for name in ("kafka", "member", "serving", "spark")]
    return frozenset(map(str, [package / "consumer.py", *files, *(f for room in rooms for f in room.rglob("*.py"))]))


SLOW = frozenset(function.__code__ for function in (Consumer.commit, Consumer._ask_write))
"""What may come long after it was decided: a commit."""

_played: list[None] = []


@contextmanager
def simulated(crews: list[Crew]) -> Iterator[None]:
    """While this context is open, programs are simulated. At its end the threads of these crews end."""
    if not _played:
        for module, name, _, new in _places():
            setattr(module, name, new)
    _played.append(None)
    try:
        yield
    finally:
        for crew in crews:
            crew.kill()
        _played.pop()
        if not _played:
            for module, name, real, _ in _places():
                setattr(module, name, real)
