"""When a client of librdkafka's is replaced by another one, and how one is ended.

librdkafka 2.16 may never find back to brokers that told it of no brokers while they started (its issue 5301). Another
client does: it begins at the bootstrap servers. But it also connects anew, which takes long itself where a network, a
name server or a server of credentials is slow: so one that has no answer is given some seconds, whatever it asks.
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
"""Without an answer until another client is made: a broker that starts again takes some seconds."""

CLOSE_SECONDS = 1.0
"""The end of connections is waited for. librdkafka may need longer, as while it looks up the name of a broker."""


class Patience:
    """Says when one client is to be replaced. Not safe for threads."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or mono_ms
        self._heard_ms: int | None = None  # when the last answer came
        self._since_ms: int | None = None  # when the first question without an answer was asked

    def answered(self) -> None:
        """Note an answer."""
        self._since_ms, self._heard_ms = None, self._now_ms()

    def is_over(self, asked_ms: int) -> bool:
        """Note that a question of this time has no answer. True if none came for RENEW_MS; then the time begins
        anew."""
        if self._since_ms is None:
            self._since_ms = asked_ms if self._heard_ms is None else max(asked_ms, self._heard_ms)
        if self._now_ms() < self._since_ms + RENEW_MS:
            return False
        self._since_ms = None
        return True


class _Held:
    """A client, and how many threads use it."""

    def __init__(self, client: Any) -> None:
        self.client, self.patience, self.users = client, Patience(), 0


class Renewed:
    """One client after the other, made by `opens` when it is needed, ended by `ends`. Safe for several threads.

    One that is replaced, or closed, while it is used is ended by the last thread that uses it.
    """

    def __init__(self, opens: Callable[[], Any], ends: Callable[[Any], object]) -> None:
        """`opens` raises zkcoord's errors."""
        self._opens, self._ends, self._lock = opens, ends, threading.Lock()
        self._held: _Held | None = None
        self.closed = False

    def close(self) -> None:
        """End the client: now, or when nobody uses it any more. Make none again. Idempotent."""
        with self._lock:
            self.closed = True
            held, self._held = self._held, None
            free = held is not None and not held.users
        if held is not None and free:
            self._ends(held.client)

    @contextmanager
    def used(self) -> Iterator[Any]:
        """The present client, which is not ended within this block. UsageError when it is closed."""
        with self._using() as held:
            yield held.client

    def ask(self, question: Callable[[Any], Told], is_answer: Callable[[Told], bool] = lambda _: True) -> Told:
        """Return what `question` returns, or raise what it raises, about the present client. An UnavailableError, and
        what `is_answer` says of, is no answer; a client that had none for long is replaced."""
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
                self._held = _Held(self._opens())
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
                held.patience.answered()
            elif held is self._held and held.patience.is_over(asked_ms):
                client = another(self._opens, held.client)
                self._held = held if client is held.client else _Held(client)


def another(opens: Callable[[], Any], kept: Any) -> Any:
    """Return a new client, or the one that is kept where none can be made, as while a certificate is replaced."""
    try:
        return opens()
    except ZkcoordError as error:
        LOG.warning("a Kafka client that has no answer is kept, as another one cannot be made: %s", error)
        return kept


def end_client(admin: Any) -> None:
    """End connections and threads of an AdminClient, whoever still refers to it."""
    ends = getattr(admin, "__exit__", None)  # before confluent-kafka 2.13 only its last reference ends a client
    if ends is not None:
        end_apart(ends, None, None, None)


def end_apart(end: Callable[..., object], *given: object) -> None:
    """Call what ends a client of librdkafka's. It may take long, and is waited for CLOSE_SECONDS at most."""
    ending = threading.Thread(target=end, args=given, name="zkcoord-kafka-close", daemon=True)
    ending.start()
    ending.join(CLOSE_SECONDS)
