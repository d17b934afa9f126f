"""Real servers as child processes, for the demo and the tests: ZooKeeper, Kafka, and Java and jars for Spark."""

from zkcoord.embedded.artifacts import connector_jars, delta_jars, iceberg_jars, s3a_jars
from zkcoord.embedded.java import spark_environment
from zkcoord.embedded.kafka import EmbeddedKafka
from zkcoord.embedded.kraft import EmbeddedController, EmbeddedKRaft
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper

__all__ = [
    "EmbeddedController",
    "EmbeddedKRaft",
    "EmbeddedKafka",
    "EmbeddedZooKeeper",
    "connector_jars",
    "delta_jars",
    "iceberg_jars",
    "s3a_jars",
    "spark_environment",
]
