"""A batch names its group, under which a table keeps its ends: in a consumer, and in a streaming query."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.spark.fakes import InThread, Job, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark import stream_batch
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.offsets import offset_of

pytestmark = pytest.mark.spark


def test_a_consumers_batch_names_its_group() -> None:
    world = World()
    world.given, world.ends = {TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 10}
    job = Job(world)
    running = InThread(lambda: world.consumer().run(job, max_batches=1))
    seen = job.await_begun(1)
    job.let_go()
    running.result()
    assert seen.group == "g"


class Checkpoint:
    """What Spark reads of a query's checkpoint."""

    def __init__(self, *offsets: Any) -> None:
        self.read, self._offsets = self, offsets

    def text(self, path: str, wholetext: bool) -> Checkpoint:
        return self

    def first(self) -> tuple[str]:
        return ("\n".join(["v1", "{}", *map(json.dumps, self._offsets)]),)


def test_a_querys_batch_names_its_group() -> None:
    planned = Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 10),))
    offset: dict[str, Any] = {**offset_of("5f", "etl", planned, {})}
    assert stream_batch(Checkpoint(offset), "/checkpoint", 0).group == "etl"  # type: ignore[arg-type]
    del offset["group"]  # as an earlier release has written it
    assert stream_batch(Checkpoint(offset), "/checkpoint", 0).group == ""  # type: ignore[arg-type]


def test_a_query_of_two_groups_or_none_has_no_batch() -> None:
    """One of them is not the ranges of the rows."""
    planned = Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 10),))
    first, second = ({**offset_of("5f", group, planned, {})} for group in ("a", "b"))
    for offsets, number in (((first, second), 2), ((), 0), (({"rate": 5},), 0)):
        with pytest.raises(UsageError, match=rf"offsets/0 tells of {number} sources of .*; exactly one is needed"):
            stream_batch(Checkpoint(*offsets), "/checkpoint", 0)  # type: ignore[arg-type]
