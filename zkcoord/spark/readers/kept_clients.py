"""Keeps the Kafka clients of a Python worker from one task to the next. It runs in Spark's Python workers, and is
passed by value.

Spark reuses its Python workers, and sends this module to a worker again for each job. So idle clients are not kept in
this module, but in a module of the worker's process, which `idle_clients` finds by its name and by the process id.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "zkcoord_idle_clients"  # a module of the process; no real module has this name
IDLE_MAX = 4  # clients of one process; each has a thread, and a connection to every broker
IDLE_MAX_MS = 60_000  # Spark itself ends a worker that has had no task for a minute
FILES = (".location", ".keytab", ".file")  # ends of librdkafka's settings that name a file


class IdleClients:
    """Open consumers of one process that no task uses. Thread safe."""

    def __init__(self, idle_max_ms: int = IDLE_MAX_MS) -> None:
        self._idle_max_s = idle_max_ms / 1000
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, Any, float]] = []  # oldest first, each with the time of its last task
        self._timer: threading.Timer | None = None  # runs while there are idle clients

    def take(self, key: Hashable) -> Any:
        """Return the most recently used client of this configuration; None if there is none. It belongs to the
        caller."""
        with self._lock:
            for entry in reversed(self._idle):
                if entry[0] == key:
                    self._idle.remove(entry)
                    return entry[1]
        return None

    def put(self, key: Hashable, client: Any) -> None:
        """Keep a client that has no assignment. Closes the oldest ones above `IDLE_MAX`, and each client after its
        time."""
        with self._lock:
            self._idle.append((key, client, time.monotonic()))
            surplus = self._removed(max(0, len(self._idle) - IDLE_MAX))
            self._watch()
        for each in surplus:
            each.close()

    def _removed(self, count: int) -> list[Any]:
        found, self._idle = self._idle[:count], self._idle[count:]
        return [client for _, client, _ in found]

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            left_s = self._idle[0][2] + self._idle_max_s - time.monotonic()
            self._timer = threading.Timer(max(0.0, left_s), self._close_old)
            self._timer.daemon = True
            self._timer.start()

    def _close_old(self) -> None:
        with self._lock:
            since = time.monotonic() - self._idle_max_s
            old = self._removed(sum(at <= since for _, _, at in self._idle))
            self._timer = None
            self._watch()
        for each in old:
            each.close()


def idle_clients() -> IdleClients:
    """Return the idle clients of this process. A forked child has none, since librdkafka's threads do not exist there.

    Clients that a child has inherited are neither used nor closed: both would wait for those threads.
    """
    module = sys.modules.setdefault(MODULE, ModuleType(MODULE))
    by_process: dict[int, IdleClients] = module.__dict__.setdefault("by_process", {})
    return by_process.setdefault(os.getpid(), IdleClients())


def key_of(settings: Mapping[str, str]) -> Hashable:
    """Return the key of a client: all its settings, and the state of each file that they name.

    So a certificate that was replaced in its file makes another key.
    """
    return tuple((name, value, _file_of(name, value)) for name, value in sorted(settings.items()))


def _file_of(name: str, value: str) -> tuple[int, ...]:
    try:
        found = Path(value).stat() if name.endswith(FILES) else None
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found else ()
