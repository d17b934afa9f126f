"""`zkcoord consume` while Kafka cannot be reached: no record is not the end of the records."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from tests.cli.test_consume import Batches, Record, printing
from zkcoord.errors import UnavailableError


def test_f64_nothing_to_print_while_kafka_is_away_is_not_the_end_of_the_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was exit code 0, with "0 messages"."""
    clock = count(300, 300)  # goes on whenever it is looked at
    monkeypatch.setattr("zkcoord.cli.consume.mono_ms", lambda: next(clock))
    consumer = Batches([Record(0)])
    consumer.unreachable = UnavailableError("Kafka at h:1 cannot be reached")

    with pytest.raises(UnavailableError, match="cannot be reached"):
        printing(consumer).run(threading.Event())

    assert consumer.commits == 3  # at 1.5 and 2.7 s, and at the end: what was printed is not to come again


@pytest.mark.parametrize("printed", [0, 1])
def test_f64_a_stop_is_a_failure_only_if_kafka_was_away_all_the_time(
    printed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer, asked = Batches(), threading.Event()
    consumer.away = UnavailableError("Kafka at h:1 cannot be reached")
    loop = printing(consumer)
    loop.printed = printed
    asked.set()

    if printed:
        loop.run(asked)
    else:
        with pytest.raises(UnavailableError, match="cannot be reached"):
            loop.run(asked)
