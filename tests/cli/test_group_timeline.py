"""`zkcoord group timeline`: what a coordinator's endpoint tells, as a table, for programs, and as a picture."""

from __future__ import annotations

import socket
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from zkcoord.cli.timeline_picture import NOBODY, Span, spans
from zkcoord.metrics.endpoint import Endpoint, Part

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
T = 1_790_000_000_000


def moved(partition: int, giver: str | None, taker: str, *times_ms: int | None) -> dict[str, Any]:
    names = ("stop_ms", "released_ms", "granted_ms", "acknowledged_ms")
    times = {name: None if at is None else T + at for name, at in zip(names, times_ms, strict=True)}
    return {"group": "g", "topic": "t", "partition": partition, "from": giver, "to": taker, "generation": 7, **times}


HANDOVERS = [
    moved(0, None, A, None, 0, 0, 50),
    moved(1, A, B, 1_000, 1_700, 1_710, 1_800),
    moved(0, A, B, 1_000, 1_050, 1_060, None),
]


@pytest.fixture
def address() -> Iterator[str]:
    """A coordinator's endpoint that knows group g."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"

    def handovers(group: str) -> Iterable[Mapping[str, Any]] | None:
        return HANDOVERS if group == "g" else None

    endpoint, part = Endpoint.at(address), Part("coordinator", lambda: None, lambda: None, handovers)
    endpoint.add(part)
    yield address
    endpoint.remove(part)


def test_each_stage_has_its_time(address: str, run: Run) -> None:
    result = run("group", "timeline", "g", "--from", "127.0.0.1:1", "--from", address)

    assert result.exit_code == 0, result.stderr
    rows = [line.split()[1:] for line in result.stdout.splitlines()]
    assert rows == [
        ["PARTITION", "STOP-MS", "GRANT-MS", "START-MS", "UNREAD-MS", "FROM", "TO"],
        ["t-0", "-", "0", "50", "50", "-", A],
        ["t-1", "700", "10", "90", "100", A, B],
        ["t-0", "50", "10", "-", "-", A, B],
    ]
    assert len(run("group", "timeline", "g", "--from", address, "--last", "1").stdout.splitlines()) == 2


def test_the_picture_is_red_where_nobody_reads(address: str, run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "g.svg"
    assert run("group", "timeline", "g", "--from", address, "--picture", str(picture)).exit_code == 0

    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    red = [each[0].text for each in bars if each.get("fill") == NOBODY]
    assert red == ["t-0: nobody, 50 ms", "t-0: nobody, 750 ms", "t-1: nobody, 100 ms"]
    assert [each for each in spans(HANDOVERS) if each.partition == "t-1"] == [
        Span("t-1", A, T, T + 1_700),
        Span("t-1", None, T + 1_700, T + 1_800),
    ]


def test_a_group_that_is_not_there_an_address_without_anybody_and_a_wrong_one(address: str, run: Run) -> None:
    absent = run("group", "timeline", "other", "--from", address)
    assert (absent.exit_code, "serves a group 'other'" in absent.stderr) == (2, True)
    away = run("group", "timeline", "g", "--from", "127.0.0.1:1")
    assert (away.exit_code, "start it with --metrics" in away.stderr) == (5, True)
    assert run("group", "timeline", "g", "--from", "nowhere").exit_code == 2
