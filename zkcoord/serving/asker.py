"""A coordinator's questions to Kafka: one at a time, each with a number of its own."""

from __future__ import annotations

from itertools import count

from zkcoord.core.topic_answers import Question
from zkcoord.shell.ports import Callbacks

ASK = "ask_kafka"  # the name of the call; its argument is a Question, its value an Answer

INTERVAL_MS = 400
"""ms between two questions to Kafka. Questions for lists and for descriptions alternate, so a change is seen within a
second."""


class Asker:
    """Asks Kafka on a thread of its own. The numbers go on from one term to the next, so that a late answer is
    recognised."""

    def __init__(self, calls: Callbacks, interval_ms: int = INTERVAL_MS) -> None:
        self._calls, self.interval_ms = calls, interval_ms
        self._tokens = count(1)

    def ask(self, question: Question) -> int:
        """Ask, and return the number of the answer."""
        token = next(self._tokens)
        self._calls.call(token, ASK, question)
        return token
