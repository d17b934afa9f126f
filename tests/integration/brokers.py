"""A broker of a version, with a ZooKeeper: Kafka 4 does not know that, and topics come from its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.tree.paths import FROM_KAFKA


class Servers(NamedTuple):
    """`coordinator`: with what a coordinator is started there."""

    zookeeper: str
    kafka: KafkaBroker
    coordinator: Mapping[str, Any]


@contextmanager
def servers_of(version: str, settings: Mapping[str, str]) -> Iterator[Servers]:
    """Both servers, of which the broker has these further settings."""
    with EmbeddedZooKeeper(fsync=False) as zookeeper:
        if version == KAFKA_4_VERSION:
            with EmbeddedKRaft(settings=settings) as kafka:
                source = {"topics": FROM_KAFKA, "bootstrap_servers": kafka.bootstrap_servers}
                yield Servers(zookeeper.hosts, kafka, source)
        else:
            with EmbeddedKafka(zookeeper.hosts, version=version, settings=settings) as kafka:
                yield Servers(zookeeper.hosts, kafka, {})
