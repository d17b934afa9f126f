"""The poll-style consumer with librdkafka's own broker; the test plays the membership."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS, Broker, Coordinator, Open, read, where
from tests.waiting import wait_until
from zkcoord.consumer import Consumer
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, SchemaError, UnavailableError, UsageError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.ports import Options
from zkcoord.tree.registration import decode_registration

AtWork = Callable[[int], tuple[KafkaConsumer, TopicPartition]]


@pytest.fixture
def at_work(open_consumer: Open, coordinator: Coordinator, broker: Broker) -> AtWork:
    """Return a consumer that has polled this number of messages of its only partition. The last one is in work."""

    def work(count: int) -> tuple[KafkaConsumer, TopicPartition]:
        partition = TopicPartition(broker.topic(), 0)
        consumer = open_consumer()
        coordinator.give({partition: 0})
        read(consumer, count)
        return consumer, partition

    return work


def finals(stop: Future[dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Return the offsets that `on_stop` returned."""
    return stop.result(PATIENCE_SECONDS)


def test_the_membership_gets_its_settings(open_consumer: Open, coordinator: Coordinator, broker: Broker) -> None:
    open_consumer(threads=3, instance="etl-1", session_timeout_ms=6000, config={"client.id": "c"})
    settings = {key: value for key, value in coordinator.settings.items() if not callable(value)}
    assert settings == {
        "zookeeper": "zk:2181",
        "group": "g",
        "topics": ["clicks"],
        "threads": 3,
        "instance": "etl-1",
        "session_timeout_ms": 6000,
        "bootstrap_servers": broker.bootstrap_servers,
        "kafka_config": {"client.id": "c"},
    }


def test_every_setting_of_a_membership_can_be_given() -> None:
    called = {"on_start", "on_stop", "on_lost", "on_replay", "reset", "cluster_id"}
    settings = inspect.signature(Consumer).parameters.keys() - called - {"bootstrap_servers", "kafka_config"}
    own = {"bootstrap_servers", "from_beginning", "stop_needs_ms", "config", "membership", "settings"}
    assert inspect.signature(KafkaConsumer).parameters.keys() - own | Options.__annotations__.keys() == settings


def test_a_poll_style_consumer_offers_to_keep_offsets_in_kafka() -> None:
    consumer = KafkaConsumer("127.0.0.1:1", "127.0.0.1:2", "g", ["t"])
    found = decode_registration(consumer._membership._role._settings.registration(6_000))  # type: ignore[attr-defined]
    assert found.offsets == ("zookeeper", "dual", "kafka")


def test_reads_what_it_is_given_from_where_it_is_given(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a, b = (TopicPartition(broker.topic([20, 20]), partition) for partition in (0, 1))
    consumer = open_consumer()
    assert consumer.poll(0) is None
    coordinator.give({a: 15})
    assert coordinator.begun == set()
    assert read(consumer, 5) == [(0, offset) for offset in range(15, 20)]
    coordinator.give({b: 18})
    assert coordinator.begun == {a}
    assert read(consumer, 2) == [(1, 18), (1, 19)]
    assert coordinator.begun == {a, b}
    assert (consumer.poll(0.1), consumer.assignment(), consumer.position(b)) == (None, (a, b), 20)


def test_a_start_reaches_a_poll_that_waits(open_consumer: Open, coordinator: Coordinator, broker: Broker) -> None:
    a = TopicPartition(broker.topic(), 0)
    consumer = open_consumer()
    starter = threading.Timer(0.1, coordinator.give, [{a: 7}])
    starter.start()
    message = consumer.poll(PATIENCE_SECONDS)
    assert message is not None
    assert where(message) == (0, 7)
    starter.join()


def test_records_in_work_count_as_left_until_the_next_poll(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    """A program that hangs in a message has lag and makes no progress, so that it is noticed."""
    consumer = open_consumer()
    coordinator.give({TopicPartition(broker.topic([3]), 0): 0})
    finished = 0
    while finished < 3:  # a poll waits for the first message only, so the second may come with the next poll
        in_work = len(consumer.poll_many(2, PATIENCE_SECONDS))
        assert in_work
        assert coordinator.reported == (finished, in_work)
        finished += in_work
    assert consumer.poll(0) is None
    assert coordinator.reported == (3, 0)


def test_a_stop_waits_for_the_message_in_work_until_the_next_poll(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a, b = (TopicPartition(broker.topic([20, 20]), partition) for partition in (0, 1))
    consumer = open_consumer()
    coordinator.give({a: 0, b: 0})
    seen = read(consumer, 1)
    working, other = (a, b) if seen[0][0] == 0 else (b, a)
    assert finals(coordinator.take([other])) == {other: 0}  # no message of it is in work, so it stops at once
    stop = coordinator.take([working])
    wait_until(lambda: consumer._positions.wanted() == {}, "the stop has begun")
    assert not stop.done()
    assert consumer.poll(0.2) is None  # this finishes the first message; a stopping partition gives no more
    assert finals(stop) == {working: 1}


def test_a_stop_releases_idle_partitions_at_once_and_the_others_when_they_are_finished(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a, b, c = (TopicPartition(topic, number) for topic in [broker.topic([3, 2, 0])] for number in (0, 1, 2))
    consumer = open_consumer()
    coordinator.give({a: 0, b: 0, c: 0})
    consumer.pause([a])
    read(consumer, 2)
    consumer.resume([a])
    read(consumer, 1)  # a message of a is in work; that of b is finished, and is being committed:
    coordinator.gate.clear()
    commit = threading.Thread(target=consumer.commit, args=[{b: 2}])
    commit.start()
    assert coordinator.committing.wait(PATIENCE_SECONDS)
    stop = coordinator.take([a, b, c])
    wait_until(lambda: coordinator.released == [{c: 0}], "nobody is at it")
    assert consumer.assignment() == (a, b)
    coordinator.gate.set()
    commit.join(PATIENCE_SECONDS)
    wait_until(lambda: coordinator.released == [{c: 0}, {b: 2}], "it is committed")
    assert (stop.done(), consumer.assignment()) == (False, (a,))
    with pytest.raises(FencedError, match=str(b)):
        consumer.commit({b: 2})
    assert consumer.poll(0) is None
    assert finals(stop) == {a: 1}
    assert coordinator.commits == [{b: 2}]


def test_a_stop_does_not_wait_for_a_poll_that_waits(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a = TopicPartition(broker.topic([3]), 0)
    consumer = open_consumer()
    coordinator.give({a: 0})
    read(consumer, 3)
    waiting: list[Any] = []
    poller = threading.Thread(target=lambda: waiting.append(consumer.poll(PATIENCE_SECONDS)))
    poller.start()
    assert finals(coordinator.take([a])) == {a: 3}
    assert waiting == []
    consumer.close()  # ends the poll, too
    poller.join(PATIENCE_SECONDS)
    assert waiting == [None]


def test_a_commit_finishes_what_is_in_work_and_a_stop_waits_for_it(at_work: AtWork, coordinator: Coordinator) -> None:
    consumer, a = at_work(4)
    coordinator.gate.clear()
    commit = threading.Thread(target=consumer.commit)
    commit.start()
    assert coordinator.committing.wait(PATIENCE_SECONDS)
    stop = coordinator.take([a])
    wait_until(lambda: consumer._positions.wanted() == {}, "the stop has begun")
    assert not stop.done()
    coordinator.gate.set()
    commit.join(PATIENCE_SECONDS)
    assert (finals(stop), coordinator.commits) == ({a: 4}, [{a: 4}])


def test_a_message_slower_than_the_group_waits_comes_again(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (TopicPartition(broker.topic([3, 0]), partition) for partition in (0, 1))
    consumer = open_consumer(rebalance_timeout_ms=100)
    coordinator.give({a: 0, b: 0})
    read(consumer, 3)
    assert (finals(coordinator.take([a, b])), coordinator.released) == ({a: 2}, [{b: 0}])
    assert [record.getMessage() for record in caplog.records if record.name == "zkcoord.kafka"] == [
        f"messages of {a} are in work, and will come again, elsewhere: the stop waited 90 ms; raise "
        "rebalance_timeout_ms; handle messages faster"
    ]
    with pytest.raises(FencedError, match=str(a)):
        consumer.commit()
    coordinator.give({a: coordinator.store[a]})
    assert read(consumer, 1) == [(0, 2)]


def test_nothing_fetched_before_a_stop_is_handed_out_after_a_new_start(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a = TopicPartition(broker.topic([1000]), 0)
    consumer = open_consumer()
    for start in range(900, 0, -60):
        coordinator.give({a: start})
        assert [where(m)[1] for m in more(consumer, 20)] == list(range(start, start + 20))
        stop = coordinator.take([a])
        wait_until(lambda: consumer._positions.wanted() == {}, "the stop has begun")
        assert consumer.poll(0) is None
        assert finals(stop) == {a: start + 20}


def more(consumer: KafkaConsumer, count: int) -> Iterator[Any]:
    """Return the next `count` messages, read several at a time."""
    while count:
        messages = consumer.poll_many(count, PATIENCE_SECONDS)
        assert messages, "the broker is silent"
        yield from messages
        count -= len(messages)


def test_a_lost_partition_falls_silent_and_its_commit_is_refused(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a, b = (TopicPartition(broker.topic([20, 2]), partition) for partition in (0, 1))
    consumer = open_consumer()
    coordinator.give({a: 0})
    read(consumer, 3)
    coordinator.give({b: 0})
    coordinator.lose([a])
    assert read(consumer, 2) == [(1, 0), (1, 1)]
    assert consumer.poll(0.2) is None
    with pytest.raises(FencedError, match=str(a)):
        consumer.commit()
    assert coordinator.commits == [{b: 2}]  # the offset of the partition that is still held was written
    consumer.commit()
    with pytest.raises(FencedError, match=str(a)):
        consumer.commit({a: 3, b: 2})
    assert coordinator.commits == [{b: 2}]


def test_a_loss_that_a_commit_ran_into_is_reported_once(at_work: AtWork, coordinator: Coordinator) -> None:
    consumer, a = at_work(3)
    coordinator.held.clear()  # the membership knows the loss; its callback has not run yet
    with pytest.raises(FencedError, match="not the owner"):
        consumer.commit()
    coordinator.held.add(a)
    coordinator.lose([a])
    consumer.commit()
    assert (consumer.assignment(), coordinator.commits) == ((), [])


def test_nothing_is_handed_out_while_the_lease_does_not_hold(at_work: AtWork, coordinator: Coordinator) -> None:
    consumer, _ = at_work(2)
    coordinator.lease = False
    assert consumer.poll(0.3) is None
    coordinator.lease = True
    assert read(consumer, 3) == [(0, 2), (0, 3), (0, 4)]


def test_a_membership_that_ended_by_itself_ends_the_poll(open_consumer: Open, coordinator: Coordinator) -> None:
    consumer = open_consumer()
    coordinator.error = SchemaError("another layout")
    with pytest.raises(SchemaError, match="another layout"):
        consumer.poll(PATIENCE_SECONDS)


def test_commits_write_what_has_changed_and_can_be_repeated(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a = TopicPartition(broker.topic(), 0)
    consumer = open_consumer()
    coordinator.give({a: 5})
    consumer.commit()
    read(consumer, 2)
    coordinator.refusal = UnavailableError("no answer")
    with pytest.raises(UnavailableError):
        consumer.commit()
    consumer.commit()
    consumer.commit()
    consumer.commit({a: 6})
    with pytest.raises(UsageError):
        consumer.commit({a: 8})
    coordinator.refusal = FencedError("deposed")
    with pytest.raises(FencedError, match="deposed"):
        consumer.commit()
    assert coordinator.commits == [{a: 7}, {a: 6}]


def test_many_messages_come_in_the_order_of_each_partition(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    topic = broker.topic([200, 200])
    consumer = open_consumer()
    coordinator.give({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 50})
    seen = [where(message) for message in more(consumer, 350)]
    assert [offset for partition, offset in seen if partition == 0] == list(range(200))
    assert [offset for partition, offset in seen if partition == 1] == list(range(50, 200))
    with pytest.raises(UsageError):
        consumer.poll_many(0, 1.0)
    with pytest.raises(UsageError):
        consumer.poll(-1)


def test_handed_out_records_are_events_at_debug_level(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    a = TopicPartition(broker.topic([20]), 0)
    consumer = open_consumer()
    coordinator.give({a: 15})
    caplog.set_level(logging.DEBUG, "zkcoord.events")
    read(consumer, 2)
    list(more(consumer, 3))
    events = [vars(record)["zkcoord_fields"] for record in caplog.records if record.name == "zkcoord.events"]
    assert {(event["partition"], event["group"], event["consumer"]) for event in events} == {(a, "g", "g_h-1-aaaaaaaa")}
    assert [offset for event in events for offset in range(event["first"], event["last"] + 1)] == list(range(15, 20))


def test_close_gives_back_all_that_was_handed_out(at_work: AtWork, coordinator: Coordinator) -> None:
    consumer, a = at_work(3)
    consumer.close()
    consumer.close()
    assert (coordinator.store, coordinator.left) == ({a: 3}, 1)
    with pytest.raises(UsageError, match="closed"):
        consumer.poll(0)
    with pytest.raises(UsageError, match="closed"):
        consumer.commit()


def test_a_close_by_another_thread_finishes_nothing(at_work: AtWork, coordinator: Coordinator) -> None:
    consumer, a = at_work(3)
    closer = threading.Thread(target=consumer.close)
    closer.start()
    closer.join(PATIENCE_SECONDS)
    assert coordinator.store == {a: 2}


def test_an_exception_in_the_with_block_finishes_nothing(
    open_consumer: Open, coordinator: Coordinator, broker: Broker
) -> None:
    a = TopicPartition(broker.topic(), 0)
    consumer = open_consumer()
    coordinator.give({a: 0})
    with pytest.raises(ZeroDivisionError), consumer:
        for message in consumer:
            1 / (2 - message.offset())
    assert coordinator.store == {a: 2}


def test_an_interrupt_inside_of_poll_loses_no_message(
    at_work: AtWork, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, _ = at_work(2)

    def interrupted(partition: TopicPartition) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(coordinator, "allowed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(PATIENCE_SECONDS)
    assert read(consumer, 2) == [(0, 2), (0, 3)]


def test_iteration_ends_with_close(open_consumer: Open, coordinator: Coordinator, broker: Broker) -> None:
    a = TopicPartition(broker.topic([5]), 0)
    consumer = open_consumer()
    coordinator.give({a: 0})
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(message.offset() for message in consumer))
    reader.start()
    wait_until(lambda: len(seen) == 5 and consumer._polling, "five messages, and it polls for the next one")
    consumer.close()
    reader.join(PATIENCE_SECONDS)
    assert (reader.is_alive(), coordinator.store) == (False, {a: 5})


def test_two_threads_cannot_poll(open_consumer: Open) -> None:
    consumer = open_consumer()
    first = threading.Thread(target=consumer.poll, args=[PATIENCE_SECONDS])
    first.start()
    wait_until(lambda: consumer._polling, "the first polls")
    for _ in range(2):  # the refusal does not end the first one's poll
        with pytest.raises(UsageError, match="two threads"):
            consumer.poll(0)
    consumer.close()
    first.join(PATIENCE_SECONDS)
