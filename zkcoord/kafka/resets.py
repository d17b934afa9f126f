"""Asks Kafka whether it accepts a consumer's credentials, and where reading begins in a partition without an offset, or
with an offset outside of its log (the reset policy).

Each question opens a client of its own: they are rare, and the client that fetches answers none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import TIMEOUT_MS as CLIENT_TIMEOUT_MS
from zkcoord.kafka.client import KafkaClient, ResetPolicy
from zkcoord.kafka.same_cluster import SameCluster
from zkcoord.kafka.steady import SteadyClient

TIMEOUT_MS = 5_000  # for each of three questions; so much longer may the poll take that finds a bad position


class Log(NamedTuple):
    """A log's `start`, its `end` (exclusive), and the offset at which reading continues."""

    start: int
    end: int
    reset: int


class Resets:
    """Applies one policy. Its methods raise the errors of `SteadyClient`: all answers come from one cluster."""

    def __init__(self, servers: str, config: Mapping[str, str], policy: ResetPolicy) -> None:
        self._servers, self._config, self.policy = servers, config, policy
        self.timeout_ms = CLIENT_TIMEOUT_MS  # the limit for every question; set it before the first one
        self.answered = False  # True once Kafka has answered
        self._same = SameCluster(servers, config)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, as it was first told."""
        return self._same.cluster_id

    def hear(self, cluster_id: str | None) -> None:
        """Note that Kafka has answered, and which cluster it is. Raises UsageError if it was another one before."""
        self._same.hear(cluster_id)
        self.answered = True

    def check_credentials(self) -> UnavailableError | None:
        """Raises RefusedError if the brokers refuse the credentials. Returns the error if nobody answers."""
        with self._client(CLIENT_TIMEOUT_MS) as client:
            return self._check(client)

    def ask(self, partitions: Collection[TopicPartition]) -> UnavailableError | None:
        """Return why these partitions, or the cluster, cannot be reached. None: the cluster and the partitions' leaders
        answer."""
        with self._client(TIMEOUT_MS) as client:
            why = client.check_credentials()
            if why is not None or not partitions:
                return why
            _, failed = client.ask_offsets(partitions, "latest", "read_uncommitted")
            away = (error for _, error in sorted(failed.items()) if isinstance(error, UnavailableError))
            return next(away, None)

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions without an offset start."""
        with self._client(CLIENT_TIMEOUT_MS) as client:
            if not self.answered:  # no place in another cluster's log is returned before the id is known
                self._check(client)
            return client.reset_positions(partitions, self.policy)

    def log_of(self, partition: TopicPartition) -> Log:
        """Return the log of a partition whose position is outside of it."""
        with self._client(TIMEOUT_MS) as client:
            return Log(
                start=client.beginning_offsets([partition])[partition],
                end=client.end_offsets([partition], "read_uncommitted")[partition],
                reset=client.reset_positions([partition], self.policy)[partition],
            )

    def _check(self, client: KafkaClient) -> UnavailableError | None:
        away = client.check_credentials()
        if away is None:
            self.hear(client.cluster_id)
        return away

    @contextmanager
    def _client(self, timeout_ms: int) -> Iterator[KafkaClient]:
        """A client whose answers are those of the cluster that answered first, if the block ends without an error."""
        same = SameCluster(self._servers, self._config, known=lambda: self.cluster_id)
        timeout_ms = min(timeout_ms, self.timeout_ms)
        with SteadyClient(self._servers, self._config, timeout_ms=timeout_ms, same=same) as client:
            yield client
            self._same.hear(client.cluster_id)
