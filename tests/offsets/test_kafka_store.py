"""The store of offsets in Kafka, on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import UnavailableError, UnknownPartitionError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits

PARTITIONS = 1_100  # more than fit into one request
NOWHERE = "127.0.0.1:1"


def ours(offset: int) -> KafkaCommit:
    return KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure("a1", 9), incarnation=1, generation=2, thread="g_h-0"))


@pytest.fixture
def store(kafka: EmbeddedKafka) -> Iterator[KafkaCommits]:
    with KafkaClient(kafka.bootstrap_servers) as client:
        yield KafkaCommits(client)


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)


def new_topic(admin: AdminClient, partitions: int) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(admin, topic, partitions)
    return topic


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def on_real_broker(store: KafkaCommits, group: str, commits: dict[TopicPartition, KafkaCommit]) -> CommitOutcome:
    """Commit as soon as the broker's coordinator of groups is there."""
    outcomes: list[CommitOutcome] = []

    def committed() -> bool:
        outcomes[:] = [store.commit(group, commits)]
        return not outcomes[0].unknown

    wait_until(committed, "Kafka answers a commit")
    return outcomes[0]


@pytest.mark.kafka
@pytest.mark.kafka4
def test_commits_of_many_partitions_come_back_with_what_they_say_of_themselves(
    store: KafkaCommits, admin: AdminClient
) -> None:
    topic, group = new_topic(admin, PARTITIONS), new_group()
    commits = {TopicPartition(topic, n): ours(n * 7) for n in range(PARTITIONS)}
    assert on_real_broker(store, group, commits) == CommitOutcome(done=frozenset(commits))
    assert store.read([group]).found == {group: commits}


@pytest.mark.kafka
@pytest.mark.kafka4
def test_a_commit_by_any_other_program_is_foreign_and_a_group_without_commits_has_none(
    store: KafkaCommits, admin: AdminClient
) -> None:
    topic, group = new_topic(admin, 1), new_group()
    on_real_broker(store, group, {TopicPartition(topic, 0): ours(5)})
    commit_as_stranger(admin, group, topic, {0: 3}, "by hand")
    found = store.read([group, f"{group}-nobody"])
    assert found.found == {group: {TopicPartition(topic, 0): KafkaCommit(offset=3)}, f"{group}-nobody": {}}
    assert found.unknown == {}


@pytest.mark.kafka
@pytest.mark.kafka4
def test_partitions_that_could_not_be_committed_are_named_one_by_one(store: KafkaCommits, admin: AdminClient) -> None:
    topic, group = new_topic(admin, 1), new_group()
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 7)
    outcome = on_real_broker(store, group, {good: ours(5), bad: ours(6)})
    assert (outcome.done, outcome.unknown) == ({good}, {})
    assert {p: type(error) for p, error in outcome.refused.items()} == {bad: UnknownPartitionError}
    assert f"commit the offset of {bad} of group {group}" in str(outcome.error())
    assert store.read([group]).found == {group: {good: ours(5)}}


@pytest.mark.kafka
@pytest.mark.kafka4
def test_a_group_id_that_a_real_consumer_uses_is_refused_with_who_must_act(
    store: KafkaCommits, admin: AdminClient, kafka: EmbeddedKafka
) -> None:
    topic, group = new_topic(admin, 1), new_group()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    consumer = Consumer(settings, logger=QUIET)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
        outcome = on_real_broker(store, group, {TopicPartition(topic, 0): ours(5)})
        assert outcome.done == frozenset()
        assert isinstance(outcome.error(), UsageError)
        assert f"consumers of Kafka's own protocol use the group id {group}; stop them" in str(outcome.error())
    finally:
        consumer.close()


@pytest.mark.kafka
def test_f159_consumers_of_kafkas_new_protocol_are_seen_in_a_group_and_prevent_commits(
    brokers: Callable[[str], KafkaBroker],
) -> None:
    servers = brokers(KAFKA_4_VERSION).bootstrap_servers
    topic, group = new_topic(AdminClient({"bootstrap.servers": servers}, logger=QUIET), 1), new_group()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"}, logger=QUIET)
    with KafkaClient(servers) as client:
        store = KafkaCommits(client)
        assert store.users(group) == []
        consumer.subscribe([topic])
        try:
            wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
            assert store.users(group) == ["rdkafka on /127.0.0.1"]
            refused = on_real_broker(store, group, {TopicPartition(topic, 0): ours(5)}).error()
            assert isinstance(refused, UsageError)
            assert f"consumers of Kafka's own protocol use the group id {group}; stop them" in str(refused)
        finally:
            consumer.close()
        wait_until(lambda: store.users(group) == [], "it has left")
        assert on_real_broker(store, group, {TopicPartition(topic, 0): ours(5)}).error() is None


def test_a_commit_that_nobody_answers_is_unknown_and_never_taken_for_refused() -> None:
    p = TopicPartition("t", 0)
    with KafkaClient(NOWHERE) as client:
        store = KafkaCommits(client, timeout_ms=300)
        outcome = store.commit("g", {p: ours(1)})
        assert (outcome.done, outcome.refused, list(outcome.unknown)) == (frozenset(), {}, [p])
        assert isinstance(outcome.error(), UnavailableError)
        found = store.read(["g", "h"])
        assert (found.found, sorted(found.unknown)) == ({}, ["g", "h"])
