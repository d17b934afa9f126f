"""Logs that are read while they are written."""

from __future__ import annotations

import json
from pathlib import Path

from zkcoord.demo.events import EventLog


def line(event: str, mono_ms: int) -> bytes:
    """An event as a child writes it."""
    return json.dumps({"event": event, "mono_ms": mono_ms}).encode() + b"\n"


def test_there_are_no_events_before_there_is_a_log(tmp_path: Path) -> None:
    assert EventLog(tmp_path / "none").events() == []


def test_the_log_reader_finds_appended_lines_once_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = EventLog(path)
    path.write_bytes(line("registered", 1) + line("left", 2)[:10])
    assert [event["event"] for event in log.events()] == ["registered"]
    path.write_bytes(line("registered", 1) + line("left", 2) + line("registered", 3))
    assert [event["mono_ms"] for event in log.events()] == [1, 2, 3]


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"26/01/01 WARN Utils: \xff\n\n{broken\n{}\n[1]\n" + line("left", 2))
    assert [event["event"] for event in EventLog(path).events()] == ["left"]


def test_events_are_chosen_by_name_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join([line("x", 1), line("y", 2), line("x", 3), line("z", 4)]))
    log = EventLog(path)
    assert [event["mono_ms"] for event in log.all("x", "z", since_ms=2)] == [3, 4]
    assert (log.first("x") or {})["mono_ms"] == 1
    assert (log.first("x", since_ms=2) or {})["mono_ms"] == 3
    assert (log.last("x", "y") or {})["mono_ms"] == 3
    assert log.last("x", since_ms=4) is None
