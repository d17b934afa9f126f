"""Reads the events of the children: JSON lines in their logs, read while the children write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


class EventLog:
    """The events in one child's log, in the order of the log. Other lines (Java prints some) are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: list[Event] = []
        self._offset = 0

    def events(self) -> list[Event]:
        """Read what is new in the log, and return all events so far."""
        if not self.path.exists():
            return self._read
        with self.path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        complete = new[: new.rfind(b"\n") + 1]  # an incomplete line is read the next time
        self._offset += len(complete)
        self._read += parse_events(complete.splitlines())
        return self._read

    def all(self, *names: str, since_ms: int = 0) -> list[Event]:
        """The events of these names that happened at or after `since_ms`."""
        return [event for event in self.events() if event["event"] in names and event["mono_ms"] >= since_ms]

    def first(self, *names: str, since_ms: int = 0) -> Event | None:
        """The first of them, None while there is none."""
        return next(iter(self.all(*names, since_ms=since_ms)), None)

    def last(self, *names: str, since_ms: int = 0) -> Event | None:
        """The last of them, None while there is none."""
        return next(reversed(self.all(*names, since_ms=since_ms)), None)


def parse_events(lines: Iterable[bytes]) -> list[Event]:
    """The events among these lines.

    >>> parse_events([b"WARN of Java", b'{"event":"registered","mono_ms":7}', b'{"no":"event"}'])
    [{'event': 'registered', 'mono_ms': 7}]
    """
    found = []
    for line in lines:
        if not line.startswith(b"{"):
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event.get("event"), str) and isinstance(event.get("mono_ms"), int):
            found.append(event)
    return found
