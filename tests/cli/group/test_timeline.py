"""`zkcoord group timeline`: what a coordinator's endpoint tells, as a table, for programs, and as a picture."""

from __future__ import annotations

import json
import sys
import threading
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler
from typing import Any

import pytest
from matplotlib.image import imread

from tests.cli.program import Run
from tests.metrics.test_endpoint import free_address
from tests.timeline.journal_scene import journal_of_moves
from zkcoord.cli.output import drawn
from zkcoord.core.handovers import MOMENTS
from zkcoord.metrics.endpoint import Endpoint, Part
from zkcoord.operating.handovers import COLUMNS, NUMBERS, begun_ms_of, fetch_handovers, row
from zkcoord.operating.timeline_picture import COLOURS, NOBODY, Span, spans
from zkcoord.operating.words import at

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
T = 1_790_000_000_000
TOLD = ("sent_ms", "seen_ms", "stopped_ms", "committed_ms", "start_seen_ms", "first_record_ms")
NOBODY_RGB, *OWNERS_RGB = [tuple(bytes.fromhex(colour[1:])) for colour in (NOBODY, *COLOURS[:2])]


def moved(
    partition: int, giver: str | None, taker: str, *times_ms: int | None, told: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A hand-over as a coordinator tells it. `told`: what the consumers told of it, in the order of moments."""
    names = ("decided_ms", "released_ms", "granted_ms", "acknowledged_ms")
    known = dict(zip(names, times_ms, strict=True)) | dict(zip(TOLD, told, strict=False))
    times = {name: None if (at := known.get(name)) is None else T + at for name in MOMENTS}
    return {"group": "g", "topic": "t", "partition": partition, "from": giver, "to": taker, "generation": 7, **times}


HANDOVERS = [
    moved(0, None, A, None, 0, 0, 50),
    moved(1, A, B, 1_000, 1_700, 1_710, 1_800, told=(1_005, 1_020, 1_650, 1_690, 1_720, 2_000)),
    moved(0, A, B, 1_000, 1_050, 1_060, None),
]


WHY = "its stop took 700 ms: send 5, see 15, finish 630, commit 40, release 10"


@pytest.fixture
def address() -> Iterator[str]:
    """A coordinator's endpoint that knows group g."""

    def handovers(group: str, last: int | None) -> Iterable[Mapping[str, Any]] | None:
        return HANDOVERS[-(last or 0) :] if group == "g" else None

    address = free_address()
    endpoint, part = Endpoint.at(address), Part("coordinator", lambda: None, lambda: None, handovers)
    endpoint.add(part)
    yield address
    endpoint.remove(part)


def test_each_stage_has_its_time(address: str, run: Run) -> None:
    result = run("group", "timeline", "g", "--from", "127.0.0.1:1", "--from", address)

    assert result.exit_code == 0, result.stderr
    rows = [line.split()[1:] for line in result.stdout.splitlines()]
    assert rows == [
        ["PARTITION", "STOP", "SEE", "FINISH", "COMMIT", "GRANT", "START", "UNREAD", "FIRST", "FROM", "TO"],
        ["t-0", "-", "-", "-", "-", "0", "50", "50", "-", "-", A],
        ["t-1", "700", "20", "630", "50", "10", "90", "100", "200", A, B],
        ["t-0", "50", "-", "-", "-", "10", "-", "-", "-", A, B],
    ]
    assert len(run("group", "timeline", "g", "--from", address, "--last", "1").stdout.splitlines()) == 2


def test_a_terminal_of_80_columns_has_room_for_the_times_and_says_what_is_left_out() -> None:
    rows = [row({**HANDOVERS[1], "topic": "page.views"}, dated=False)] * 2
    lines, left_out = drawn(COLUMNS, rows, NUMBERS, 80)
    assert left_out == ["GRANT", "FROM", "TO"]
    assert max(map(len, lines)) <= 80
    header, first, _ = (line.split()[1:] for line in lines)
    assert header == ["PARTITION", "STOP", "SEE", "FINISH", "COMMIT", "START", "UNREAD", "FIRST"]
    assert first == ["page.views-1", "700", "20", "630", "50", "90", "100", "200"]
    assert drawn(COLUMNS, rows, NUMBERS, 200).left_out == []


def test_the_picture_is_red_where_nobody_reads(address: str, run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "g.svg"
    assert run("group", "timeline", "g", "--from", address, "--picture", str(picture)).exit_code == 0

    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    red = [each[0].text for each in bars if each.get("fill") == NOBODY]
    titles = [each[0].text for each in bars if each[0].text is not None]
    assert f"t-1: {A}, 1700 ms; {WHY}" in titles
    assert red == ["t-0: nobody, 50 ms", "t-0: nobody, 930 ms", "t-1: nobody, 100 ms"]
    assert [each for each in spans(HANDOVERS) if each.partition == "t-1"] == [
        Span("t-1", A, T, T + 1_700, WHY),
        Span("t-1", None, T + 1_700, T + 1_800),
        Span("t-1", B, T + 1_800, T + 1_980),
    ]


def test_nothing_is_drawn_while_nobody_knows_who_had_a_partition() -> None:
    """A dead member's share, and what another coordinator completed."""
    taken = [
        moved(0, None, A, None, 900, 900, 1_000),
        moved(1, A, B, 0, 100, 200, None),
        moved(1, B, A, 600, 700, 700, 800),
    ]

    assert spans(taken, 0) == [
        Span("t-0", None, T + 900, T + 1_000),
        Span("t-1", A, T, T + 100),
        Span("t-1", None, T + 100, T + 600),
        Span("t-1", B, T + 600, T + 700),
        Span("t-1", None, T + 700, T + 800),
        Span("t-1", A, T + 800, T + 1_000),
    ]


def test_a_picture_as_png_is_red_where_nobody_reads_and_has_a_colour_for_each_owner(
    address: str, run: Run, tmp_path: Path
) -> None:
    picture = tmp_path / "g.png"
    assert run("group", "timeline", "g", "--from", address, "--picture", str(picture)).exit_code == 0

    pixels = (imread(picture)[:, :, :3] * 255).round().astype(int).reshape(-1, 3).tolist()
    count = Counter(map(tuple, pixels))
    assert min(count[NOBODY_RGB], *(count[rgb] for rgb in OWNERS_RGB)) > 1_000


def test_only_handovers_of_the_time_that_is_asked_for_are_shown(address: str, run: Run) -> None:
    def shown(*times: str) -> list[str]:
        out = run("group", "timeline", "g", "--from", address, "--output", "json", *times).stdout
        return [f"{each['partition']}@{each['released_ms'] - T}" for each in map(json.loads, out.splitlines())]

    assert shown("--since", str(T + 1)) == ["1@1700", "0@1050"]
    assert shown("--since", str(T + 1), "--last", "1") == ["0@1050"]
    assert shown("--until", "2026-09-21T14:13:21") == ["0@0"]
    assert shown("--since", "2026-09-21T16:13:21+02:00") == ["1@1700", "0@1050"]
    none = run("group", "timeline", "g", "--from", address, "--since", "2030-01-01T00:00")
    assert none.stdout == "group g: no hand-over of this time\n"
    for text in ("yesterday", "7"):
        wrong = run("group", "timeline", "g", "--from", address, "--since", text)
        assert (wrong.exit_code, f"--since {text!r} is no time" in wrong.stderr) == (2, True)
    turned = run("group", "timeline", "g", "--from", address, "--since", "2026-11-24", "--until", "2026-11-23")
    told = "error: --since 2026-11-24 is not before --until 2026-11-23: give the earlier moment to --since\n"
    assert (turned.exit_code, turned.stderr) == (2, told)


def test_a_journals_handovers_are_shown_as_a_coordinators_are(run: Run, tmp_path: Path) -> None:
    kept = journal_of_moves(tmp_path / "journal")
    moved_ms = min(each["decided_ms"] for each in kept.seen if each["decided_ms"] is not None)
    of_it = ("group", "timeline", "g", "--journal", str(kept.folder), "--last", "1000")

    shown = [json.loads(line) for line in run(*of_it, "--output", "json", "--since", str(moved_ms)).stdout.splitlines()]
    assert sorted(map(str, shown)) == sorted(str(each) for each in kept.seen if begun_ms_of(each) >= moved_ms)
    picture = tmp_path / "g.svg"
    table = run(*of_it, "--picture", str(picture)).stdout.splitlines()
    assert (len(table), table[1].split()[0]) == (len(kept.seen) + 1, at(begun_ms_of(kept.seen[0])).split()[0])
    assert NOBODY in picture.read_text(encoding="utf-8")
    other = run("group", "timeline", "h", "--journal", str(kept.folder))
    assert (other.exit_code, "no group 'h'; its groups: g" in other.stderr) == (2, True)


def test_either_a_coordinator_or_a_journal_is_named(address: str, run: Run, tmp_path: Path) -> None:
    for sources in ((), ("--from", address, "--journal", str(tmp_path))):
        refused = run("group", "timeline", "g", *sources)
        assert (refused.exit_code, "give --from HOST:PORT" in refused.stderr) == (2, True)
    empty = run("group", "timeline", "g", "--journal", str(tmp_path))
    assert (empty.exit_code, f"{tmp_path}: no journal there" in empty.stderr) == (2, True)
    (tmp_path / "notes").write_text("bought milk\n")
    strange = run("group", "timeline", "g", "--journal", str(tmp_path / "notes"))
    told = f"error: {tmp_path}/notes: line 1 is no JSON (Expecting value: line 1 column 1 (char 0)): "
    assert (strange.exit_code, strange.stderr) == (6, f"{told}the journal was cut off, or is none\n")
    absent = run("group", "timeline", "g", "--journal", str(tmp_path / "away"))
    assert (absent.exit_code, "does not exist" in absent.stderr) == (2, True)


def test_a_group_that_is_not_there_an_address_without_anybody_and_a_wrong_one(address: str, run: Run) -> None:
    absent = run("group", "timeline", "other", "--from", address)
    assert (absent.exit_code, "serves a group 'other'" in absent.stderr) == (2, True)
    away = run("group", "timeline", "g", "--from", "127.0.0.1:1")
    why = "no coordinator answers (127.0.0.1:1: Connection refused)"
    assert away.stderr == f"error: {why}: start it with --metrics, or give its address\n"
    assert away.exit_code == 5
    for text in ("nowhere", ":9464", "h:0", "h:65536"):
        wrong = run("group", "timeline", "g", "--from", text)
        told = f"error: Invalid value for '--from': {text!r} is no address: give HOST:PORT"
        assert (wrong.exit_code, wrong.stderr[: len(told)]) == (2, told)


def test_a_server_that_is_no_endpoint_of_ours_is_not_taken_for_a_coordinator_without_the_group(run: Run) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        there = f"127.0.0.1:{other.server_port}"
        asked = run("group", "timeline", "g", "--from", there)
        other.shutdown()

    assert asked.exit_code == 5
    assert f"no coordinator answers ({there} is no program's address for metrics): start it with" in asked.stderr


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"SSH-2.0-OpenSSH_9.2\r\n"],
    ids=["ends in the middle", "speaks no HTTP"],
)
def test_a_coordinator_whose_answer_is_none_does_not_answer(run: Run, answer: bytes) -> None:
    class Ends(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(9_999)
            self.request.sendall(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Ends) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        there = f"127.0.0.1:{other.server_port}"
        asked = run("group", "timeline", "g", "--from", there)
        other.shutdown()

    assert (asked.exit_code, f"error: no coordinator answers ({there}: " in asked.stderr) == (5, True), asked.stderr


def test_of_a_coordinator_that_answers_with_all_hand_overs_the_last_ones_are_taken() -> None:
    class Older(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"partition":0}\n{"partition":1}\n{"partition":2}\n')

    with ThreadingHTTPServer(("127.0.0.1", 0), Older) as older:
        threading.Thread(target=older.serve_forever, daemon=True).start()
        found = fetch_handovers([f"127.0.0.1:{older.server_port}"], "g", 2)
        older.shutdown()

    assert found == [{"partition": 1}, {"partition": 2}]


def test_a_picture_of_an_unknown_kind_is_refused_and_not_written(address: str, run: Run, tmp_path: Path) -> None:
    result = run("group", "timeline", "g", "--from", address, "--picture", str(tmp_path / "g.gif"))

    assert (result.exit_code, "must end in .png, .svg, .pdf" in result.stderr, list(tmp_path.iterdir())) == (
        2,
        True,
        [],
    )


def test_png_needs_the_extra_and_svg_does_not(
    address: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    png = run("group", "timeline", "g", "--from", address, "--picture", str(tmp_path / "g.png"))
    svg = run("group", "timeline", "g", "--from", address, "--picture", str(tmp_path / "g.svg"))

    assert (png.exit_code, "pip install 'zkcoord[plot]'" in png.stderr, svg.exit_code) == (2, True, 0)
