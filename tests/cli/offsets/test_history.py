"""`zkcoord offsets history`: what is refused before a Spark starts, and a group's lag over time."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from tests.cli.conftest import Run
from zkcoord.cli.offsets import history
from zkcoord.cli.offsets.history import COLUMNS, report_table
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.operating.timeline_picture import Span as Bar
from zkcoord.operating.words import at
from zkcoord.plotting import draw_timeline
from zkcoord.spark.history.lag import SPAN_MS, SPANS, Progress, Span, draw, over_time, span_ms

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "where is Kafka?"),
        (("--bootstrap-servers", "h:1", "--since", "yesterday"), "--since 'yesterday' is no time"),
        (("--bootstrap-servers", "h:1", "--picture", "x.png"), "--picture draws one group: name it"),
        (("g", "--bootstrap-servers", "h:1", "--picture", "x.gif"), "must end in .png, .svg, .pdf"),
        (("g", "--bootstrap-servers", "h:1", "--picture", "/nowhere/x.png"), "/nowhere/x.png: there is no folder"),
        (("--bootstrap-servers", "h:1", "--parquet", str(Path(__file__).parent)), "exists: name a new folder"),
        (
            ("g", "--bootstrap-servers", "127.0.0.1:1"),
            "Kafka at 127.0.0.1:1 did not list its topics: it does not answer; check that it runs",
        ),
    ],
)
def test_impossible_histories_are_refused_before_spark_starts(
    run: Run, arguments: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZKCOORD_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(history, "_spark", None)
    monkeypatch.setattr(history, "KafkaClient", partial(KafkaClient, timeout_ms=500))
    done = run("offsets", "history", *arguments)
    assert done.exit_code != 0
    assert text in done.output + done.stderr


def test_only_a_table_of_several_groups_names_them() -> None:
    row = {"group": "g", "topic": "t", "partition": 0, "commits": 3, "last_ms": None, "offset": 7, "lag": 13}
    row |= {"rewinds": 2, "notes": ["stuck", "went back by up to 2"]}
    values = ["t", 0, 3, None, 7, 13, 2, "stuck; went back by up to 2"]
    assert report_table([row], of_one=True) == (COLUMNS[1:], [values])
    assert report_table([row], of_one=False) == (COLUMNS, [["g", *values]])


class Ends:
    """Kafka, whose logs end at 20."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []

    def ask_offsets(self, partitions: Collection[TopicPartition], *_: Any) -> tuple[dict[TopicPartition, int], Any]:
        self.asked += partitions
        return {partition: 20 for partition in partitions if partition.topic == "t"}, {}


YEARS_AGO_MS, HOUR_MS = 1_500_000_000_000, 3_600_000
PLAIN = {"group": "g", "topic": "t", "commits": 7, "offset": 13, "rewinds": 0, "furthest": None, "earlier_tenure": 0}
PLAIN |= {"unreadable": 0, "removed_ms": None, "expired": None}
PLAIN |= dict.fromkeys(("first_ms", "last_ms", "changed_ms"), YEARS_AGO_MS)


@pytest.mark.parametrize(
    ("told", "lag", "notes"),
    [
        ({}, 7, [f"stuck since {at(YEARS_AGO_MS)}"]),
        ({"offset": 20}, 0, []),  # it has read all there is
        ({"offset": 25}, -5, []),  # the log was made anew, or cut
        ({"topic": "gone"}, None, []),
        ({"removed_ms": YEARS_AGO_MS, "expired": True}, None, [f"expired {at(YEARS_AGO_MS)}"]),
        ({"removed_ms": YEARS_AGO_MS, "expired": False}, None, [f"removed {at(YEARS_AGO_MS)}"]),
        (
            {"offset": 20, "rewinds": 2, "furthest": 9, "earlier_tenure": 3, "unreadable": 4},
            0,
            ["went back by up to 9", "3 commits of an earlier tenure", "4 records that cannot be read"],
        ),
    ],
)
def test_rows_that_need_a_look_are_noted(told: dict[str, Any], lag: int | None, notes: list[str]) -> None:
    row, kafka = {**PLAIN, "partition": 0, **told}, Ends()
    history._complete([row], cast(KafkaClient, kafka), 60_000)
    assert (row["lag"], row["notes"], row["stuck"]) == (lag, notes, bool(notes) and notes[0].startswith("stuck"))
    assert kafka.asked == ([] if row["removed_ms"] else [TopicPartition(row["topic"], 0)])


def test_a_removed_offset_has_no_lag_though_another_group_stands_in_its_partition() -> None:
    removed, other = {**PLAIN, "partition": 0, "removed_ms": YEARS_AGO_MS}, {**PLAIN, "partition": 0, "group": "h"}
    history._complete([removed, other], cast(KafkaClient, Ends()), 60_000)
    assert (removed["lag"], removed["stuck"], other["lag"]) == (None, False, 7)


def test_a_lagging_row_that_just_moved_is_not_stuck_and_has_an_hourly_rate() -> None:
    now_ms = int(time.time() * 1000)
    row = {**PLAIN, "partition": 0, "first_ms": now_ms - 2 * HOUR_MS, "last_ms": now_ms, "changed_ms": now_ms}
    history._complete([row, once := {**PLAIN, "partition": 1}], cast(KafkaClient, Ends()), HOUR_MS)
    assert (row["lag"], row["stuck"], row["notes"], row["commits_per_hour"]) == (7, False, [], 3.0)
    assert once["commits_per_hour"] is None  # all at one moment: nobody knows


def ends(partitions: Collection[TopicPartition], at_ms: int) -> Mapping[TopicPartition, int]:
    """One record of each partition in 10 ms."""
    return dict.fromkeys(partitions, at_ms // 10)


def test_a_span_without_commits_has_the_lag_that_grows() -> None:
    told = [Progress(P, 1000, 2, 0, 90), Progress(Q, 3000, 1, 1, 250), Progress(P, 3000, 1, 0, 300)]
    assert over_time(told, 1000, ends) == [Span(1000, 2, 0, 10), Span(2000, 0, 0, 110), Span(3000, 2, 1, 50)]


def test_a_commit_ahead_of_the_logs_end_is_no_lag_of_the_others() -> None:
    told = [Progress(P, 1000, 1, 0, 90), Progress(Q, 1000, 1, 0, 130)]
    assert over_time(told, 1000, ends) == [Span(1000, 2, 0, 10)]


def test_a_picture_has_no_more_spans_than_it_has_room_for() -> None:
    for length_ms, longer_ms in itertools.pairwise(SPAN_MS):
        assert span_ms(0, SPANS * length_ms - 1) == length_ms
        assert span_ms(5, SPANS * length_ms + 5) == longer_ms
    assert span_ms(0, 10 * SPANS * SPAN_MS[-1]) == SPAN_MS[-1]


def test_a_lag_that_kafka_does_not_tell_is_unknown() -> None:
    assert over_time([Progress(P, 1000, 1, 0, 5)], 1000, lambda _, __: {}) == [Span(1000, 1, 0, None)]
    assert over_time([], 1000, ends) == []


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_drawn_in_the_format_of_its_name(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"lag.{kind}"
    draw("g", [Span(1000, 2, 0, 10), Span(2000, 0, 1, None), Span(3000, 2, 1, 50)], file)
    head = file.read_bytes()[:300]
    assert head.startswith(b"\x89PNG") if kind == "png" else b"<svg" in head or b"<?xml" in head


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_says_in_words_what_it_shows(tmp_path: Path, kind: str) -> None:
    lag, timeline = tmp_path / f"lag.{kind}", tmp_path / f"timeline.{kind}"
    draw("g", [Span(1000, 2, 0, 50), Span(2000, 0, 1, None), Span(3000, 2, 1, 10)], lag)
    spans = [Bar("t-0", "a", 0, 10, ""), Bar("t-0", None, 10, 810, ""), Bar("t-1", "b", 0, 900, "")]
    draw_timeline("g", spans, timeline)
    assert words_of(lag) == (
        "group g: lag and commits",
        "lag and commits over time, 1970-01-01T00:00:01+00:00 to 1970-01-01T00:00:03+00:00; commits: 4, rewinds: 2;"
        " lag at the end: 10, at most: 50",
    )
    title, described = words_of(timeline)
    assert title == "group g: hand-overs"
    assert re.sub(r"\d{4}-[\dT:.+-]+", "TIME", described) == (
        "2 partitions against time, TIME to TIME; a, b read; nobody read t-0 for 800 ms, the longest time"
    )


def words_of(file: Path) -> tuple[str, str]:
    """The title and the description that a picture's file carries."""
    if file.suffix == ".png":
        with Image.open(file) as image:
            return image.info["Title"], image.info["Description"]
    text = file.read_bytes().decode("latin-1")
    if file.suffix == ".svg":
        patterns = (r"<dc:title>(.*?)</dc:title>", r"<dc:description>(.*?)</dc:description>")
    else:
        patterns = (r"/Title \((.*?)\)\n?\s*[/>]", r"/Subject \((.*?)\)\n?\s*[/>]")
    title, described = (re.search(pattern, text, re.DOTALL) for pattern in patterns)
    assert title is not None and described is not None
    return title[1], described[1]


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must end in"):
        draw("g", [], tmp_path / "lag.bmp")
