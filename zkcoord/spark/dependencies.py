"""The real dependencies of a Spark consumer. Their packages are imported only when they are made."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.logs import json_log
from zkcoord.settings import MemberOptions, settings_of
from zkcoord.spark.jobs import jobs_of, shows_bar
from zkcoord.spark.meter import meter_of
from zkcoord.spark.options import Options
from zkcoord.spark.ports import Jobs, Limits, LogEnds, MemberCallbacks, Membership, Meter, Progress, Reader
from zkcoord.spark.progress import LiveLine, progress_to, warn_of_bar
from zkcoord.spark.readers.kafka import KafkaReader, connector_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RealDependencies:
    """`ports.Dependencies` with ZooKeeper, Kafka and Spark."""

    limits = Limits()

    def __init__(
        self,
        spark: SparkSession | None,
        zookeeper: str,
        bootstrap_servers: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int],
        options: Options,
    ) -> None:
        """`spark` is None in the process that plans a streaming query: that process needs no reader, jobs or meter."""
        self._spark, self._zookeeper, self._bootstrap_servers = spark, zookeeper, bootstrap_servers
        self._group, self._topics, self._options = group, topics, options
        self._kafka = options.kafka()

    def check(self) -> None:
        """Raise UsageError for names, addresses and Kafka settings that can never work. Connects to nothing."""
        from zkcoord.kafka.client import check_servers, check_settings

        named = {"zookeeper": self._zookeeper, "bootstrap_servers": self._bootstrap_servers, "group": self._group}
        for name, value in named.items():
            if not isinstance(value, str):
                raise UsageError(f"{name} is {value!r}; it must be text")
        check_servers(self._bootstrap_servers)
        check_settings(self._kafka.librdkafka)
        self.membership(
            on_start=_never, on_stop=_never, on_lost=_never, on_replay=_never, reset=_never, cluster_id=_never
        )

    def membership(self, **callbacks: Unpack[MemberCallbacks]) -> Membership:
        """Make a `zkcoord.Consumer`, not started."""
        from zkcoord.consumer import Consumer

        def stop(partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
            return callbacks["on_stop"](partitions, consumer.stopped)

        called: dict[str, Any] = {**callbacks, "on_stop": stop}
        settings = {name: getattr(self._options, name) for name in settings_of(MemberOptions)}
        settings |= {"bootstrap_servers": self._bootstrap_servers, "kafka_config": self._kafka.librdkafka}
        consumer = Consumer(self._zookeeper, self._group, self._topics, **called, **settings)
        return consumer

    def log_ends(self) -> LogEnds:
        """Make a Kafka client. The caller closes it."""
        from zkcoord.kafka.steady import SteadyClient

        return SteadyClient(self._bootstrap_servers, self._kafka.librdkafka)

    def incarnations(self, topics: Collection[str]) -> Mapping[str, int]:
        """Read the topics, and the group's marks of them, in ZooKeeper."""
        from zkcoord.incarnations import incarnations

        return incarnations(self._zookeeper, self._group, topics, self._options.zookeeper_config)

    def tree_cluster(self) -> str | None:
        """Read the cluster's id in ZooKeeper."""
        from zkcoord.incarnations import cluster_id

        return cluster_id(self._zookeeper, self._options.zookeeper_config)

    def reader(self) -> Reader:
        """Make the reader: the Kafka connector, or confluent-kafka in Python workers."""
        if self._options.reader == "python":
            from zkcoord.spark.readers.ranges import PythonReader

            return PythonReader(self._spark, self._bootstrap_servers, self._group, self._options)
        return KafkaReader(self._spark, connector_options(self._bootstrap_servers, self._group, self._options))

    def jobs(self) -> Jobs:
        """Return job tags, or those of a remote session."""
        return jobs_of(self._spark)

    def meter(self) -> Meter:
        """Return Spark's own counters."""
        return meter_of(self._spark, measure_bytes=self._options.measure_bytes)

    def progress(self) -> Progress:
        """Return a live line if standard error is a terminal that shows more than JSON.

        Warns once in a process if Spark's own progress bar is shown there, too.
        """
        shown = progress_to(None if json_log() else sys.stderr, self._group)
        if isinstance(shown, LiveLine) and self._spark is not None and shows_bar(self._spark):
            warn_of_bar()
        return shown

    def await_turn(self) -> None:
        """Return at once: the loop sets its own pace."""


def _never(*_: object) -> Any:
    """Do nothing: the membership is never started."""
