"""Checks whether brokers' answers still come from the Kafka cluster that answered first.

librdkafka follows its brokers' names wherever they lead. After a broken connection that may be another cluster, which
was created under these names, and whose offsets mean other records. So a broken connection is a doubt. After an answer
the client then asks for the cluster's id, which settles the doubt: the answer counts, or an error is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkcoord.clock import mono_ms
from zkcoord.errors import UsageError
from zkcoord.kafka.native_log import is_mute

SURE_MS = 30_000
"""ms without an answer after which the cluster is in doubt. librdkafka does not report the end of a connection that was
unused for a minute."""

LAST_SECONDS = 0.3  # for a question about the cluster after an answer that came late


class SameCluster:
    """For clients that ask one cluster. Several threads may use it."""

    def __init__(
        self,
        servers: str,
        config: Mapping[str, Any] | None = None,
        known: Callable[[], str | None] | None = None,
        sure_ms: int = SURE_MS,
    ) -> None:
        """`known` returns the cluster's id as others were told it, or None. `config` holds librdkafka's settings; if
        they keep broken connections from being reported, each answer is in doubt."""
        self._servers, self._known, self._mute = servers, known or _nobody, is_mute(config or {})
        self._lock = threading.Lock()  # while a question is open, no other thread's answer counts
        self._doubts, self._settled = 1, 0
        self._sure_ms, self._sure_until_ms = sure_ms, 0
        self.cluster_id: str | None = None  # as it was first told; brokers before 0.10.1 tell none

    def doubt(self) -> None:
        """Note that a connection has ended, or that a new client begins. Any thread may call it."""
        self._doubts += 1

    @property
    def doubtful(self) -> bool:
        """True if the cluster must be asked for its id before an answer counts."""
        return self._mute or self._settled != self._doubts or mono_ms() >= self._sure_until_ms

    def hear(self, cluster_id: str | None) -> None:
        """Note the id of the cluster that answers. Raises UsageError if it was another one before."""
        for before in filter(None, (self.cluster_id, self._known())):
            if cluster_id and cluster_id != before:
                raise UsageError(
                    f"Kafka at {self._servers} is another cluster now, {cluster_id!r}, than before, {before!r}:"
                    " nothing is read or committed there; give the brokers of the first one"
                )
        self.cluster_id = self.cluster_id or cluster_id

    def confirm(self, ask: Callable[[], str | None]) -> None:
        """Return when all answers until now are known to come from this cluster. Raises UsageError if they come from
        another one.

        `ask` asks the same client for the cluster's id. It is called when there is a doubt, and its errors are raised.
        """
        with self._lock:
            doubts, now_ms = self._doubts, mono_ms()
            if self.doubtful:
                self.hear(ask())
            self._settled, self._sure_until_ms = doubts, now_ms + self._sure_ms


def ask_cluster(native: Any, topic: str, seconds: float) -> str | None:
    """Return the id of the cluster that answers a client of librdkafka. Brokers before 0.10.1 tell none.

    `topic` is any existing topic, since an answer about all topics may be large. Raises librdkafka's KafkaException.
    """
    told = native.list_topics(topic, timeout=seconds).cluster_id
    return None if told is None else str(told)


def _nobody() -> None:
    return None
