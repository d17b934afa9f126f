"""Consumers with a real Kafka and a real Spark, whose membership the test plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.fakes import FakeMembership, World
from zkcoord.core.model import TopicPartition
from zkcoord.spark import SparkConsumer
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topic


class PlayedDependencies(RealDependencies):
    """Everything real but the membership and the limits."""

    def __init__(self, world: World, spark: SparkSession, topic: Topic, options: Options) -> None:
        super().__init__(spark, "", topic.bootstrap_servers, "g", [topic.name], options)
        self._world, self.limits = world, world.limits

    def membership(self, **callbacks: Any) -> FakeMembership:
        return self._world.membership(**callbacks)


def consumer_of(world: World, spark: SparkSession, topic: Topic, **choices: Any) -> SparkConsumer:
    """Return a consumer that holds the partitions in `world.given`, or partition 0 from its beginning."""
    world.given = world.given or {TopicPartition(topic.name, 0): 0}
    dependencies = PlayedDependencies(world, spark, topic, Options(**choices))
    return SparkConsumer(spark, "", topic.bootstrap_servers, "g", [topic.name], dependencies=dependencies, **choices)
