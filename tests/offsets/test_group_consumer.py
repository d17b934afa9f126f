"""A group's commits through a consumer that never subscribes, on a real broker and without one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import QUIET, Broker
from tests.offsets.test_kafka_store import NOWHERE, PARTITIONS, admin, new_group, new_topic, ours
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.group_consumer import GroupConsumer
from zkcoord.offsets.kafka_store import KafkaCommits

__all__ = ["admin"]

TIMEOUT_MS = 5_000


@pytest.fixture
def group() -> str:
    return new_group()


@pytest.fixture
def store(kafka: EmbeddedKafka, group: str) -> Iterator[GroupConsumer]:
    with closing(GroupConsumer(group, kafka.bootstrap_servers, {}, timeout_ms=TIMEOUT_MS)) as consumer:
        yield consumer


def committed(store: GroupConsumer, commits: dict[TopicPartition, KafkaCommit]) -> CommitOutcome:
    """Commit, as soon as the broker's coordinator of groups is there."""
    outcomes: list[CommitOutcome] = []

    def answered() -> bool:
        outcomes[:] = [store.commit(commits)]
        return not outcomes[0].unknown

    wait_until(answered, "Kafka answers a commit")
    return outcomes[0]


@pytest.mark.kafka
def test_commits_of_many_partitions_come_back_with_what_they_say_of_themselves(
    store: GroupConsumer, group: str, admin: AdminClient, kafka: EmbeddedKafka
) -> None:
    topic = new_topic(admin, PARTITIONS)
    commits = {TopicPartition(topic, n): ours(n * 7) for n in range(1, PARTITIONS)}
    some = [TopicPartition(topic, 3), TopicPartition(topic, 4)]
    assert committed(store, commits) == CommitOutcome(done=frozenset(commits))
    assert store.read(some) == {p: commits[p] for p in some}
    assert store.read(list(commits)) == commits
    assert store.read([TopicPartition(topic, 0)]) == store.read([]) == {}
    with KafkaClient(kafka.bootstrap_servers) as client:
        seen = KafkaCommits(client)
        assert seen.read([group]).found == {group: commits}
        assert seen.users(group) == []  # it is no member


def test_partitions_that_could_not_be_committed_are_named_one_by_one() -> None:
    broker = Broker()
    topic = broker.topic()
    first, second, bad = (TopicPartition(topic, n) for n in (0, 1, 70))
    with closing(GroupConsumer("g", broker.bootstrap_servers, {}, timeout_ms=TIMEOUT_MS)) as store:
        assert committed(store, {first: ours(3), second: ours(4)}).done == {first, second}
        both: dict[TopicPartition, KafkaCommit] = {first: ours(5), second: ours(4), bad: ours(6)}
        for commits, done in ((both, {first, second}), ({bad: ours(6)}, set[TopicPartition]())):
            outcome = committed(store, commits)
            assert (outcome.done, outcome.unknown) == (done, {})
            assert {p: type(error) for p, error in outcome.refused.items()} == {bad: UnknownPartitionError}
            assert f"commit the offset of {bad} of group" in str(outcome.error())
        assert store.read([first, second]) == {first: ours(5), second: ours(4)}


@pytest.mark.kafka
def test_a_group_id_that_a_real_consumer_uses_is_refused_with_who_must_act(
    store: GroupConsumer, group: str, admin: AdminClient, kafka: EmbeddedKafka
) -> None:
    topic = new_topic(admin, 1)
    p = TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}, logger=QUIET)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
        outcome = committed(store, {p: ours(5)})
        assert outcome.done == frozenset()
        assert isinstance(outcome.error(), UsageError)
        assert f"consumers of Kafka's own protocol use the group id {group}; stop them" in str(outcome.error())
    finally:
        consumer.close()
    wait_until(lambda: store.commit({p: ours(6)}).done == {p}, "Kafka takes it when that one has left")


def test_what_nobody_answers_is_unknown_and_never_taken_for_refused() -> None:
    p = TopicPartition("t", 0)
    with closing(GroupConsumer("g", NOWHERE, {}, timeout_ms=1_000)) as store:
        outcome = store.commit({p: ours(1)})
        assert (outcome.done, outcome.refused, list(outcome.unknown)) == (frozenset(), {}, [p])
        assert isinstance(outcome.error(), UnavailableError)
        with pytest.raises(UnavailableError, match="tell the offsets of group g"):
            store.read([p])


def test_a_closed_one_ends_a_commit_that_is_under_way_and_takes_no_other() -> None:
    p, found = TopicPartition("t", 0), list[CommitOutcome]()
    store = GroupConsumer("g", NOWHERE, {}, timeout_ms=60_000)
    thread = threading.Thread(target=lambda: found.append(store.commit({p: ours(1)})))
    thread.start()
    wait_until(lambda: store._busy, "the commit is under way")
    store.close()
    thread.join(20)
    assert [set(outcome.unknown) for outcome in found] == [{p}]
    with pytest.raises(UsageError, match="is closed"):
        store.commit({p: ours(1)})
    store.close()


def test_settings_of_a_consumer_that_reads_do_not_matter_to_one_that_commits() -> None:
    settings = {"group.id": "another", "group.protocol": "consumer", "enable.auto.commit": "true", "client.id": "c"}
    settings |= {"session.timeout.ms": "45000", "fetch.wait.max.ms": "5000", "group.instance.id": uuid.uuid4().hex}
    GroupConsumer("g", NOWHERE, settings, timeout_ms=1_000).close()
