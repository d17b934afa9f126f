"""The table and its JSON."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.demo.accounting import Records, Unowned
from zkcoord.demo.report import NOTE, Happening, Result, as_json, as_table

RECORDS = Records(produced=90_000, processed=90_000, lost=0, duplicated=0, interrupted=150, foreign=0)
RESULT = Result(
    records=RECORDS,
    flow_ms=9_000,
    happenings=[
        Happening(name="a third consumer joins", began_ms=1_000, known_ms=1_000, stable_ms=1_300, moved=2),
        Happening(
            name="a consumer is killed", began_ms=2_000, known_ms=8_000, stable_ms=8_040, moved=3, note="so be it"
        ),
    ],
    unowned=[Unowned("t-3", 1_100, 1_120), Unowned("t-7", 1_200, 1_205), Unowned("t-0", 8_000, 8_030)],
)


def test_the_table_has_records_events_unowned_times_and_a_verdict() -> None:
    assert as_table(RESULT).splitlines() == [
        "RECORDS",
        "produced                              90,000   10,000 a second",
        "processed                             90,000   rows in the Parquet files",
        "lost                                       0",
        "duplicated                                 0   the kill interrupted a batch of 150: it was replayed",
        "",
        "EVENT                               DETECTED   THEN STABLE         MOVED   UNOWNED MAX",
        "a third consumer joins                     -        300 ms             2         20 ms",
        "a consumer is killed                6,000 ms         40 ms             3         30 ms   so be it",
        "",
        "UNOWNED TIME                           MOVES           P50           P99           MAX",
        "of each partition that moved               3         20 ms         30 ms         30 ms",
        "",
        *NOTE,
        "",
        "Each record is there once: nothing is lost, nothing is there twice.",
    ]


def test_the_note_names_the_timeouts() -> None:
    assert "6 s (consumers) or 10 s (coordinators)" in " ".join(NOTE)


def test_the_json_has_the_same() -> None:
    assert as_json(RESULT) == {
        "ok": True,
        "records": {
            "produced": 90_000,
            "processed": 90_000,
            "lost": 0,
            "duplicated": 0,
            "interrupted": 150,
            "foreign": 0,
        },
        "flow_ms": 9_000,
        "events": [
            {
                "event": "a third consumer joins",
                "detection_ms": 0,
                "stable_ms": 300,
                "moved": 2,
                "unowned_ms": {"count": 2, "p50": 5, "p99": 20, "max": 20},
                "note": "",
            },
            {
                "event": "a consumer is killed",
                "detection_ms": 6_000,
                "stable_ms": 40,
                "moved": 3,
                "unowned_ms": {"count": 1, "p50": 30, "p99": 30, "max": 30},
                "note": "so be it",
            },
        ],
        "unowned_ms": {"count": 3, "p50": 20, "p99": 30, "max": 30},
    }


def test_a_failure_says_what_is_wrong() -> None:
    failed = replace(RESULT, records=replace(RECORDS, lost=1_234, duplicated=5))
    assert as_table(failed).splitlines()[-1] == "FAILED: records lost: 1,234; there twice: 5"
    assert as_json(failed)["ok"] is False


def test_where_nothing_moved_there_is_no_unowned_time() -> None:
    calm = replace(RESULT, happenings=[replace(RESULT.happenings[0], moved=0)], unowned=[])
    assert as_table(calm).splitlines()[7:11] == [
        "a third consumer joins                     -        300 ms             0             -",
        "",
        "UNOWNED TIME                           MOVES           P50           P99           MAX",
        "of each partition that moved               0             -             -             -",
    ]
