"""Which Kafka clients a Python worker keeps between its tasks, for which tasks, and how long. Without Kafka."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from zkcoord.spark.readers import kept_clients
from zkcoord.spark.readers.kept_clients import IDLE_MAX, IdleClients, idle_clients, key_of


class Client:
    """A client that can only be closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_client_is_taken_once_and_by_its_own_configuration_only() -> None:
    idle, early, late = IdleClients(), Client(), Client()
    idle.put("a", early)
    idle.put("a", late)
    assert idle.take("b") is None
    assert [idle.take("a"), idle.take("a"), idle.take("a")] == [late, early, None]
    assert (early.closed, late.closed) == (0, 0)


def test_of_more_clients_than_are_kept_the_oldest_is_closed() -> None:
    idle, clients = IdleClients(), [Client() for _ in range(IDLE_MAX + 2)]
    for number, each in enumerate(clients):
        idle.put(number, each)
    assert [each.closed for each in clients] == [1, 1, *[0] * IDLE_MAX]
    assert [idle.take(number) for number in range(len(clients))] == [None, None, *clients[2:]]


def test_a_client_that_no_task_takes_is_closed_after_its_time() -> None:
    idle, first, second = IdleClients(idle_max_ms=1), Client(), Client()
    idle.put("a", first)
    wait_until(lambda: first.closed, "the first is closed")
    idle.put("a", second)
    wait_until(lambda: second.closed, "the second is closed, too")
    assert (first.closed, second.closed, idle.take("a")) == (1, 1, None)


def test_a_client_in_use_is_not_closed_when_its_time_is_over() -> None:
    idle, used, other = IdleClients(idle_max_ms=20), Client(), Client()
    idle.put("a", used)
    assert idle.take("a") is used
    idle.put("b", other)
    wait_until(lambda: other.closed, "what was idle is closed")
    assert used.closed == 0


def test_kept_clients_belong_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, kept_clients.MODULE, raising=False)
    mine = idle_clients()
    mine.put("a", Client())
    assert idle_clients() is mine
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child that was forked
    assert idle_clients() is not mine
    assert idle_clients().take("a") is None


def test_another_setting_or_another_file_behind_a_setting_is_another_configuration(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    settings = {"bootstrap.servers": "a:1", "sasl.password": "old", "ssl.ca.location": str(ca)}
    absent = key_of(settings)
    ca.write_text("first")
    first = key_of(settings)
    assert first == key_of(dict(reversed(settings.items())))
    (tmp_path / "new.pem").write_text("other")  # the file is as long as the first one
    (tmp_path / "new.pem").rename(ca)
    keys = [absent, first, key_of(settings), key_of({**settings, "sasl.password": "new"})]
    assert len(set(keys)) == len(keys)
