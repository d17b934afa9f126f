"""Where the poll-style consumer reads: positions outside of the log, seeks, pauses; and refusals by Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS, Broker, Coordinator, Open, read
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, RefusedError, UnknownPartitionError, UsageError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.resets import Log, Resets

LOSS_SECONDS_MAX = 60.0  # only a failure takes so long


@pytest.mark.parametrize(("from_beginning", "goes_on_at"), [(False, 20), (True, 0)])
def test_an_offset_ahead_of_the_log_is_reset_by_the_policy_and_reported(
    open_consumer: Open,
    coordinator: Coordinator,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    from_beginning: bool,
    goes_on_at: int,
) -> None:
    a = TopicPartition(broker.topic([20]), 0)
    consumer = open_consumer(from_beginning=from_beginning)
    assert coordinator.settings["reset"]((a,)) == {a: goes_on_at}
    coordinator.give({a: 3000})
    handed: list[int] = []

    def going_on() -> bool:
        message = consumer.poll(0)  # the log's first message may come at once
        handed.extend([] if message is None else [message.offset()])
        return bool(handed) or consumer.position(a) == goes_on_at

    wait_until(going_on, "the position")
    broker.produce(a, [b"20"])
    handed.extend([] if handed else [offset for _, offset in read(consumer, 1)])
    assert handed[0] == goes_on_at
    policy = "earliest" if from_beginning else "latest"
    assert f"offset 3000 of {a} is outside of its log (0 to 20): going on at {goes_on_at} ({policy})" in caplog.text


def test_an_offset_behind_the_log_is_reset_by_the_policy_and_reported(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    a = TopicPartition(broker.topic([]), 0)
    broker.produce(a, [bytes(900_000)] * 10)  # the broker keeps 5 MB, so the log's start moves
    consumer = open_consumer(from_beginning=True)
    first = coordinator.settings["reset"]((a,))[a]
    assert first > 0
    coordinator.give({a: 0})
    assert read(consumer, 1) == [(0, first)]
    assert f"offset 0 of {a} is outside of its log ({first} to 10): going on at {first} (earliest)" in caplog.text


def test_a_position_outside_of_an_unknown_log_is_checked_again(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, asked = TopicPartition(broker.topic([5]), 0), list[TopicPartition]()
    log_of = Resets.log_of

    def unknown_once(self: Resets, partition: TopicPartition) -> Log:
        asked.append(partition)
        if len(asked) == 1:
            raise UnknownPartitionError(f"Kafka does not know {partition}", [partition])
        return log_of(self, partition)

    monkeypatch.setattr(Resets, "log_of", unknown_once)
    consumer = open_consumer(from_beginning=True)
    coordinator.give({a: 99})
    assert read(consumer, 1) == [(0, 0)]
    assert asked == [a, a]


def test_seek_pause_and_resume(open_consumer: Open, coordinator: Coordinator, broker: Broker) -> None:
    a, b = (TopicPartition(broker.topic([20, 20]), partition) for partition in (0, 1))
    consumer = open_consumer()
    coordinator.give({a: 0, b: 10})
    read(consumer, 4)
    consumer.pause([a, TopicPartition("else", 0)])
    consumer.seek(b, 15)
    assert read(consumer, 5) == [(1, offset) for offset in range(15, 20)]
    assert consumer.poll(0.1) is None
    consumer.seek(a, 17)
    consumer.resume([a])
    assert read(consumer, 3) == [(0, offset) for offset in range(17, 20)]
    with pytest.raises(FencedError):
        consumer.seek(TopicPartition("else", 0), 1)
    with pytest.raises(FencedError):
        consumer.position(TopicPartition("else", 0))


@pytest.mark.parametrize(
    ("key", "value"),
    [("enable.auto.commit", "true"), ("group.id", "other"), ("auto.offset.reset", "latest"), ("no.such.key", "1")],
)
def test_settings_that_are_not_the_users_are_refused(open_consumer: Open, key: str, value: str) -> None:
    with pytest.raises(UsageError, match=key):
        open_consumer(config={key: value})


def test_refused_credentials_raise_before_the_join_and_an_absent_broker_is_waited_for(
    coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "zkcoord.kafka")
    config = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    config["sasl.password"] = "secret"
    refused = KafkaConsumer(
        *("zk:2181", broker.bootstrap_servers, "g", ["clicks"]), config=config, membership=coordinator
    )
    for join in (refused.start, lambda: refused.poll(0.0)):
        with pytest.raises(RefusedError, match=f"Kafka at {broker.bootstrap_servers} refused to .*credentials"):
            join()
    refused.close()
    assert (coordinator.joined, coordinator.left) == (0, 0)
    with KafkaConsumer("zk:2181", "127.0.0.1:1", "g", ["clicks"], membership=coordinator) as away:
        assert away.poll(0.3) is None
    assert (coordinator.joined, coordinator.left) == (1, 1)
    assert "secret" not in caplog.text


def test_a_commit_that_was_decided_before_a_partition_came_back_is_refused(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    """After the commit was decided, and before the membership gets it, the partition is lost, and started again from
    the committed offset."""
    a = TopicPartition(broker.topic([5]), 0)
    consumer = open_consumer()
    coordinator.give({a: 0})
    read(consumer, 3)
    coordinator.gate.clear()
    raised: list[Exception] = []

    def commit() -> None:
        try:
            consumer.commit()
        except FencedError as error:
            raised.append(error)

    committing = threading.Thread(target=commit)
    committing.start()
    assert coordinator.committing.wait(PATIENCE_SECONDS)
    coordinator.lose([a])
    coordinator.give({a: 1})
    coordinator.gate.set()
    committing.join(PATIENCE_SECONDS)

    assert [str(error) for error in raised] == ["decided before it was started again"]
    assert (coordinator.commits, consumer.position(a)) == ([], 1)


def test_a_loss_is_heard_while_kafka_is_asked_where_partitions_begin(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered, a = threading.Event(), threading.Event(), TopicPartition("t", 0)

    def hang(resets: Resets, partitions: Any) -> dict[TopicPartition, int]:
        asked.set()
        assert answered.wait(PATIENCE_SECONDS)
        return {}

    monkeypatch.setattr(Resets, "positions", hang)
    consumer = KafkaConsumer("zk:2181", "127.0.0.1:1", "g", ["t"], membership=coordinator)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(coordinator.settings["reset"], (a,))
        assert asked.wait(PATIENCE_SECONDS)
        try:
            pool.submit(coordinator.settings["on_lost"], (a,)).result(LOSS_SECONDS_MAX)
        finally:
            answered.set()
    consumer.close()


def test_f63_a_wrong_type_is_refused_by_every_call(open_consumer: Open, coordinator: Coordinator) -> None:
    consumer: Any = open_consumer()
    coordinator.give({TopicPartition("t", 0): 0})
    wrong: Any = ("t", 0)
    calls: list[Callable[[], object]] = [
        lambda: consumer.commit({wrong: 5}),
        lambda: consumer.commit({TopicPartition("t", 0): 0.0}),
        lambda: consumer.commit([TopicPartition("t", 0)]),
        lambda: consumer.seek(wrong, 5),
        lambda: consumer.seek(TopicPartition("t", 0), "5"),
        lambda: consumer.seek(TopicPartition("t", 0), -1),
        lambda: consumer.position(wrong),
        lambda: consumer.pause([wrong]),
        lambda: consumer.pause(TopicPartition("t", 0)),
        lambda: consumer.resume("t-0"),
        lambda: consumer.poll("1"),
        lambda: consumer.poll(-1),
        lambda: consumer.poll(float("nan")),
        lambda: consumer.poll_many(1.5, 0),
        lambda: consumer.poll_many(0, 0),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()
    assert consumer.assignment() == (TopicPartition("t", 0),)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("bootstrap_servers", None), ("bootstrap_servers", ["h:1"]), ("config", "a=b"), ("from_beginning", "no")),
        *(("rebalance_timeout_ms", "60000"), ("zookeeper", None), ("topics", 7), ("instance", "a b"), ("threads", 0)),
    ],
)
def test_f63_a_poll_style_consumer_refuses_arguments_of_a_wrong_type(name: str, wrong: Any) -> None:
    right = {"zookeeper": "zk:2181", "bootstrap_servers": "h:1", "group": "g", "topics": ["t"]}
    with pytest.raises(UsageError):
        KafkaConsumer(**{**right, name: wrong})


def test_a_consumer_that_is_closed_while_it_starts_does_not_join(
    broker: Broker, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closed it between the last check and the joining; the consumer then stayed a member for ever."""
    consumer = KafkaConsumer("zk:2181", broker.bootstrap_servers, "g", ["clicks"], membership=coordinator)
    checked = consumer._check_open
    closing: list[threading.Thread] = []

    def check_then_close() -> None:
        checked()
        if consumer._started and not closing:  # this is the last check
            closing.append(threading.Thread(target=consumer.close))
            closing[0].start()
            closing[0].join(1)  # the thread ends here unless joining and closing exclude each other

    monkeypatch.setattr(consumer, "_check_open", check_then_close)
    consumer.start()
    closing[0].join(PATIENCE_SECONDS)

    assert (coordinator.joined, coordinator.left) == (1, 1)


def test_f63_an_exit_that_ended_the_membership_is_raised_by_poll(open_consumer: Open, coordinator: Coordinator) -> None:
    consumer = open_consumer()
    coordinator.error = ends = SystemExit(3)
    with pytest.raises(SystemExit) as raised:
        consumer.poll(5)
    assert raised.value is ends
