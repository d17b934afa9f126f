"""The two formats of the log, compared as whole lines."""

import io
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from zkcoord import logs
from zkcoord.clock import mono_ms
from zkcoord.core.model import Phase, TopicPartition

CLICKS = [TopicPartition("clicks", number) for number in range(20)]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log's stream. After the test, logging is restored."""
    root, ours = logging.getLogger(), logging.getLogger("zkcoord")
    handlers, level = list(root.handlers), ours.level
    yield io.StringIO()
    root.handlers[:] = handlers
    ours.setLevel(level)
    logging.captureWarnings(False)


def test_an_event_in_json_has_its_time_and_its_fields(stream: io.StringIO) -> None:
    logs.configure("json", logging.INFO, stream)
    before_ms = mono_ms()

    logs.emit(
        "fetch_stopped", group="g", partitions=CLICKS[:2], offsets={CLICKS[1]: 7}, lost={CLICKS[2]}, state=Phase.STABLE
    )

    line = json.loads(stream.getvalue())
    assert before_ms <= line.pop("mono_ms") <= mono_ms()
    assert abs(line.pop("time_ms") - time.time() * 1000) < 60_000
    assert line == {
        "event": "fetch_stopped",
        "group": "g",
        "partitions": ["clicks-0", "clicks-1"],
        "offsets": {"clicks-1": 7},
        "lost": ["clicks-2"],
        "state": "Stable",
    }


def test_the_callers_own_monotonic_time_counts(stream: io.StringIO) -> None:
    logs.configure("json", logging.INFO, stream)

    logs.emit_fields("lease_extended", {"mono_ms": 5, "lease_until_mono_ms": 9})

    line = json.loads(stream.getvalue())
    assert (line["mono_ms"], line["lease_until_mono_ms"]) == (5, 9)


@pytest.mark.parametrize(("level", "events"), [(logging.INFO, ["elected"]), (logging.DEBUG, ["fetched", "elected"])])
def test_fetched_is_an_event_of_the_debug_level(stream: io.StringIO, level: int, events: list[str]) -> None:
    logs.configure("json", level, stream)

    logs.emit("fetched", partition=CLICKS[0], first=1, last=2)
    logs.emit("elected", epoch=1)

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == events


def test_a_warning_says_its_level(stream: io.StringIO) -> None:
    logs.configure("json", logging.WARNING, stream)

    logs.emit("unreadable", path="/consumers/g", level="warning")
    logs.emit("elected")

    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line["event"], line["level"], line["path"]) == ("unreadable", "warning", "/consumers/g")


def test_other_loggers_and_tracebacks_stay_one_object_a_line(stream: io.StringIO) -> None:
    logs.configure("json", logging.INFO, stream)

    try:
        raise ValueError("no\nway")
    except ValueError:
        logging.getLogger("kazoo.client").warning("Connection %s", "dropped", exc_info=True)

    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line["event"], line["level"], line["logger"]) == ("log", "warning", "kazoo.client")
    assert line["message"] == "Connection dropped"
    assert "ValueError: no" in line["traceback"]


def test_a_line_for_people_spells_out_as_many_partitions_as_fit_into_200_characters(stream: io.StringIO) -> None:
    logs.configure("text", logging.INFO, stream)
    topic, consumer = "a-topic-with-a-rather-long-name", "etl_host-with-a-name-1795229172529-931c1cca"
    partitions = [TopicPartition(topic, n) for n in range(100)]

    logs.emit("start_sent", group="etl", why="it is free", consumer=consumer, partitions=partitions)
    logs.emit("quarantined", level="warning", group="etl", partitions=partitions[:2])
    logs.emit("start_sent", group="g", partitions=CLICKS[:12])

    cut, whole, small = stream.getvalue().splitlines()
    assert cut.endswith(f"partitions={topic}-0,… (100 in all)")
    assert whole.endswith(f"partitions={topic}-0,{topic}-1")
    assert small.endswith("partitions=" + ",".join(f"clicks-{n}" for n in range(12)))
    assert max(map(len, (cut, whole, small))) < 200


def test_a_text_that_is_too_long_loses_its_middle_for_people_and_is_whole_for_programs(stream: io.StringIO) -> None:
    why = f"the node is no JSON: {'x' * 300}: its creator must mend it"
    for log_format in logs.FORMATS:
        logs.configure(log_format, logging.INFO, stream)
        logs.emit("unreadable", path="/consumers/groups/etl/ids/a", why=why, partitions=CLICKS, level="notice")

    people, programs = stream.getvalue().splitlines()
    assert re.search(
        r'path=/consumers/groups/etl/ids/a why="the node is no JSON: x+…x+: its creator must mend it"', people
    )
    assert "partitions=clicks-0,… (20 in all)" in people and 170 < len(people) < 200
    assert json.loads(programs)["why"] == why


def test_a_warning_says_whole_why_and_what_to_do_however_long_the_rest_of_it_is(stream: io.StringIO) -> None:
    logs.configure("text", logging.INFO, stream)
    why = f"Kafka at {'broker.example:9092,' * 10} cannot be reached: check that it runs, then try again"

    logs.emit("start_refused", consumer="g" * 249, partitions=CLICKS, why=why, level="warning")
    logs.emit("unreadable", path="/a", why="x" * 1_000, level="warning")

    refused, unreadable = stream.getvalue().splitlines()
    assert f'why="{why}"' in refused and len(refused) < 200 + len(why) + 2
    assert len(unreadable) < 200 + logs.WHY_MAX


def test_no_field_and_no_number_of_fields_makes_a_line_of_200_characters(stream: io.StringIO) -> None:
    logs.configure("text", logging.INFO, stream)
    long = {"consumer": "g" * 249, "path": "/a" * 500, "why": 'say "no"\n' * 100, "offsets": {CLICKS[0]: "y" * 400}}

    logs.emit("unreadable", **long, level="notice")
    logs.emit("write_refused", **{f"field{n}": "z z" * 30 for n in range(40)}, level="error")

    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and max(map(len, lines)) < 200 and all("…" in line for line in lines)
    assert all(f" {key}=" in lines[0] for key in long)


def test_an_event_as_text_is_one_line_for_people(stream: io.StringIO) -> None:
    logs.configure("text", logging.INFO, stream)

    logs.emit("start_sent", group="g", partitions=CLICKS, offsets={CLICKS[0]: 7}, why="two\nlines", gone=None)
    logs.emit("unreadable", path="/a", level="warning")

    first, second = stream.getvalue().splitlines()
    shown = ",".join(f"clicks-{n}" for n in range(6))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} start_sent .*", first)
    assert first[24:] == (f'start_sent group=g partitions={shown},… (20 in all) offsets=clicks-0:7 why="two\\nlines"')
    assert second[24:] == "WARNING: unreadable path=/a"


def test_a_warning_tells_its_fields_where_nobody_set_logging_up() -> None:
    program = (
        "from zkcoord import logs\n"
        "logs.emit('unreadable', path='/a', why='no JSON', group=None, level='warning')\n"
        "logs.emit('unreadable', path='/a', why='x' * 300, level='warning')\n"
        "logs.emit('elected', epoch=1)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr == f'unreadable path=/a why="no JSON"\nunreadable path=/a why={"x" * 300}\n'


def test_configuring_twice_logs_once(stream: io.StringIO) -> None:
    logs.configure("text", logging.INFO, stream)
    logs.configure("json", logging.INFO, stream)

    logs.emit("elected")

    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize(("value", "told"), [(1.5, 1.5), (0.0, 0.0), (float("nan"), "nan"), (float("inf"), "inf")])
def test_a_rate_is_a_number_for_programs_and_what_json_does_not_have_is_text(value: float, told: object) -> None:
    assert logs.plain({"rate": value}) == {"rate": told}
