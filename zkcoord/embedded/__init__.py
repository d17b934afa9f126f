"""Real servers as child processes, for the demo and the tests: ZooKeeper, Kafka, and a Java for Spark."""

from zkcoord.embedded.java import spark_environment
from zkcoord.embedded.zookeeper import EmbeddedEnsemble, EmbeddedZooKeeper

__all__ = ["EmbeddedEnsemble", "EmbeddedZooKeeper", "spark_environment"]
