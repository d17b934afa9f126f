"""Offsets in both stores and in Kafka, on real servers: commits, hand-overs, and what others do there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as Native

from tests.integration.brokers import BOTH, source_of
from tests.integration.stores_world import REBALANCE_MS, SESSION_MS, Cluster, Reader, soon
from zkcoord import Consumer
from zkcoord.offsets.verdict import Verdict

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

IN_KAFKA = pytest.mark.parametrize("store", ["dual", "kafka"])
RETRY_SECONDS = 100.0  # Kafka is tried again after a minute at most
WAYS = {"dual": ("dual",), "kafka": ("dual", "kafka")}


SOON_GONE = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


@pytest.fixture(scope="module", params=BOTH)
def servers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(SOON_GONE, version=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    servers.begin(2)
    return servers


def read_in(cluster: Cluster, store: str, count: int = 20, **settings: Any) -> Reader:
    """A reader of a group in this store, which has read and committed so many records of both partitions."""
    reader = Reader(cluster, **settings)
    soon(cluster, "it reads", lambda: len(reader.consumer.assignment()) == 2)
    cluster.move(*WAYS[store])
    cluster.produce(count, 0, 1)
    soon(cluster, "both are committed", lambda: equal(cluster, {0: count, 1: count}))
    return reader


def equal(cluster: Cluster, offsets: dict[int, int]) -> bool:
    """True when Kafka has these, and they count."""
    verdicts = cluster.verdicts()
    there = cluster.offsets_in_kafka()
    return (
        there == offsets
        and len(verdicts) == len(offsets)
        and all(verdict in (Verdict.EQUAL, Verdict.AHEAD) and at == offsets[n] for n, (verdict, at) in verdicts.items())
    )


@IN_KAFKA
def test_a_poll_style_consumers_commits_stand_in_kafka_and_its_successor_goes_on_there(
    cluster: Cluster, store: str
) -> None:
    reader = read_in(cluster, store)
    if store == "dual":
        assert cluster.nodes() == {0: 20, 1: 20}
    reader.leave()
    assert cluster.nodes() == {0: 20, 1: 20}
    cluster.produce(5, 0, 1)
    successor = Reader(cluster)
    soon(cluster, "the successor commits", lambda: equal(cluster, {0: 25, 1: 25}))
    assert successor.offsets(0) == successor.offsets(1) == list(range(20, 25))
    successor.leave()


@IN_KAFKA
def test_a_plain_consumer_commits_to_kafka(cluster: Cluster, store: str) -> None:
    begun: dict[object, int] = {}
    with Consumer(
        *(cluster.zookeeper, cluster.group, [cluster.topic]),
        on_start=begun.update,
        on_stop=lambda partitions: {},
        on_lost=lambda partitions: None,
        reset=lambda partitions: dict.fromkeys(partitions, 0),
        bootstrap_servers=cluster.servers,
        session_timeout_ms=SESSION_MS,
    ) as consumer:
        soon(cluster, "it reads", lambda: len(begun) == 2)
        cluster.move(*WAYS[store])
        consumer.commit({cluster.partition(0): 7, cluster.partition(1): 8})
        soon(cluster, "both are committed", lambda: cluster.offsets_in_kafka() == {0: 7, 1: 8})
        told = cluster.in_kafka()[0].stamp
        assert told is not None and told.thread.startswith(f"{consumer.consumer_id}-") and told.generation >= 1
        assert told.at_ms > 1_600_000_000_000
        assert told.incarnation == 1
    assert cluster.nodes() == {0: 7, 1: 8}


def test_a_consumer_without_bootstrap_servers_is_given_nothing_in_such_a_group(cluster: Cluster) -> None:
    reader = read_in(cluster, "dual")
    begun: dict[object, int] = {}
    with Consumer(
        *(cluster.zookeeper, cluster.group, [cluster.topic]),
        on_start=begun.update,
        on_stop=lambda partitions: {},
        on_lost=lambda partitions: None,
        session_timeout_ms=SESSION_MS,
    ) as consumer:
        soon(cluster, "it is a member", lambda: consumer.consumer_id is not None)
        cluster.produce(3, 0, 1)
        soon(cluster, "the other one reads on", lambda: equal(cluster, {0: 23, 1: 23}))
        assert not begun
    reader.leave()


@IN_KAFKA
def test_f28_a_rewind_by_hand_wins(cluster: Cluster, store: str) -> None:
    reader = read_in(cluster, store)
    cluster.set_node(0, 3)
    cluster.produce(1, 0, 1)  # in `dual` the next commit learns of the rewind
    soon(cluster, "it is committed again", lambda: equal(cluster, {0: 21, 1: 21}))
    assert reader.offsets(0)[-18:] == list(range(3, 21))
    assert reader.offsets(1) == list(range(21))
    reader.leave()


def test_f123_a_strangers_commit_is_followed_backwards_and_overwritten_forwards(cluster: Cluster) -> None:
    reader = read_in(cluster, "kafka")
    cluster.commit_as_stranger({0: 5, 1: 900})
    cluster.produce(1, 0, 1)
    soon(cluster, "it is read again", lambda: reader.offsets(0)[-16:] == list(range(5, 21)))
    soon(cluster, "both are committed", lambda: equal(cluster, {0: 21, 1: 21}))
    assert reader.offsets(1) == list(range(21))
    reader.leave()


@pytest.mark.long
@pytest.mark.parametrize("version", BOTH)
def test_f52_while_the_broker_is_away_offsets_go_to_zookeeper_and_kafka_has_them_afterwards(version: str) -> None:
    with Cluster({}, version=version) as cluster:
        cluster.begin(2)
        cluster.produce(10, 0, 1)
        begun: dict[object, int] = {}
        with Consumer(
            *(cluster.zookeeper, cluster.group, [cluster.topic]),
            on_start=begun.update,
            on_stop=lambda partitions: {},
            on_lost=lambda partitions: None,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            bootstrap_servers=cluster.servers,
            rebalance_timeout_ms=REBALANCE_MS,
            session_timeout_ms=SESSION_MS,
        ) as consumer:
            soon(cluster, "it reads", lambda: len(begun) == 2)
            cluster.move("dual", "kafka")
            consumer.commit({cluster.partition(0): 5})
            soon(cluster, "Kafka has it", lambda: cluster.offsets_in_kafka().get(0) == 5)
            cluster.kafka.kill()
            consumer.commit({cluster.partition(0): 7, cluster.partition(1): 8})
            assert cluster.nodes() == {0: 7, 1: 8}
            consumer.commit({cluster.partition(0): 9})
            assert cluster.nodes() == {0: 9, 1: 8}
            assert cluster.reports.of("kafka_commits_failed")
            cluster.kafka.start()
            cluster.connect()
            soon(cluster, "Kafka has all again", lambda: equal(cluster, {0: 9, 1: 8}), RETRY_SECONDS)
            consumer.commit({cluster.partition(0): 10})
            soon(cluster, "commits go to Kafka again", lambda: equal(cluster, {0: 10, 1: 8}))


@pytest.mark.long
def test_f121_brokers_expire_no_offset_that_is_held_and_an_expired_one_costs_no_reset(cluster: Cluster) -> None:
    reader = read_in(cluster, "kafka", offset_checkpoint_ms=10_000)
    checked_ms = time.monotonic() + 75
    while time.monotonic() < checked_ms:  # longer than the retention, nothing moves
        assert cluster.offsets_in_kafka() == {0: 20, 1: 20}
        threading.Event().wait(1)
    reader.leave()
    soon(cluster, "the broker expires them", lambda: cluster.offsets_in_kafka() == {}, 90)
    assert cluster.nodes() == {0: 20, 1: 20}
    cluster.produce(5, 0, 1)
    successor = Reader(cluster)
    soon(cluster, "the successor commits", lambda: equal(cluster, {0: 25, 1: 25}))
    assert successor.offsets(0) == successor.offsets(1) == list(range(20, 25))
    successor.leave()


@IN_KAFKA
def test_f122_beside_a_real_consumer_in_the_group_id_offsets_go_to_zookeeper(cluster: Cluster, store: str) -> None:
    reader = read_in(cluster, store)
    stranger = Native({"bootstrap.servers": cluster.servers, "group.id": cluster.group, "enable.auto.commit": "false"})
    stranger.subscribe([cluster.topic])
    try:
        soon(cluster, "it is a member", lambda: stranger.poll(0.1) is not None or bool(stranger.assignment()))
        cluster.produce(5, 0, 1)
        soon(cluster, "offsets go to ZooKeeper", lambda: cluster.nodes() == {0: 25, 1: 25})
        assert cluster.offsets_in_kafka() == {0: 20, 1: 20}
        soon(cluster, "it is told", lambda: bool(cluster.reports.of("kafka_commits_failed")))
        (told,) = cluster.reports.of("kafka_commits_failed")
        assert "Kafka's own protocol use the group id" in str(told)
    finally:
        stranger.close()
    cluster.produce(1, 0, 1)
    soon(cluster, "Kafka has all again", lambda: equal(cluster, {0: 26, 1: 26}))
    assert reader.offsets(0) == reader.offsets(1) == list(range(26))
    reader.leave()


@IN_KAFKA
def test_f125_a_topic_created_again_is_read_from_its_beginning(cluster: Cluster, store: str) -> None:
    reader = read_in(cluster, store)
    cluster.delete()
    cluster.create(2)
    cluster.produce(30, 0, 1)
    whole = list(range(30))
    soon(cluster, "the new one is read", lambda: all(reader.offsets(n)[-30:] == whole for n in (0, 1)))
    soon(cluster, "and committed as another one", lambda: stamped(cluster) == 2 and equal(cluster, {0: 30, 1: 30}))
    for number in (0, 1):
        early = reader.offsets(number)[20:-30]  # until a mirror takes the topic for another one
        assert early == (whole[20 : 20 + len(early)] if source_of(cluster.kafka) else [])
    reader.leave()


def stamped(cluster: Cluster) -> int:
    """The incarnation that the first partition's commit in Kafka is of; 0 if there is none."""
    commit = cluster.in_kafka().get(0)
    return 0 if commit is None or commit.stamp is None else commit.stamp.incarnation
