"""A streaming query that is started again while Kafka is away: coordinator, ZooKeeper, Kafka and Spark are all real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Topic
from tests.spark.fakes import InThread
from tests.spark.streams import Stream
from tests.spark.together import DEADLINE_S, ON_REAL_SERVERS, coordinating
from zkcoord.embedded.kafka import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = ON_REAL_SERVERS
ONE_QUESTION_S = 12  # a request to a Kafka that is away takes 10 s


def test_a_query_that_is_started_again_while_kafka_is_away_waits_for_it(
    spark: SparkSession, chroot: str, own_kafka: KafkaBroker, tmp_path: Path
) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is away")

    topic = Topic(own_kafka, 2)
    with coordinating(chroot, **topic.source):
        topic.show_in(chroot)
        topic.fill(0, 7)
        stream = Stream(spark, chroot, topic)
        stream.before = fail
        first = stream.start("first", tmp_path)
        with pytest.raises(Exception, match="the sink is away"):
            first.awaitTermination(int(DEADLINE_S))
        own_kafka.kill()
        stream.before = lambda number: None
        second = stream.start("second", tmp_path, joinWaitMs="120000")
        assert not second.awaitTermination(ONE_QUESTION_S)  # it is asked again
        InThread(own_kafka.start).result()
        stream.wait_for(lambda: len(stream.records) == 7, second)
        topic.fill(1, 3)
        stream.wait_for(lambda: len(stream.records) == 10, second)
        second.stop()
    assert stream.batches[0] == ("second", 0, [(0, offset) for offset in range(7)])
    assert set(stream.records.values()) == {1}
