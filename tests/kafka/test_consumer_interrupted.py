"""A poll-style consumer whose own thread is interrupted anywhere, as by Ctrl-C. The fetching is played."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.interrupted import at_call
from tests.kafka.helpers import Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.kafka.consumer import KafkaConsumer

A = TopicPartition("clicks", 0)
FILES = ("zkcoord/kafka/consumer.py", "zkcoord/kafka/fetch_positions.py", "tests/kafka/helpers.py")


def raised() -> None:
    raise KeyboardInterrupt


def consumer_of(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> KafkaConsumer:
    """Return a consumer that holds A. Each poll returns its next message, without a Kafka."""
    made = KafkaConsumer("zk", "127.0.0.1:1", "g", ["clicks"], membership=coordinator, rebalance_timeout_ms=2_000)
    monkeypatch.setattr(made._resets, "check_credentials", lambda: None)

    def turn(count: int, wait_seconds: float) -> list[SimpleNamespace]:
        with made._changed:
            made._positions.unbar(A)
            offset = made.position(A)
            epoch = made._positions.wanted()[A][0]
            return [SimpleNamespace(offset=offset)] if made._positions.hand_out(A, epoch, offset, True) else []

    monkeypatch.setattr(made._delivery, "turn", turn)
    made.start()
    coordinator.give({A: 0})
    return made


def interrupted(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int, Coordinator]:
    """Interrupt a consumer at this call. Return where that was, and how many messages its user has processed."""
    coordinator, processed = Coordinator(), 0
    consumer = consumer_of(coordinator, monkeypatch)
    try:
        with consumer, at_call(number, FILES, raised) as found:
            for _ in range(2):
                consumer.poll(0)
                processed += 1
                consumer.commit()
            consumer.commit({A: processed})
            consumer.poll(0)
            processed += 1
            consumer.poll(0)
    except KeyboardInterrupt:
        pass
    return found, processed, coordinator


def test_f330_an_interruption_anywhere_in_poll_or_commit_leaves_a_consumer_that_can_be_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: list[tuple[str, int, object]] = []
    for number in itertools.count(1):
        found, processed, coordinator = interrupted(number, monkeypatch)
        if not found:
            break
        waited = any(each.name == "zkcoord.kafka" for each in caplog.records)  # a stop, for what is not in work
        if coordinator.left != 1 or coordinator.store.get(A, 0) > processed or waited:
            wrong.append((found[0], processed, coordinator.store))
            caplog.clear()
    assert (wrong, number > 50) == ([], True)


def test_f330_a_consumer_that_a_signals_handler_closes_in_a_commit_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = Coordinator()
    consumer = consumer_of(coordinator, monkeypatch)
    consumer.poll(0)
    told = r"inside of commit \(by a signal handler\?\); close when commit has returned"
    with at_call(1, ["tests/kafka/helpers.py"], consumer.close), pytest.raises(UsageError, match=told):
        consumer.commit()
    consumer.close()
    assert (coordinator.store, coordinator.left) == ({A: 1}, 1)
