"""Kafka's host names lead to another cluster while a consumer runs. Nothing of that cluster is committed, and it moves
no position."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from tests.kafka.two_clusters import TwoClusters, two_clusters
from tests.spark.fakes import FakeReader, InThread, Job, World
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark.driver import cluster_watch
from zkcoord.spark.driver.cluster_watch import ClusterWatch
from zkcoord.spark.ports import Limits
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.readers import kept_clients
from zkcoord.spark.readers.python import ELSEWHERE, SILENT, Client, Slice, read_slices

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = UsageError("Kafka at h:1 is another cluster now")
ANEW_MS = Limits().anew_ms
AWAY = UnavailableError("Kafka at h:1 did not tell its cluster's id")


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_f312_a_batch_that_may_be_another_clusters_is_not_committed(world: World) -> None:
    world.while_confirming = [raising(OTHER)]
    seen = list[Batch]()
    with pytest.raises(UsageError, match="is another cluster now"):
        world.consumer().run(lambda _, batch: seen.append(batch))
    assert (len(seen), world.commits) == (1, [])
    assert world.final == {A: 0, B: 100}


def test_f328_a_commit_without_an_answer_stays_unknown_when_kafka_turns_out_to_be_another_cluster(world: World) -> None:
    world.before_commit = [raising(UnavailableError("no answer"))]
    world.while_confirming = [lambda: None, raising(OTHER)]
    with pytest.raises(UsageError, match="is another cluster now"):
        world.consumer().run(lambda *_: None)
    assert world.final == {}  # the offsets before it might set back what was committed


def test_f312_a_batch_is_committed_when_kafka_tells_that_it_is_the_same_cluster(world: World) -> None:
    world.while_confirming = [raising(AWAY), raising(AWAY)]
    assert world.consumer().run(lambda *_: None, max_batches=1) == 1
    assert (world.looked.count("confirm"), world.commits) == (3, [{A: 10, B: 130}])


def test_f312_a_leaving_consumer_does_not_wait_for_a_silent_kafkas_cluster(world: World) -> None:
    job = Job(world)
    consumer = world.consumer()
    world.while_confirming = [raising(AWAY)] * 100
    running = InThread(lambda: consumer.run(job))
    job.await_begun(1)
    consumer.stop()
    job.let_go()
    assert running.result() == 0
    assert (world.commits, world.looked.count("confirm")) == ([], 1)


def test_f312_spark_s_connector_is_looked_after_through_new_connections_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0]
    monkeypatch.setattr(cluster_watch, "mono_ms", lambda: clock[0])
    watch = ClusterWatch(world, ANEW_MS, now_ms=lambda: clock[0])
    for clock[0] in (0, ANEW_MS - 1, ANEW_MS, ANEW_MS + 1, 2 * ANEW_MS - 1):
        watch.confirm([OffsetRange("t", 0, clock[0], clock[0] + 1)])
    assert world.looked == ["confirm", "anew", "confirm", "confirm", "anew", "confirm", "confirm"]
    world.while_looking = [raising(AWAY), raising(OTHER)]
    for clock[0] in (2 * ANEW_MS, 3 * ANEW_MS - 1):
        watch.confirm([OffsetRange("t", 0, clock[0], clock[0] + 1)])
    clock[0] = 3 * ANEW_MS
    with pytest.raises(UsageError) as told:
        watch.confirm([OffsetRange("t", 0, 77_777, 77_778), OffsetRange("t", 1, 5, 6)])
    assert str(told.value).endswith(f"may be committed already: t-0 from {ANEW_MS + 1}; reset the group there")


def test_f312_a_first_look_that_finds_another_cluster_names_no_offset(world: World) -> None:
    watch = ClusterWatch(world, ANEW_MS)
    world.while_looking = [raising(OTHER)]
    with pytest.raises(UsageError) as told:
        watch.confirm([OffsetRange("t", 0, 3, 4)])
    assert str(told.value) == str(OTHER)


def test_f312_only_spark_s_connector_needs_new_connections(world: World) -> None:
    for reader, looks in (("kafka", ["confirm", "anew"]), ("python", ["confirm"])):
        world.looked, world.ends = [], {A: 10, B: 130}
        world.consumer(reader=reader).run(lambda *_: None, max_batches=1)
        assert world.looked == looks
        world.joined.clear()


def test_f312_a_task_that_found_another_cluster_ends_the_consumer_with_what_to_correct(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeReader, "elsewhere", lambda _, error: "correct it" if ELSEWHERE in str(error) else None)

    def process(*_: Any) -> None:
        raise RuntimeError(f"Job aborted: {ELSEWHERE}: 'b'")

    with pytest.raises(UsageError, match="correct it"):
        world.consumer().run(process)
    assert world.commits == []


# the reading of one task


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoClusters]:
    monkeypatch.delitem(sys.modules, kept_clients.MODULE, raising=False)
    with two_clusters((5_000, 9_000)) as found:
        yield found


def batches(both: TwoClusters, start: int, end: int, cluster: str | None, *, keep: bool = False) -> Iterator[list[str]]:
    settings = {"bootstrap.servers": both.servers, "group.id": "g"}
    wanted = [Slice(both.topic, 0, start, end)]
    for each in read_slices(settings, wanted, timeout_ms=10_000, keep=keep, cluster=cluster):
        yield [value.decode() for value in each.to_pydict()["value"]]


def cluster_of(both: TwoClusters, to: int) -> str:
    from confluent_kafka.admin import AdminClient

    return str(AdminClient({"bootstrap.servers": both.address(to)}).list_topics(timeout=20).cluster_id)


@pytest.mark.parametrize("keep", [False, True])
def test_f312_a_task_returns_nothing_of_another_cluster(both: TwoClusters, keep: bool) -> None:
    first = cluster_of(both, 0)
    assert [len(each) for each in batches(both, 0, 10, first, keep=keep)] == [10]
    both.way.lead(1)
    with pytest.raises(RuntimeError, match=ELSEWHERE):
        list(batches(both, 10, 20, first, keep=keep))
    both.way.lead(0)
    assert list(batches(both, 10, 12, first, keep=keep)) == [["0-10", "0-11"]]
    both.way.lead(1)
    assert list(batches(both, 10, 12, None, keep=keep)) == [["1-10", "1-11"]]


def test_f312_a_task_does_not_read_through_a_kept_client_of_another_cluster(
    both: TwoClusters,
) -> None:
    first, second = cluster_of(both, 0), cluster_of(both, 1)
    assert list(batches(both, 0, 2, first, keep=True)) == [["0-0", "0-1"]]
    both.way.lead(1, cut=False)
    assert list(batches(both, 0, 2, second, keep=True)) == [["1-0", "1-1"]]


def test_f312_a_task_returns_nothing_of_a_cluster_that_takes_the_brokers_place_while_it_reads(
    both: TwoClusters,
) -> None:
    first, found = cluster_of(both, 0), list[str]()
    with pytest.raises(RuntimeError, match=f"{ELSEWHERE}|{SILENT}"):
        for each in batches(both, 0, 9_000, first):
            found += each
            both.way.lead(1)
    assert found
    assert found == [f"0-{number}" for number in range(len(found))]


def test_f312_a_task_asks_for_the_cluster_once(both: TwoClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the task's own requests count. librdkafka also asks for metadata by itself, at any time."""
    first, asked = cluster_of(both, 0), list[str]()

    class Asking(confluent_kafka.Consumer):
        def list_topics(self, topic: str, timeout: float) -> Any:
            asked.append(topic)
            return super().list_topics(topic, timeout=timeout)

    monkeypatch.setattr(confluent_kafka, "Consumer", Asking)
    assert sum(map(len, batches(both, 0, 5_000, None))) == 5_000
    assert asked == []
    assert sum(map(len, batches(both, 0, 5_000, first))) == 5_000
    assert asked == [both.topic]


@pytest.mark.parametrize("line", ["FAIL [c]: gone", "CLUSTERID [c]: another", "CONNECT [c]: there"])
def test_f312_a_tasks_client_asks_again_after_an_ended_connection_and_accepts_no_id(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    class Told:
        cluster_id = None

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def list_topics(self, topic: str, timeout: float) -> Told:
            asked.append(topic)
            return self

    monkeypatch.setattr(confluent_kafka, "Consumer", Told)
    client = Client({})
    for _ in range(2):
        client.check("a", "t", 100)
    assert asked == ["t"]
    client.log(6, line)
    client.check("a", "t", 100)
    assert len(asked) == (1 if line.startswith("CONNECT") else 2)
