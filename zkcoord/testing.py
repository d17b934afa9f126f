"""pytest fixtures with real servers for tests of your own consumers (docs/testing.md).

pytest finds them by itself if zkcoord is installed. They start nothing until a test uses one. They need the extra
`demo`, which brings Java, and at their first use the network, for Kafka's jars.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from zkcoord.errors import UnavailableError

if TYPE_CHECKING:
    from zkcoord.coordinator import Coordinator
    from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper

__all__ = [
    "Servers",
    "zkcoord_coordinator",
    "zkcoord_group",
    "zkcoord_kafka",
    "zkcoord_servers",
    "zkcoord_topic",
    "zkcoord_zookeeper",
]

WAIT_SECONDS = 60.0
"""The longest wait for a topic or a coordinator; only a failure takes so long."""

TURN_SECONDS = 0.05

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of the tests' servers."""

    zookeeper: str  # host:port, for `zookeeper=` of consumers
    bootstrap_servers: str  # of Kafka


@pytest.fixture(scope="session")
def zkcoord_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper for the whole test session; `.hosts` is its address."""
    from zkcoord.embedded import EmbeddedZooKeeper

    with EmbeddedZooKeeper(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def zkcoord_kafka(zkcoord_zookeeper: EmbeddedZooKeeper) -> Iterator[EmbeddedKafka]:
    """A Kafka broker for the whole test session, on `zkcoord_zookeeper`; `.bootstrap_servers` is its address."""
    from zkcoord.embedded import EmbeddedKafka

    with EmbeddedKafka(zkcoord_zookeeper.hosts) as server:
        yield server


@pytest.fixture(scope="session")
def zkcoord_coordinator(zkcoord_zookeeper: EmbeddedZooKeeper) -> Iterator[Coordinator]:
    """A coordinator for the whole test session, which serves already."""
    from zkcoord.coordinator import Coordinator

    served: list[int] = []
    coordinator = Coordinator(zkcoord_zookeeper.hosts, on_serving=lambda number, epoch: served.append(epoch))
    coordinator.start()
    try:
        _until(lambda: bool(served) or coordinator.error is not None, "the coordinator to serve")
        if coordinator.error is not None:
            raise coordinator.error
        yield coordinator
    finally:
        coordinator.stop()


@pytest.fixture
def zkcoord_servers(
    zkcoord_zookeeper: EmbeddedZooKeeper, zkcoord_kafka: EmbeddedKafka, zkcoord_coordinator: Coordinator
) -> Servers:
    """The servers that consumers need: ZooKeeper, Kafka, and a coordinator that serves."""
    return Servers(zkcoord_zookeeper.hosts, zkcoord_kafka.bootstrap_servers)


@pytest.fixture
def zkcoord_group() -> str:
    """The name of a group that no other test has."""
    return f"group-{next(_NUMBERS)}"


@pytest.fixture
def zkcoord_topic(zkcoord_kafka: EmbeddedKafka, zkcoord_zookeeper: EmbeddedZooKeeper) -> Callable[..., str]:
    """A function that makes a new topic: `zkcoord_topic(partitions=4)` returns its name, once consumers can see it."""
    from zkcoord.kafka.client import KafkaClient, librdkafka
    from zkcoord.shell.zk.blocking import Tree
    from zkcoord.tree.paths import DRAFT
    from zkcoord.tree.snapshot import Read

    def make(partitions: int = 1) -> str:
        name = f"topic-{next(_NUMBERS)}"
        with KafkaClient(zkcoord_kafka.bootstrap_servers) as client:
            new = librdkafka().admin.NewTopic(name, partitions, 1)
            client.admin().create_topics([new])[name].result(WAIT_SECONDS)
        with Tree(zkcoord_zookeeper.hosts) as tree:
            _until(lambda: tree.read([Read(DRAFT.topic(name))])[0].exists, f"topic {name}")
        return name

    return make


def _until(reached: Callable[[], bool], what: str) -> None:
    """Wait until `reached()` is true; UnavailableError after WAIT_SECONDS."""
    end = time.monotonic() + WAIT_SECONDS
    while not reached():
        if time.monotonic() >= end:
            raise UnavailableError(f"waited {WAIT_SECONDS:.0f} s in vain for {what}: see the log of the tests")
        time.sleep(TURN_SECONDS)
