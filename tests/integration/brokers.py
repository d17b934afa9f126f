"""A broker of a version, with a ZooKeeper: Kafka 4 does not know that, and topics come from its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper
from zkcoord.embedded.artifacts import KAFKA_4_VERSION, KAFKA_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.tree.paths import FROM_KAFKA

BOTH = (KAFKA_VERSION, pytest.param(KAFKA_4_VERSION, marks=pytest.mark.long))
"""The versions of brokers, as parameters of tests: Kafka 4 in the long tier."""


class Servers(NamedTuple):
    """`coordinator`: with what a coordinator is started there."""

    zookeeper: str
    kafka: KafkaBroker
    coordinator: Mapping[str, Any]


def source_of(kafka: KafkaBroker) -> Mapping[str, Any]:
    """With what a coordinator is started beside this broker."""
    if isinstance(kafka, EmbeddedKRaft):
        return {"topics": FROM_KAFKA, "bootstrap_servers": kafka.bootstrap_servers}
    return {}


@contextmanager
def servers_of(version: str, settings: Mapping[str, str]) -> Iterator[Servers]:
    """Both servers, of which the broker has these further settings."""
    with EmbeddedZooKeeper(fsync=False) as zookeeper:
        if version == KAFKA_4_VERSION:
            with EmbeddedKRaft(settings=settings) as kafka:
                yield Servers(zookeeper.hosts, kafka, source_of(kafka))
        else:
            with EmbeddedKafka(zookeeper.hosts, version=version, settings=settings) as kafka:
                yield Servers(zookeeper.hosts, kafka, source_of(kafka))
