"""A batch of an earlier process is run again: it reads the same records, or the query's error says which are gone."""

from __future__ import annotations

import pytest

from tests.spark.fakes import World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.batches import batch_of
from zkcoord.spark.stream.data_source import StreamReader
from zkcoord.spark.stream.offsets import EMPTY, Offset, offset_of
from zkcoord.spark.stream.options import plan_of, stream_options
from zkcoord.spark.stream.source import Source

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}


def source_of(world: World, **options: str) -> Source:
    return Source(stream_options({**OPTIONS, **options}), world, "run")


def read(source: Source, start: Offset, end: Offset) -> list[str]:
    return [f"{each.partition} {each.start} {each.end}" for task in source.tasks(start, end) for each in task]


@pytest.mark.parametrize("ignored", [False, True])
def test_f83_a_batch_that_is_run_again_reads_nothing_of_another_topic_of_that_name(
    ignored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the bounds of the log were compared, so records of the new topic were read instead of the old topic's."""
    both = (OffsetRange("t", 0, 0, 4, incarnation=1), OffsetRange("t", 1, 0, 5))
    broken = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=both), {})
    world = World()
    world.starts, world.ends = {P0: 0, P1: 0}, {P0: 10, P1: 10}
    for number in (0, 1):  # not known, the same
        world.incarnation = number
        assert read(source_of(world), EMPTY, broken) == ["0 0 4", "1 0 5"]
    world.incarnation = 2
    source = source_of(world, **({"failOnDataLoss": "false"} if ignored else {}))
    text = "0 offsets are left of t-0-0-4, since the topic was deleted and created again"
    if not ignored:
        with pytest.raises(UsageError, match=f"cannot be read again as it was: {text}. Set .* failOnDataLoss=false"):
            read(source, EMPTY, broken)
        return
    assert read(source, EMPTY, broken) == ["1 0 5"]  # it was planned when the incarnation was not known
    assert text in caplog.text


def test_a_batch_that_is_run_again_is_read_whole_beside_an_open_transaction() -> None:
    """The batch's records exist, but for readers of committed records the log may end before them."""
    planned = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    world = World()
    world.starts, world.ends, world.high = {P0: 0}, {P0: 2}, {P0: 10}
    assert read(source_of(world, **{"kafka.isolation.level": "read_committed"}), EMPTY, planned) == ["0 0 4"]


def test_f224_a_batch_that_is_run_again_is_not_read_from_another_cluster_than_the_trees() -> None:
    broken = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    world = World()
    world.starts, world.ends, world.named = {P0: 0}, {P0: 10}, "mine"
    for told in ("mine", None):
        world.cluster_id = told
        assert read(source_of(world), EMPTY, broken) == ["0 0 4"]
    world.cluster_id, world.requests = "other", []
    with pytest.raises(UsageError, match=r"at k:1 are of the cluster 'other', the tree's topics of 'mine'"):
        read(source_of(world), EMPTY, broken)
    assert world.requests == []


def test_f224_kafka_is_asked_for_its_cluster_before_a_batch_is_run_again() -> None:
    """A client that has asked nothing knows no cluster."""

    class Asked(World):
        def partitions(self) -> tuple[TopicPartition, ...]:
            self.cluster_id = "other"
            return super().partitions()

    broken = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    world = Asked()
    world.starts, world.ends, world.named = {P0: 0}, {P0: 10}, "mine"
    with pytest.raises(UsageError, match="are of the cluster 'other', the tree's topics of 'mine'"):
        read(source_of(world), EMPTY, broken)


def test_f312_a_repeated_batchs_tasks_are_told_their_cluster_like_later_ones() -> None:
    planned = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    world = World()
    world.given, world.ends, world.cluster_id = {P0: 0}, {P0: 10}, "mine"
    for again in (True, False):
        reader, source = StreamReader(OPTIONS, plan_of(OPTIONS)), source_of(world)
        reader._source = source
        tasks = reader.partitions(EMPTY, planned if again else source.latest(None))
        source.stop()
        assert [task.cluster for task in tasks] == ["mine"]  # type: ignore[attr-defined]


def test_f345_a_batch_of_ranges_that_is_run_again_says_so() -> None:
    """It may have been processed before, by the process that planned it."""
    planned = offset_of("before", "g", Batch(id="", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 4),)), {})
    world, options = World(), {**OPTIONS, "rows": "ranges"}
    world.given, world.ends = {P0: 4}, {P0: 10}
    reader, source = StreamReader(options, plan_of(options)), source_of(world, rows="ranges")
    reader._source = source
    (again,) = reader.partitions(EMPTY, planned)
    (fresh,) = reader.partitions(planned, source.latest(None))
    source.stop()
    found = [batch_of(each.value["rows"], 0) for each in (again, fresh)]
    assert [(str(each.ranges[0]), each.replayed) for each in found] == [("t-0-0-4", True), ("t-0-4-10", False)]


def test_f322_a_range_whose_offset_was_set_back_is_another_batch_for_spark() -> None:
    world = World()
    world.given, world.ends = {P0: 0}, {P0: 10}
    source = source_of(world)
    first = source.latest(None)
    assert source.latest(first) is first
    assert world.member is not None
    world.member.lose(P0)
    world.member.give({P0: 0})
    again = source.latest(first)
    assert again != first
    assert read(source, first, again) == ["0 0 10"]
    source.stop()
