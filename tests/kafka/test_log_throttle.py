"""The limit on lines that librdkafka repeats, with records whose time the test chooses."""

from __future__ import annotations

import logging

from zkcoord.kafka.log_throttle import SAME_LINE_MS, SAME_LINES_MAX, LogThrottle


def passed(quiet: LogThrottle, *lines: tuple[float, str]) -> list[tuple[float, str]]:
    """Return the lines that pass, as they are logged. Each given line has its time in seconds."""
    found = []
    for seconds, text in lines:
        record = logging.LogRecord("l", logging.ERROR, __file__, 1, "%s", (text,), None)
        record.created = seconds
        if quiet.filter(record):
            found.append((seconds, record.getMessage()))
    return found


def test_the_same_text_passes_once_and_then_says_how_often_it_did_not() -> None:
    last = SAME_LINE_MS / 1000
    assert passed(LogThrottle(), (0, "a"), (1, "a"), (2, "b"), (last - 0.01, "a"), (last, "a"), (last + 1, "a")) == [
        (0, "a"),
        (2, "b"),
        (last, "a (and 2 more like it since the last one)"),
    ]


def test_a_line_that_came_alone_has_no_count() -> None:
    assert passed(LogThrottle(), (0, "a"), (20, "a")) == [(0, "a"), (20, "a")]


def test_texts_that_differ_in_counts_and_client_names_are_one() -> None:
    first = "FAIL [rdkafka#consumer-1] [thrd:h:1]: refused (after 0ms in state CONNECT)"
    more = (
        "FAIL [rdkafka#producer-22] [thrd:h:1]: refused (after 7ms in state CONNECT, 3 identical error(s) suppressed)"
    )
    other = "FAIL [rdkafka#consumer-1] [thrd:h:2]: refused (after 0ms in state CONNECT)"
    assert passed(LogThrottle(), (0, first), (1, more), (2, other)) == [(0, first), (2, other)]


def test_a_clock_that_was_set_back_keeps_nothing_silent() -> None:
    assert passed(LogThrottle(), (3_600, "a"), (0, "a")) == [(3_600, "a"), (0, "a")]


def test_only_so_many_texts_are_remembered() -> None:
    quiet = LogThrottle()
    lines = [(0.0, str(number)) for number in range(SAME_LINES_MAX + 1)]
    assert passed(quiet, *lines, (1, "0"), (1, str(SAME_LINES_MAX))) == [*lines, (1, "0")]
