"""The streaming source's own logic: offsets, options, the hand-over between the loop and Spark. Nothing is real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.fakes import FakeMembership, InThread, World
from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError, UsageError
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.offsets import EMPTY, Offset, offset_of, ranges_in, to_read
from zkcoord.spark.stream.options import stream_options
from zkcoord.spark.stream.source import Source

DEADLINE_MS = 120_000  # only what fails takes so long
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"zookeeper": "zk", "kafka.bootstrap.servers": "k:1", "group": "g", "subscribe": "t"}


def ranges(*texts: str) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", *map(int, text.split())) for text in texts)


def offset(run: str, *texts: str, group: str = "g") -> Offset:
    return offset_of(run, group, Batch(id="", seq=0, generation=7, ranges=ranges(*texts)), {})


def test_an_offset_holds_its_ranges_whole() -> None:
    batch = Batch(id="", seq=0, generation=7, ranges=ranges("0 100 600", "1 0 5"), replayed=True)
    made = offset_of("5f", "g", batch, {P0: 950})
    assert made == {
        "version": 1,
        "run": "5f",
        "batch": 0,
        "group": "g",
        "generation": 7,
        "replayed": True,
        "ranges": {"t": {"0": {"lo": 100, "hi": 600, "end": 950}, "1": {"lo": 0, "hi": 5, "end": 5}}},
    }
    assert ranges_in(made) == ranges("0 100 600", "1 0 5")


@pytest.mark.parametrize(
    "written",
    [
        {"clicks": {"0": 5}},
        {**EMPTY, "version": 2},
        [],
        None,
        {"version": 1, "ranges": {}},
        {**EMPTY, "ranges": {"t": {"x": 1}}},
    ],
)
def test_an_offset_of_another_source_is_refused(written: Any) -> None:
    with pytest.raises(UsageError, match="checkpointLocation of its own"):
        ranges_in(written)


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        (EMPTY, offset("a", "0 0 9"), ranges("0 0 9")),
        (offset("a", "0 0 9"), offset("a", "0 9 12"), ranges("0 9 12")),
        (offset("a", "0 0 9"), offset("a", "0 0 9"), ()),  # nothing new
        (offset("a", "0 0 9"), offset("a", "0 0 12"), ranges("0 0 12")),  # the offset was set back
        (offset("a", "0 0 9", "1 4 5"), offset("b", "0 9 12", "1 3 9"), ranges("0 9 12", "1 3 9")),
    ],
)
def test_two_offsets_alone_determine_a_batchs_reads(start: Offset, end: Offset, read: tuple[OffsetRange, ...]) -> None:
    assert to_read(start, end) == read


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.given, made.ends = {P0: 0, P1: 0}, {P0: 10, P1: 5}
    yield made


@pytest.fixture
def source(world: World) -> Iterator[Source]:
    made = source_of(world)
    yield made
    made.stop()


def source_of(world: World, **options: str) -> Source:
    return Source(stream_options({**OPTIONS, **options}), world, "run")


def await_thread(name: str) -> None:
    """Wait until a thread of this name runs."""
    deadline = mono_ms() + DEADLINE_MS
    while not any(each.name.startswith(name) for each in threading.enumerate()):
        assert mono_ms() < deadline
        threading.Event().wait(0.001)


def raised(error: Exception) -> None:
    raise error


def read(source: Source, start: Offset, end: Offset) -> list[str]:
    """Ask for a batch's partitions as Spark does; return the rows."""
    return [f"{each.partition} {each.start} {each.end}" for task in source.tasks(start, end) for each in task]


def test_the_next_question_commits_the_batch_and_returns_the_same_offset_without_news(
    world: World, source: Source
) -> None:
    first = source.latest(None)
    assert read(source, EMPTY, first) == ["0 0 10", "1 0 5"]
    assert world.commits == []
    world.ends[P0] = 12
    second = source.latest(first)
    assert world.commits == [{P0: 10, P1: 5}]
    assert read(source, first, second) == ["0 10 12"]
    assert source.latest(second) is second
    assert source.latest(second) is second
    assert world.commits == [{P0: 10, P1: 5}, {P0: 12}]
    assert source.log_ends() == {"t": {"0": 12, "1": 5}}


def test_a_stop_between_two_batches_is_obeyed_at_once(world: World, source: Source) -> None:
    last = source.latest(None)
    assert source.latest(last) is last
    world.ends = {P0: 20, P1: 20}  # these ends are not asked for, since nothing is planned
    assert world.member is not None
    assert world.member.take(P0) == {P0: 10}
    assert ranges_in(source.latest(last)) == ranges("1 5 20")


def test_a_stop_during_a_batch_waits_until_spark_asks_again(world: World, source: Source) -> None:
    last = source.latest(None)
    member = world.member
    assert member is not None
    stopping = InThread(lambda: member.take(P0))
    assert not stopping.done
    assert source.latest(last) is last
    assert stopping.result() == {P0: 10}
    assert world.commits == [{P0: 10, P1: 5}]


def test_a_batch_whose_partition_is_lost_is_not_committed(world: World, source: Source) -> None:
    last = source.latest(None)
    member = world.member
    assert member is not None
    losing = InThread(lambda: member.lose(P0))
    await_thread("cancel-zkcoord")  # the stop was noticed; a batch that Spark runs cannot be cancelled
    assert ranges_in(source.latest(last)) == ranges("1 0 5")
    losing.result()
    assert world.commits == []


def test_a_query_without_partitions_waits_for_the_first_ones_as_long_as_it_was_told(world: World) -> None:
    given, world.given = world.given, {}
    waiting, hasty = source_of(world, joinWaitMs=str(DEADLINE_MS)), source_of(World(), joinWaitMs="1")
    assert hasty.latest(EMPTY) is EMPTY
    asking = InThread(lambda: waiting.latest(EMPTY))
    assert world.joined.wait(DEADLINE_MS / 1000)
    assert world.member is not None
    world.member.give(given)
    assert ranges_in(asking.result()) == ranges("0 0 10", "1 0 5")
    hasty.stop()
    waiting.stop()


def test_a_query_that_is_given_nothing_says_so_and_one_that_cannot_join_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(World(), joinWaitMs="1")
    world.limits = Limits(member_wait_ms=50)
    assert source.latest(EMPTY) is EMPTY
    source.stop()
    assert "g_here-1-aa is registered: a coordinator must serve, a topic must exist" in caplog.text
    monkeypatch.setattr(FakeMembership, "consumer_id", None)
    alone = source_of(world)
    with pytest.raises(UnavailableError, match="it is not registered: ZooKeeper must answer"):
        alone.latest(EMPTY)
    alone.stop()
    away = World()
    away.away, away.limits = True, Limits(member_wait_ms=50)
    unheard = source_of(away, joinWaitMs="1")
    with pytest.raises(UnavailableError, match="Kafka does not answer"):
        unheard.latest(EMPTY)
    assert (world.commits, away.events) == ([], [])


def test_stopping_in_the_middle_of_a_batch_commits_nothing_of_it(world: World) -> None:
    source = source_of(world)
    source.latest(None)
    source.stop()
    assert world.commits == []
    assert world.final == {P0: 0, P1: 0}
    assert world.events == ["join", "leave"]


def test_stopping_while_a_batch_is_planned_leaves_at_once(world: World) -> None:
    source = source_of(world)

    def stop_while_planning() -> None:
        stopping.append(InThread(source.stop))
        assert source._consumer is not None
        guard, deadline = source._consumer._guard, mono_ms() + DEADLINE_MS
        while guard is None or not guard.view().leaving:
            assert mono_ms() < deadline
            threading.Event().wait(0.001)

    stopping: list[InThread] = []
    world.while_planning = [stop_while_planning]
    with pytest.raises(UnavailableError, match="the group was left"):
        source.latest(None)
    stopping[0].result()
    assert world.announced == []
    assert world.events == ["join", "leave"]


def test_a_restarted_query_skips_its_checkpoints_ranges_if_nobody_read_on(world: World) -> None:
    world.given = {P0: 0, P1: 3}
    before = offset("before", "0 0 4", "1 0 4")
    source = source_of(world)
    assert read(source, before, before) == []  # Spark gives the offset of the query's last batch
    found = source.latest(None)
    assert ranges_in(found) == ranges("0 4 10", "1 3 5")
    assert world.commits == [{P0: 4}]
    assert read(source, before, found) == ["0 4 10", "1 3 5"]
    source.stop()
    assert world.final == {P0: 4, P1: 3}


def test_a_checkpoints_ranges_are_committed_though_one_partition_was_just_lost(world: World) -> None:
    def lose() -> None:
        assert world.member is not None
        world.member.lose(P0)
        raise FencedError("not held by this consumer any more: t-0")

    world.before_commit = [lose, lambda: raised(FencedError("not held by this consumer any more: t-0"))]
    before = offset("before", "0 0 4", "1 0 4")
    source = source_of(world)
    assert read(source, before, before) == []
    assert ranges_in(source.latest(None)) == ranges("1 4 5")
    source.stop()
    assert world.commits == [{P1: 4}]
    assert world.announced == [{"t-1": (4, 5)}]
    assert world.final == {P1: 4}


def test_a_checkpoint_of_another_group_is_refused(world: World) -> None:
    foreign = offset("before", "0 0 4", group="h")
    source = source_of(world)
    told = r"that of a query of group 'h', and this one is of 'g'.*checkpointLocation of its own"
    for start, end in ((foreign, foreign), (EMPTY, foreign)):
        with pytest.raises(UsageError, match=told):
            source.tasks(start, end)
    with pytest.raises(UsageError, match=told):
        source.latest(foreign)
    assert world.events == []
    unnamed = {key: value for key, value in offset("before", "0 0 4").items() if key != "group"}
    assert read(source, EMPTY, unnamed) == ["0 0 4"]


def test_a_batch_is_run_again_as_it_was_whoever_owns_its_partitions_now(world: World) -> None:
    world.given = {P1: 0}
    world.ends = {P0: 10, P1: 5}
    source = source_of(world)
    broken = offset("before", "0 0 4", "1 0 4")
    assert read(source, broken, broken) == []
    assert read(source, EMPTY, broken) == ["0 0 4", "1 0 4"]
    assert ranges_in(source.latest(None)) == ranges("1 4 5")
    source.stop()
    assert world.final == {P1: 4}


def test_a_partition_that_comes_back_before_its_range_is_committed_is_read_as_announced(
    world: World,
) -> None:
    def lose_and_give_back() -> None:
        assert world.member is not None
        world.member.lose(P0)
        world.member.give({P0: 0})
        raise FencedError("decided before these were started again: t-0")

    world.given = {P0: 0}
    world.before_commit = [lose_and_give_back]
    before = offset("before", "0 0 4")
    source = source_of(world)
    assert read(source, before, before) == []
    found = source.latest(None)
    assert ranges_in(found) == ranges("0 4 10")
    assert read(source, before, found) == ["0 4 10"]
    assert world.announced == [{"t-0": (4, 10)}]
    source.stop()
    assert world.final == {P0: 4}


def test_a_complete_range_is_not_committed_behind_a_batch_that_went_on_from_it(world: World) -> None:
    away = UnavailableError("ZooKeeper did not answer the commit")
    world.given = {P0: 0}
    world.before_commit = [lambda: raised(away)]
    before = offset("before", "0 0 4")
    source = source_of(world, announce="false")
    assert read(source, before, before) == []
    first = source.latest(None)
    assert ranges_in(first) == ranges("0 4 10")
    assert source.latest(first) is first
    source.stop()
    assert world.commits == [{P0: 10}]
    assert world.final == {P0: 10}


@pytest.mark.parametrize("start", [offset("before", "0 0 4"), offset("long before", "0 0 1")])
def test_a_batch_that_was_planned_before_the_checkpoint_was_known_is_refused(world: World, start: Offset) -> None:
    source = source_of(world)
    found = source.latest(None)  # as Spark before 4.2 begins when it wraps sources for availableNow
    before = offset("before", "0 0 4")
    for end in (before, found):
        with pytest.raises(UsageError, match=r"triggerAvailableNowWrapper\.enabled=false"):
            source.tasks(start, end)
    source.stop()
    assert world.commits == []


def test_a_query_that_shall_end_reads_what_is_there_and_no_more(world: World) -> None:
    source = source_of(world, maxOffsetsPerTrigger="8")
    source.end_at_present()
    last = source.latest(EMPTY)
    read_by_now = list(ranges_in(last))
    while (found := source.latest(last)) is not last:
        world.ends = {P0: 100, P1: 100}
        read_by_now, last = [*read_by_now, *ranges_in(found)], found
        assert len(read_by_now) < 10
    assert {each.topic_partition for each in read_by_now} == {P0, P1}
    assert sum(each.end - each.start for each in read_by_now) in range(15, 25)
    source.stop()


def test_the_memberships_end_ends_the_query(world: World) -> None:
    source = source_of(world)
    world.given = {P0: 7}
    world.starts = {P0: 9}
    with pytest.raises(UsageError, match="lies before the log's start"):
        source.latest(None)
    source.stop()
    assert world.final == {P0: 7}


def test_large_ranges_are_split_over_tasks(world: World) -> None:
    source = source_of(world, maxRecordsPerPartition="4")
    assert read(source, EMPTY, source.latest(None)) == ["0 0 3", "0 3 6", "0 6 10", "1 0 2", "1 2 5"]
    source.stop()


def test_small_ranges_share_tasks(world: World) -> None:
    source = source_of(world, minRecordsPerPartition="11")
    tasks = source.tasks(EMPTY, source.latest(None))
    assert [[str(each) for each in task] for task in tasks] == [["t-0-0-10", "t-1-0-5"]]
    source.stop()


def test_options_are_those_of_sparks_own_source_and_the_consumers() -> None:
    found = stream_options(
        {
            "ZooKeeper": "zk:1",
            "kafka.bootstrap.servers": "k:1",
            "kafka.group.id": "g",
            "subscribepattern": "t.*",
            "startingTimestamp": "1000",
            "failOnDataLoss": "false",
            "includeHeaders": "TRUE",
            "maxOffsetsPerTrigger": "5",
            "kafka.security.protocol": "SSL",
            "kafka.request.timeout.ms": "900",
            "librdkafka.socket.keepalive.enable": "true",
            "assignors": "range, sticky",
        }
    )
    chosen = found.options
    assert (found.zookeeper, found.group, found.topics, chosen.include) == ("zk:1", "g", (), "t.*")
    assert (chosen.out_of_range, chosen.include_headers, chosen.max_offsets_per_batch) == ("earliest", True, 5)
    assert chosen.starts().of("t") == 1000
    assert chosen.assignors == ("range", "sticky")
    assert chosen.kafka().librdkafka == {
        "isolation.level": "read_uncommitted",
        "security.protocol": "ssl",
        "socket.keepalive.enable": "true",
        "socket.timeout.ms": "900",
    }
