"""Finds out on the polling thread whether Kafka can be reached. It reports once when Kafka cannot be reached, and once
when it can again.

librdkafka reports each failed attempt, and nothing when an attempt succeeds. So an error is only a suspicion. A request
to the cluster confirms it, and is repeated until it is answered. librdkafka may also have forgotten all brokers and
report nothing. So a long silence is a suspicion, too, and a client without an answer for long must be replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from zkcoord import logs
from zkcoord.clock import mono_ms
from zkcoord.errors import UnavailableError
from zkcoord.kafka.log_throttle import LogThrottle
from zkcoord.kafka.renewed import RENEW_MS, AnswerTimeout

LOG = logging.getLogger("zkcoord.kafka.reach")  # a logger of its own, since the filter is for it alone
LOG.addFilter(LogThrottle())

ANSWER_SECONDS = 0.3  # how long the polling thread waits for an answer


class Times(NamedTuple):
    """How long a `Reach` waits."""

    check_ms: int = 1_000  # between two requests, each of which delays the polling thread a little
    silent_ms: int = 30_000  # without a message, until the cluster is asked even though no trouble was reported
    renew_ms: int = RENEW_MS  # without an answer, until the client is replaced


TIMES = Times()


class Asked(Protocol):
    """The client as this module needs it."""

    def take_trouble(self) -> UnavailableError | None:
        """Return why a broker could not be reached, if that was reported since the last call."""

    def answers(self, seconds: float) -> bool:
        """True if the cluster answers a request within this time."""


class Reach:
    """Knows whether one consumer's Kafka can be reached. It belongs to the polling thread."""

    def __init__(self, group: str, asked: Asked, now_ms: Callable[[], int] | None = None, times: Times = TIMES) -> None:
        self._group, self._asked, self._now_ms, self._times = group, asked, now_ms or mono_ms, times
        self._suspicion: UnavailableError | None = None
        self._ask_at_ms = 0
        self._heard_ms = self._now_ms()  # when the last message or answer came
        self._timeout = AnswerTimeout(self._now_ms, times.renew_ms)
        self.error: UnavailableError | None = None  # why Kafka cannot be reached, as it was reported; None: it can

    def failed(self, error: UnavailableError) -> None:
        """Note that Kafka cannot be reached, as another client's request has shown."""
        self._suspicion = error
        if self.error is None:
            self.error = error
            logs.emit("kafka_away", group=self._group, why=f"{error}; still trying", level="warning")

    def look(self, heard: bool, fetching: bool = False) -> bool:
        """Take in the client's news. Return True if the client must be replaced.

        `heard`: messages have come. `fetching`: partitions are being fetched.
        """
        self._suspicion = self._asked.take_trouble() or self._suspicion
        if heard:
            self._answered()
        elif self._now_ms() >= self._ask_at_ms and (self._suspicion is not None or (fetching and self._silent())):
            if self._asked.answers(ANSWER_SECONDS):
                if self._suspicion is not None and self.error is None:
                    LOG.warning("other brokers answer, but: %s", self._suspicion)
                self._answered()
            else:
                self._suspicion = self._suspicion or self._asked.take_trouble()
                if self._suspicion is not None:
                    self.failed(self._suspicion)
            self._ask_at_ms = self._now_ms() + self._times.check_ms
        return self.error is not None and self._timeout.is_over(self._now_ms())

    def _silent(self) -> bool:
        return self._now_ms() >= self._heard_ms + self._times.silent_ms

    def _answered(self) -> None:
        self._suspicion, self._heard_ms = None, self._now_ms()
        if self.error is not None:
            self.error = None
            self._timeout.answered()
            logs.emit("kafka_back", group=self._group, level="notice")
