"""Whether what brokers answer is still of the Kafka cluster that answered first.

librdkafka follows the names of its brokers wherever they lead. After a broken connection that may be another cluster,
which was made anew under these names, and whose offsets are those of other records. So a broken connection is a doubt.
Whoever has an answer then asks for the cluster's id, which settles the doubt: the answer counts, or an error is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkcoord.clock import mono_ms
from zkcoord.errors import UsageError
from zkcoord.kafka.native_log import is_mute

SURE_MS = 30_000
"""Without an answer until the cluster is in doubt: librdkafka tells nothing of the end of a connection that nobody has
used for a minute."""

LAST_SECONDS = 0.3  # for a question about the cluster behind an answer that came late


class SameCluster:
    """Of clients that ask one cluster. Safe for several threads."""

    def __init__(
        self, servers: str, config: Mapping[str, Any] | None = None, known: Callable[[], str | None] | None = None
    ) -> None:
        """`known` returns the cluster's id as others have been told it, None if they have not. `config`: librdkafka's
        settings; where these keep a broken connection untold, each answer is in doubt."""
        self._servers, self._known, self._mute = servers, known or _nobody, is_mute(config or {})
        self._lock = threading.Lock()  # while a question is open, nobody else's answer counts
        self._doubts, self._settled = 1, 0
        self._sure_until_ms = 0
        self.cluster_id: str | None = None  # as it was told first; brokers of before 0.10.1 tell none

    def doubt(self) -> None:
        """Note that a connection has ended, or that a new client begins. Any thread."""
        self._doubts += 1

    @property
    def doubtful(self) -> bool:
        """True if the cluster must be asked for its id before an answer counts."""
        return self._mute or self._settled != self._doubts or mono_ms() >= self._sure_until_ms

    def hear(self, cluster_id: str | None) -> None:
        """Note the id of the cluster that answers. UsageError if it is not the one of before."""
        for before in filter(None, (self.cluster_id, self._known())):
            if cluster_id and cluster_id != before:
                raise UsageError(
                    f"Kafka at {self._servers} is another cluster now, {cluster_id!r}, than before, {before!r}:"
                    " nothing is read or committed there; give the brokers of the first one"
                )
        self.cluster_id = self.cluster_id or cluster_id

    def confirm(self, ask: Callable[[], str | None]) -> None:
        """Return when the answers until now are known to be of this cluster. UsageError if they are another one's.

        `ask` asks the same client for the cluster's id, and raises what it raises. It is called when there is a doubt.
        """
        with self._lock:
            doubts, now_ms = self._doubts, mono_ms()
            if self.doubtful:
                self.hear(ask())
            self._settled, self._sure_until_ms = doubts, now_ms + SURE_MS


def ask_cluster(native: Any, topic: str, seconds: float) -> str | None:
    """Return the id of the cluster that answers a client of librdkafka's; brokers of before 0.10.1 tell none.

    `topic`: any that there is, as an answer about all may be large. Raises librdkafka's KafkaException.
    """
    told = native.list_topics(topic, timeout=seconds).cluster_id
    return None if told is None else str(told)


def _nobody() -> None:
    return None
