"""A Kafka client whose answers all come from one cluster. It is for members, which compare them with their group's
offsets."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, ZkcoordError
from zkcoord.kafka.client import LEADERS_MS, TIMEOUT_MS, Isolation, KafkaClient, Where, librdkafka
from zkcoord.kafka.same_cluster import SameCluster, ask_cluster


class SteadyClient(KafkaClient):
    """Every question raises UsageError if another cluster has answered than the one that answered first.

    An answer counts only once its cluster is known. This costs one request after a broken connection, and none
    otherwise.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        config: Mapping[str, str] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        same: SameCluster | None = None,
        leaders_ms: int = LEADERS_MS,
    ) -> None:
        """`same` is what earlier clients of this cluster have been told."""
        self._same = same or SameCluster(bootstrap_servers, config)
        self._polling = threading.Lock()
        # a thread that looks for doubts waits for those that another thread is being told
        super().__init__(bootstrap_servers, config, timeout_ms=timeout_ms, leaders_ms=leaders_ms)

    def confirm(self, topic: str, timeout_ms: int) -> None:
        """Return when the brokers are known to belong to this cluster still, which is usual at once.

        Raises UsageError if they do not, and UnavailableError if nobody answers in time. `topic` is any existing topic.
        """
        self._serve()
        if self._same.doubtful:
            self._renewed.ask(lambda admin: self._confirm(admin, topic, timeout_ms))

    def look_anew(self, topic: str, timeout_ms: int) -> None:
        """Do the same as `confirm` through new connections, to learn what clients are told that connect now."""
        with SteadyClient(self.servers, self.config, timeout_ms=timeout_ms) as client:
            client.confirm(topic, timeout_ms)
            self._same.hear(client.cluster_id)

    def _confirm(self, admin: Any, topic: str, timeout_ms: int) -> None:
        def ask() -> str | None:
            try:
                return ask_cluster(admin, topic, timeout_ms / 1000)
            except librdkafka().KafkaException as error:
                raise self.as_error(error.args[0], "tell its cluster's id") from error

        self._same.confirm(ask)
        self.cluster_id = self._same.cluster_id

    def _list(self, timeout_seconds: float) -> Any:
        found = super()._list(timeout_seconds)
        told, self.cluster_id = self.cluster_id, self._same.cluster_id
        self._same.hear(told)
        self.cluster_id = self._same.cluster_id
        return found

    def _ask_leaders(
        self,
        admin: Any,
        partitions: list[TopicPartition],
        which: Where,
        isolation: Isolation | None,
        timeout_ms: int | None,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ZkcoordError]]:
        found, failed = super()._ask_leaders(admin, partitions, which, isolation, timeout_ms)
        if found:
            try:
                self._confirm(admin, min(found).topic, timeout_ms or self._timeout_ms)
            except UnavailableError as error:
                return {}, {**failed, **dict.fromkeys(found, error)}
        return found, failed

    def _broken(self) -> None:
        self._same.doubt()

    def _poll(self, admin: Any) -> None:
        with self._polling:
            super()._poll(admin)
