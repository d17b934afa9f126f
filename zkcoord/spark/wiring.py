"""The real parts behind a Spark consumer. Their packages are imported only when they are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zkcoord.core.model import TopicPartition
from zkcoord.logs import json_log
from zkcoord.spark.jobs import jobs_of
from zkcoord.spark.ports import Jobs, LogEnds, Membership, Progress, Reader
from zkcoord.spark.progress import progress_to
from zkcoord.spark.reader_kafka import KafkaReader
from zkcoord.spark.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RealParts:
    """`ports.Parts` over ZooKeeper, Kafka and Spark."""

    def __init__(
        self,
        spark: SparkSession,
        zookeeper: str,
        bootstrap_servers: str,
        group: str,
        topics: Sequence[str] | Mapping[str, int],
        *,
        include: str | None,
        exclude: str | None,
        kafka: KafkaSettings,
        include_headers: bool,
        threads: int,
        instance: str | None,
        hold_ms: int,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        assignors: Sequence[str],
        zookeeper_config: Any,
    ) -> None:
        self._spark = spark
        self._zookeeper = zookeeper
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._topics = topics
        self._include = include
        self._exclude = exclude
        self._kafka = kafka
        self._include_headers = include_headers
        self._threads = threads
        self._instance, self._hold_ms = instance, hold_ms
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignors = assignors
        self._zookeeper_config = zookeeper_config

    def membership(
        self,
        *,
        on_start: Callable[[Mapping[TopicPartition, int]], None],
        on_stop: Callable[[tuple[TopicPartition, ...]], Mapping[TopicPartition, int]],
        on_lost: Callable[[tuple[TopicPartition, ...]], None],
        reset: Callable[[tuple[TopicPartition, ...]], Mapping[TopicPartition, int]],
    ) -> Membership:
        """A `zkcoord.Consumer`, not started."""
        from zkcoord.consumer import Consumer

        return Consumer(
            self._zookeeper,
            self._group,
            self._topics,
            include=self._include,
            exclude=self._exclude,
            threads=self._threads,
            instance=self._instance,
            hold_ms=self._hold_ms,
            on_start=on_start,
            on_stop=on_stop,
            on_lost=on_lost,
            reset=reset,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            assignors=self._assignors,
            zookeeper_config=self._zookeeper_config,
        )

    def log_ends(self) -> LogEnds:
        """A Kafka client; the caller closes it."""
        from zkcoord.kafka.client import KafkaClient

        return KafkaClient(self._bootstrap_servers, self._kafka.librdkafka)

    def reader(self) -> Reader:
        """The Kafka connector."""
        return KafkaReader(
            self._spark,
            self._bootstrap_servers,
            self._group,
            settings=self._kafka.reader,
            include_headers=self._include_headers,
        )

    def jobs(self) -> Jobs:
        """Job tags, or a remote session's."""
        return jobs_of(self._spark)

    def progress(self) -> Progress:
        """A live line when standard error is a terminal that takes more than JSON."""
        return progress_to(None if json_log() else sys.stderr, self._group)
