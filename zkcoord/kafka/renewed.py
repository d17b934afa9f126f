"""When a client of librdkafka is replaced by another one, and how a client is ended.

If brokers told librdkafka 2.16 of no brokers while they started, it may never find them again (its issue 5301). A new
client does, since it begins at the bootstrap servers. But a new client must also connect again, which takes long where
a network, a name server or a server of credentials is slow. So a client without an answer is given some seconds,
whatever it asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from zkcoord.clock import mono_ms
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError

LOG = logging.getLogger("zkcoord.kafka")
Told = TypeVar("Told")

RENEW_MS = 10_000
"""ms without an answer until another client is made. A restarting broker takes some seconds."""

CLOSE_SECONDS = 1.0
"""s for which the end of connections is waited for. librdkafka may need longer, for example while it resolves a
broker's name."""


class AnswerTimeout:
    """Decides when a client must be replaced. Not thread safe."""

    def __init__(self, now_ms: Callable[[], int] | None = None, renew_ms: int = RENEW_MS) -> None:
        self._now_ms, self._renew_ms = now_ms or mono_ms, renew_ms
        self._heard_ms: int | None = None  # when the last answer came
        self._since_ms: int | None = None  # when the first question without an answer was asked

    def answered(self) -> None:
        """Note an answer."""
        self._since_ms, self._heard_ms = None, self._now_ms()

    def is_over(self, asked_ms: int) -> bool:
        """Note that a question asked at `asked_ms` has no answer. True if no answer came for `renew_ms`; then the
        time begins again."""
        if self._since_ms is None:
            self._since_ms = asked_ms if self._heard_ms is None else max(asked_ms, self._heard_ms)
        if self._now_ms() < self._since_ms + self._renew_ms:
            return False
        self._since_ms = None
        return True


class _Held:
    """A client, and the number of threads that use it."""

    def __init__(self, client: Any, renew_ms: int) -> None:
        self.client, self.timeout, self.users = client, AnswerTimeout(renew_ms=renew_ms), 0


class Renewed:
    """Clients, one after the other: `opens` makes one when it is needed, and `ends` ends it. Several threads may use
    it.

    A client that is replaced or closed while it is used is ended by the last thread that uses it.
    """

    def __init__(self, opens: Callable[[], Any], ends: Callable[[Any], object], renew_ms: int = RENEW_MS) -> None:
        """`opens` raises zkcoord's errors."""
        self._renew_ms = renew_ms
        self._opens, self._ends, self._lock = opens, ends, threading.Lock()
        self._held: _Held | None = None
        self.closed = False

    def close(self) -> None:
        """End the client: now, or when no thread uses it any more. No other client is made. Idempotent."""
        with self._lock:
            self.closed = True
            held, self._held = self._held, None
            free = held is not None and not held.users
        if held is not None and free:
            self._ends(held.client)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """The present client, which is not ended within this block. Raises UsageError if this object is closed."""
        with self._using() as held:
            yield held.client

    def ask(self, question: Callable[[Any], Told], is_answer: Callable[[Told], bool] = lambda _: True) -> Told:
        """Return or raise the result of `question` for the present client. An UnavailableError, and a result for which
        `is_answer` is False, count as no answer. A client without an answer for long is replaced."""
        asked_ms, answered = mono_ms(), True
        with self._using() as held:
            try:
                told = question(held.client)
                answered = is_answer(told)
                return told
            except UnavailableError:
                answered = False
                raise
            finally:
                self._note(held, asked_ms, answered)

    @contextmanager
    def _using(self) -> Iterator[_Held]:
        with self._lock:
            if self.closed:
                raise UsageError("this Kafka client is closed; open another")
            if self._held is None:
                self._held = _Held(self._opens(), self._renew_ms)
            held = self._held
            held.users += 1
        try:
            yield held
        finally:
            with self._lock:
                held.users -= 1
                left = held is not self._held and not held.users
            if left:
                self._ends(held.client)

    def _note(self, held: _Held, asked_ms: int, answered: bool) -> None:
        with self._lock:
            if answered:
                held.timeout.answered()
            elif held is self._held and held.timeout.is_over(asked_ms):
                client = another(self._opens, held.client)
                self._held = held if client is held.client else _Held(client, self._renew_ms)


def another(opens: Callable[[], Any], kept: Any) -> Any:
    """Return a new client. If none can be made, for example while a certificate is replaced, return the kept one."""
    try:
        return opens()
    except ZkcoordError as error:
        LOG.warning("a Kafka client that has no answer is kept, as another one cannot be made: %s", error)
        return kept


def end_client(admin: Any) -> None:
    """End connections and threads of an AdminClient, even if something still refers to it."""
    ends = getattr(admin, "__exit__", None)  # before confluent-kafka 2.13 a client ends only with its last reference
    if ends is not None:
        end_apart(ends, None, None, None)


def end_apart(end: Callable[..., object], *given: object, seconds: float = CLOSE_SECONDS) -> None:
    """Call the function that ends a client of librdkafka. It may take long, so it is waited for at most
    `seconds`."""
    ending = threading.Thread(target=end, args=given, name="zkcoord-kafka-close", daemon=True)
    ending.start()
    ending.join(seconds)
