"""Two clusters, each of one broker, behind one address that both name as their broker's own.

As when a cluster is made anew under the names of another one: a client that connects again is led to it by itself.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.mock_cluster import MockCluster
from tests.relay import Relay

HOST = b"127.0.0.1"


class Way(Relay):
    """A listener that leads to one cluster. In the brokers' answers its port stands in place of theirs."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._to = ports, 0
        self.asked = list[int]()  # the API keys of all requests, in order
        self.held: set[int] = set()  # API keys of requests that wait until the way leads elsewhere
        super().__init__()

    def lead(self, to: int, *, cut: bool = True) -> None:
        """Lead new connections to this cluster. `cut`: those that there are end."""
        self._to = to
        if cut:
            self.cut()

    def target_port(self) -> int:
        """Where a new connection is led to."""
        return self._ports[self._to]

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Note a request; the brokers' own ports are replaced in answers."""
        if up:
            self.asked.append(struct.unpack_from("!h", frame)[0])
            return None if self.asked[-1] in self.held else frame
        for port in self._ports:
            frame = frame.replace(HOST + struct.pack("!i", port), HOST + struct.pack("!i", self.port))
        return frame


class TwoClusters:
    """`way` leads to the first one at first. Each has one broker, at one of these addresses, and has the topic."""

    topic = MockCluster.topic

    def __init__(self, addresses: Sequence[str], topic: str = MockCluster.topic) -> None:
        self.topic, self._addresses = topic, addresses
        self.way = Way([int(each.rpartition(":")[2]) for each in addresses])
        self.servers = self.way.hosts

    def address(self, to: int) -> str:
        """One cluster's own address."""
        return self._addresses[to]

    def produce(self, to: int, partition: int, values: Iterable[bytes]) -> None:
        """Write these into one of the clusters."""
        producer = Producer({"bootstrap.servers": self.address(to)}, logger=QUIET)
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def fill(self, counts: tuple[int, int]) -> None:
        """Write so many records into partition 0 of each; their values name the cluster and the offset."""
        for to, count in enumerate(counts):
            self.produce(to, 0, (f"{to}-{offset}".encode() for offset in range(count)))


@contextmanager
def two_clusters(counts: tuple[int, int]) -> Iterator[TwoClusters]:
    """Two of librdkafka's mock clusters, filled."""
    mocks = [MockCluster(1), MockCluster(1)]
    both = TwoClusters([each.servers for each in mocks])
    try:
        both.fill(counts)
        yield both
    finally:
        both.way.close()
        del mocks  # they live until here
