"""Two clusters of one broker each, behind one address. Both clusters name it as their broker's address.

This is as if a cluster was replaced by a new one with the same host names: a client that connects again reaches the new
one without noticing.
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
    """A listener that leads to one cluster. It replaces the brokers' ports in their answers by its own port."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._to = ports, 0
        self.asked = list[int]()  # the API keys of all requests, in order
        self.held: set[int] = set()  # API keys of requests that wait until the way leads elsewhere
        super().__init__()

    def lead(self, to: int, *, cut: bool = True) -> None:
        """Lead new connections to this cluster. `cut`: end the present connections."""
        self._to = to
        if cut:
            self.cut()

    def target_port(self) -> int:
        """Return the port to which a new connection is led."""
        return self._ports[self._to]

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Note a request; replace the brokers' own ports in an answer."""
        if up:
            self.asked.append(struct.unpack_from("!h", frame)[0])
            return None if self.asked[-1] in self.held else frame
        for port in self._ports:
            frame = frame.replace(HOST + struct.pack("!i", port), HOST + struct.pack("!i", self.port))
        return frame


class TwoClusters:
    """Two clusters, each with one broker, at one of these addresses, and with the topic. `way` first leads to the first
    one.
    """

    topic = MockCluster.topic

    def __init__(self, addresses: Sequence[str], topic: str = MockCluster.topic) -> None:
        self.topic, self._addresses = topic, addresses
        self.way = Way([int(each.rpartition(":")[2]) for each in addresses])
        self.servers = self.way.hosts

    def address(self, to: int) -> str:
        """Return one cluster's own address."""
        return self._addresses[to]

    def produce(self, to: int, partition: int, values: Iterable[bytes]) -> None:
        """Write these values into one of the clusters."""
        producer = Producer({"bootstrap.servers": self.address(to)}, logger=QUIET)
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def fill(self, counts: tuple[int, int]) -> None:
        """Write these numbers of records into partition 0 of each cluster. Their values name the cluster and the
        offset."""
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
        del mocks  # the mock clusters must live until here
