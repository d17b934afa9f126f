"""What `zkcoord consume` says on a terminal while there is no record."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cli.test_consume import Batches, Record, printing
from zkcoord.cli.standing import QUIET_MS, Standing
from zkcoord.core.model import TopicPartition

P = [TopicPartition("t", n) for n in range(8)]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([((), 0), ((), QUIET_MS - 1)], []),
        ([((), QUIET_MS), ((), 9 * QUIET_MS)], ["no partition: c is registered"]),
        ([(P[:2], 1), (P[:2], QUIET_MS)], ["reads t-0, t-1"]),
        ([(P[:2], 1), (P[:2], QUIET_MS + 1), (P[:2], 9 * QUIET_MS)], ["reads t-0, t-1", "no record yet"]),
        ([(P[:2], 1), (P, 2)], ["reads t-0, t-1", "reads t-0, t-1, t-2, t-3, t-4 and 3 more"]),
        ([(P[:1], 1), ((), 2), ((), QUIET_MS + 2)], ["reads t-0", "reads nothing now", "no partition: c is"]),
    ],
)
def test_each_change_is_told_and_once_that_nothing_comes(looks: Sequence[Any], told: Sequence[str]) -> None:
    said: list[str] = []
    standing = Standing(said.append, 0)
    for held, now_ms in looks:
        standing.look(held, "c", now_ms, printed=False)
    assert [text[: len(start)] for text, start in zip(said, told, strict=True)] == list(told)


def test_where_records_come_it_says_only_what_is_read() -> None:
    said: list[str] = []
    standing = Standing(said.append, 0)
    for now_ms in range(0, 5 * QUIET_MS, 100):
        standing.look(P[:1], "c", now_ms, printed=now_ms == 200)
    assert said == ["reads t-0"]


def test_consume_tells_it_if_it_was_given_somebody_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    printing(Batches([Record(0)]), tell=said.append, max_messages=1).run(threading.Event())
    assert said != []
    assert said[0].startswith("reads ")
