"""Questions to the coordinators of groups in Kafka, each with an admin client of librdkafka's for itself.

librdkafka 2.16 aborts the process when the time of such a request ends there and its coordinator can be reached later
(issue 4605). So librdkafka never ends one: the time is kept here, and an admin client with a request that is still open
is ended, by the thread that asked. (If it went with its last reference, that might be on a thread of librdkafka's own,
where Python's garbage collection runs, too: librdkafka aborts then as well.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from zkcoord.errors import UsageError
from zkcoord.kafka.old_brokers import check_deletes_groups

DELETES = "delete_consumer_groups"
NEVER_SECONDS = 3_600.0
"""So long librdkafka itself would wait: its maximum. Nobody waits for so long here."""

CLOSE_SECONDS = 1.0
"""The end of connections is waited for. librdkafka may need longer, as while it looks up the name of a broker."""


class Coordinators:
    """The coordinators of a cluster's groups. Safe for several threads. `opens` returns a new AdminClient."""

    def __init__(self, opens: Callable[[], Any]) -> None:
        self._opens = opens
        self._idle: list[Any] = []  # AdminClients in which every question was answered
        self._closed = False

    def ask(self, question: str, groups: Mapping[str, Any], seconds: float) -> dict[str, Future[Any]]:
        """Return what has an answer within this time. The rest is given up: it may still have been done.

        `question`: a method of AdminClient; `groups`: each group, as that method takes it. UsageError for what these
        brokers are known to be too old for.
        """
        if self._closed:
            raise UsageError("this Kafka client is closed; open another")
        try:
            admin = self._idle.pop()
        except IndexError:
            admin = self._opens()
        if question == DELETES:
            check_deletes_groups(admin, seconds)
        asks, futures = getattr(admin, question), dict[str, Future[Any]]()
        unanswered: Collection[Future[Any]] | bool = True
        try:
            for asked in groups.values():
                futures |= asks([asked], request_timeout=NEVER_SECONDS)
            answered, unanswered = wait(futures.values(), seconds)
            admin.poll(0)  # serves its error_cb: it tells why nobody answered
        finally:
            if unanswered:
                _end(admin)
            else:
                self._idle.append(admin)
            if self._closed:
                self.close()
        return {group: future for group, future in futures.items() if future in answered}

    def close(self) -> None:
        """End connections and threads: now, or when the question that is under way ends. Idempotent."""
        self._closed = True
        while self._idle:
            _end(self._idle.pop())


def _end(admin: Any) -> None:
    ends = getattr(admin, "__exit__", None)  # before confluent-kafka 2.13 only its last reference ends a client
    if ends is not None:
        ending = threading.Thread(target=ends, args=(None, None, None), name="zkcoord-kafka-close", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)
