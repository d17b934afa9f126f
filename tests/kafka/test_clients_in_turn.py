"""How one client of librdkafka replaces another: when it is replaced, which thread ends it, and when none can be
made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS
from zkcoord.errors import RefusedError, UnavailableError, UsageError, ZkcoordError
from zkcoord.kafka import renewed
from zkcoord.kafka.renewed import RENEW_MS, Renewed, end_apart

AWAY = UnavailableError("Kafka at h:1 cannot be reached: no brokers; check that it runs")


class Clients:
    """Clients that are replaced, on a clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        self.made, self.ended = list[str](), list[str]()
        self.refusal: ZkcoordError | None = None  # why no client can be made
        monkeypatch.setattr(renewed, "mono_ms", lambda: self.now_ms)
        self.renewed = Renewed(self._open, self.ended.append)

    def _open(self) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.made.append(f"client {len(self.made)}")
        return self.made[-1]

    def ask(self, end_ms: int, answered: bool, meanwhile: Callable[[], object] = lambda: None) -> str:
        """Ask a question that ends at `end_ms`. Return the client that it used."""

        def question(client: str) -> str:
            meanwhile()
            self.now_ms = end_ms
            return client

        return self.renewed.ask(question, lambda _: answered)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    return Clients(monkeypatch)


def test_f269_a_client_is_replaced_after_a_long_time_without_an_answer(
    clients: Clients,
) -> None:
    clients.ask(0, True)
    clients.now_ms = 5_000
    clients.ask(9_000, False)  # unanswered since 5_000
    clients.ask(5_000 + RENEW_MS - 1, False)
    assert (clients.made, clients.ended) == (["client 0"], [])
    clients.ask(5_000 + RENEW_MS, False)
    assert (clients.made, clients.ended) == (["client 0", "client 1"], ["client 0"])
    clients.now_ms = 40_000
    assert clients.ask(40_000 + RENEW_MS - 1, False) == "client 1"
    clients.ask(40_000 + RENEW_MS, True)
    clients.ask(40_000 + RENEW_MS + 1, False)
    assert len(clients.made) == 2
    clients.ask(40_000 + 2 * RENEW_MS, False)
    assert clients.ended == ["client 0", "client 1"]


def test_a_question_that_is_not_answered_though_later_ones_were_counts_from_the_last_answer(clients: Clients) -> None:
    def later() -> None:
        clients.now_ms = 8_000
        clients.ask(9_000, True)

    clients.ask(RENEW_MS, False, later)
    clients.ask(9_000 + RENEW_MS - 1, False)
    assert clients.ended == []
    clients.ask(9_000 + RENEW_MS, False)
    assert clients.ended == ["client 0"]


def test_an_error_that_says_that_nobody_answered_counts_and_another_one_is_an_answer(clients: Clients) -> None:
    def raises(error: ZkcoordError, at_ms: int) -> None:
        def question(_: object) -> None:
            raise error

        clients.now_ms = at_ms
        with pytest.raises(type(error)):
            clients.renewed.ask(question)

    raises(AWAY, 0)
    raises(RefusedError("no right"), RENEW_MS - 1)
    raises(AWAY, RENEW_MS)
    assert clients.ended == []
    raises(AWAY, 2 * RENEW_MS)
    assert clients.ended == ["client 0"]


def test_f302_a_replaced_client_serves_its_users_and_the_last_one_ends_it(
    clients: Clients,
) -> None:
    def first() -> None:
        clients.ask(RENEW_MS, False, second)
        assert (clients.made, clients.ended) == (["client 0", "client 1"], [])
        assert clients.ask(RENEW_MS, True) == "client 1"
        with clients.renewed.used() as present:
            assert present == "client 1"

    def second() -> None:
        clients.ask(RENEW_MS, False)
        assert clients.ended == []

    clients.ask(3 * RENEW_MS, False, first)  # this question used the replaced client, so the new one has its whole time
    assert (clients.made, clients.ended) == (["client 0", "client 1"], ["client 0"])


def test_a_client_is_closed_when_nobody_uses_it_any_more_and_none_is_made_then(clients: Clients) -> None:
    with clients.renewed.used():
        clients.renewed.close()
        with pytest.raises(UsageError, match="is closed"):
            clients.ask(0, True)
        assert clients.ended == []
    assert clients.ended == ["client 0"]
    clients.renewed.close()
    assert (clients.made, clients.ended) == (["client 0"], ["client 0"])


def test_a_client_closed_within_an_unanswered_question_ends_once_without_successor(
    clients: Clients,
) -> None:
    clients.ask(RENEW_MS, False, clients.renewed.close)
    assert (clients.made, clients.ended) == (["client 0"], ["client 0"])


def test_threads_that_ask_at_once_make_one_client_and_replace_it_once(clients: Clients) -> None:
    together, opens = threading.Barrier(3), clients.renewed._opens

    def slowly() -> object:
        time.sleep(0.05)
        return opens()

    clients.renewed._opens = slowly
    with ThreadPoolExecutor(3) as pool:
        asked = list(pool.map(lambda _: clients.ask(RENEW_MS, False, together.wait), range(3)))
    assert asked == ["client 0"] * 3
    assert (clients.made, clients.ended) == (["client 0", "client 1"], ["client 0"])


def test_f300_a_client_without_an_answer_is_kept_while_another_one_cannot_be_made(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    clients.ask(0, True)
    clients.refusal = UsageError("ssl.ca.location: no such file")
    assert clients.ask(RENEW_MS, False) == clients.ask(RENEW_MS + 1, False) == "client 0"
    assert caplog.messages == [
        "a Kafka client that has no answer is kept, as another one cannot be made: ssl.ca.location: no such file"
    ]
    clients.refusal = None
    clients.ask(2 * RENEW_MS - 1, False)
    assert clients.made == ["client 0"]
    clients.ask(2 * RENEW_MS, False)
    assert (clients.made, clients.ended) == (["client 0", "client 1"], ["client 0"])


def test_a_client_that_takes_long_to_end_is_waited_for_a_moment_and_holds_no_program_up() -> None:
    released, told = threading.Event(), list[threading.Thread]()

    def ends() -> None:
        told.append(threading.current_thread())
        released.wait(PATIENCE_SECONDS)

    end_apart(ends, seconds=0.01)
    (ending,) = told
    waits = ending.is_alive()
    released.set()
    ending.join()
    assert waits and ending.daemon
