"""Kafka clients that Python workers keep read the same as new clients would, in spite of events between two tasks."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark import cloudpickle

from tests.spark.conftest import Topic
from tests.spark.fakes import World
from tests.spark.played import consumer_of
from tests.spark.test_real_readers import transactions
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, ROOT
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.spark import Batch
from zkcoord.spark.readers.python import SILENT, Slice, read_slices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = ON_REAL_SERVERS
SEED, TURNS = 7, 150


@pytest.fixture
def world() -> World:
    return World()


def read(topic: Topic, *slices: tuple[int, int, int], timeout_ms: int = 120_000, **settings: str) -> list[Any]:
    """Read these slices (partition, start, end) as a task does; return partition, offset and time of each record."""
    chosen = {"bootstrap.servers": topic.bootstrap_servers, "group.id": "kept", **settings}
    wanted = [Slice(topic.name, *each) for each in slices]
    batches = read_slices(chosen, wanted, timeout_ms=timeout_ms, keep=True)
    return [(row["partition"], row["offset"], row["timestamp"]) for each in batches for row in each.to_pylist()]


def offsets(found: list[Any]) -> list[tuple[int, int]]:
    return [row[:2] for row in found]


def test_one_client_reads_any_slices_one_task_after_the_other(
    make_topic: Callable[[int], Topic], own_clients: list[Any]
) -> None:
    """The slices go forward and back, alone and together, up to the logs' ends, and over gaps at an end."""
    topic = make_topic(3)
    topic.fill(0, 3_000)
    topic.fill(1, 40)
    transactions(topic)
    ends, hidden = (3_018, 40, 0), {3_005, *range(3_006, 3_012), 3_017}
    records = {(number, at) for number, end in enumerate(ends) for at in range(end)} - {(0, at) for at in hidden}
    drawn = random.Random(SEED)
    for turn in range(TURNS):
        numbers = drawn.sample(range(3), k=drawn.choice([1, 1, 2, 3]))
        slices = [(number, *sorted(drawn.choices(range(ends[number] + 1), k=2))) for number in numbers]
        expected = sorted(each for n, low, high in slices for each in records if each[0] == n and low <= each[1] < high)
        found = offsets(read(topic, *slices, **{"isolation.level": "read_committed"}))
        assert sorted(found) == expected, (turn, slices)
        assert sorted(found, key=lambda row: row[0]) == expected, f"the order in a partition: {(turn, slices)}"
    assert len(own_clients) == 2, "one for ranges of at most 2,047 offsets, one for longer ones"


def test_another_configuration_has_a_client_of_its_own(
    make_topic: Callable[[int], Topic], own_clients: list[Any]
) -> None:
    """A kept client would go on reading only committed records."""
    topic = make_topic(1)
    transactions(topic)
    sees = {
        "read_committed": [*range(5), *range(12, 17)],
        "read_uncommitted": [*range(5), *range(6, 11), *range(12, 17)],
    }
    for _ in range(2):
        for level, expected in sees.items():
            assert [at for _, at in offsets(read(topic, (0, 0, 18), **{"isolation.level": level}))] == expected
    assert len(own_clients) == len(sees)


def test_f255_a_broker_that_died_between_two_batches_is_read_again_as_soon_as_it_is_back(
    own_kafka: KafkaBroker, own_clients: list[Any]
) -> None:
    topic = Topic(own_kafka, 1)
    topic.fill(0, 30)
    assert len(read(topic, (0, 0, 10))) == 10
    own_kafka.kill()
    own_kafka.start()
    assert offsets(read(topic, (0, 10, 20))) == [(0, at) for at in range(10, 20)]
    own_kafka.kill()
    with pytest.raises(RuntimeError, match=SILENT):
        read(topic, (0, 20, 30), timeout_ms=100)
    own_kafka.start()
    assert offsets(read(topic, (0, 20, 30))) == [(0, at) for at in range(20, 30)]


def test_f255_a_broker_that_hangs_makes_the_task_fail_as_with_a_new_client(
    own_kafka: KafkaBroker, own_clients: list[Any]
) -> None:
    topic = Topic(own_kafka, 1)
    topic.fill(0, 30)
    read(topic, (0, 0, 10))
    own_kafka.pause()
    try:
        with pytest.raises(RuntimeError, match=SILENT):
            read(topic, (0, 10, 20), timeout_ms=100)
    finally:
        own_kafka.resume()
    assert len(own_clients) == 2
    assert offsets(read(topic, (0, 10, 20))) == [(0, at) for at in range(10, 20)]
    assert len(own_clients) == 3, "neither the kept one nor the new one was used again"


def made_anew(topic: Topic) -> bool:
    """Create the topic again; False while the broker still deletes the earlier one."""
    try:
        topic.create()
    except confluent_kafka.KafkaException as error:
        assert error.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        return False
    return True


@pytest.mark.kafka4
def test_f256_a_topic_that_was_made_anew_between_two_batches_is_read_as_it_is_now(
    own_kafka: KafkaBroker, own_clients: list[Any]
) -> None:
    topic = Topic(own_kafka, 1)
    old, new = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    topic.fill(0, 20, times=[old] * 20)
    own_kafka.kill()  # so that the topic's leader epoch is higher than the new topic's will be
    own_kafka.start()
    assert read(topic, (0, 0, 20)) == [(0, at, old) for at in range(20)]
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap_servers, "log_level": 5})
    admin.delete_topics([topic.name])[topic.name].result(DEADLINE_S)
    wait_until(lambda: topic.name not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic is gone")
    wait_until(lambda: made_anew(topic), "the topic is there again")
    topic.fill(0, 8, times=[new] * 8)
    assert read(topic, (0, 0, 5)) == [(0, at, new) for at in range(5)]
    assert read(topic, (0, 5, 8)) == [(0, at, new) for at in range(5, 8)]
    with pytest.raises(RuntimeError, match=f"{topic.name}-0 cannot be read at 15"):
        read(topic, (0, 15, 20))


FORKED = """
import os, sys
from zkcoord.spark.readers.python import Slice, read_slices

def read(low):
    settings = {"bootstrap.servers": sys.argv[1], "group.id": "forked"}
    batches = read_slices(settings, [Slice(sys.argv[2], 0, low, low + 10)], keep=True)
    return [row["offset"] for each in batches for row in each.to_pylist()] == [*range(low, low + 10)]

assert read(0)
child = os.fork()
if child == 0:
    os._exit(0 if read(10) and read(0) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert read(10)
print("both read", flush=True)
"""


def test_f258_a_process_that_was_forked_from_a_worker_reads_with_clients_of_its_own(
    make_topic: Callable[[int], Topic],
) -> None:
    topic = make_topic(1)
    topic.fill(0, 30)
    command = [sys.executable, "-W", "ignore", "-c", FORKED, topic.bootstrap_servers, topic.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.returncode) == ("both read\n", 0), done.stderr[-2000:]


def idle_in_worker(batches: Any) -> Iterator[Any]:
    """Return how many idle clients this worker has."""
    import pyarrow as pa

    yield from (pa.RecordBatch.from_pydict({"pid": [os.getpid()], "idle": [idle_here()]}) for _ in batches)


def idle_here() -> int:
    found = sys.modules.get("zkcoord_idle_clients")
    return len(found.by_process[os.getpid()]._idle) if found else 0


def test_sparks_workers_keep_their_clients_from_one_batch_to_the_next(
    world: World, make_topic: Callable[[int], Topic], spark: SparkSession
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    topic = make_topic(4)
    world.given = {TopicPartition(topic.name, partition): 0 for partition in range(4)}
    for partition in range(4):
        topic.fill(partition, 30)
    seen: list[int] = []
    idle: dict[int, int] = {}

    def process(df: DataFrame, batch: Batch) -> None:
        seen.append(df.count())
        workers = spark.range(8, numPartitions=8).mapInArrow(idle_in_worker, "pid long, idle long").collect()
        idle.update({row.pid: row.idle for row in workers})

    consumer = consumer_of(world, spark, topic, reader="python", max_offsets_per_batch=40)
    assert consumer.run(process, idle_timeout_ms=0) == 3
    assert seen == [40, 40, 40]
    assert sum(idle.values()) >= 1, "no worker has kept one"
