"""Requests for the ends of logs while the logs' leaders change."""

from __future__ import annotations

from tests.kafka.mock_cluster import MockCluster
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import KafkaClient, Where

FIRST, _ = ASKED = [TopicPartition(MockCluster.topic, number) for number in (0, 1)]
TIMEOUT_MS = 500
SOON_SECONDS = 60.0  # on a loaded machine; librdkafka by itself needs five minutes
WHERE: tuple[Where, ...] = ("latest", "earliest", 0)


def led_by_two() -> MockCluster:
    """A cluster of two brokers, each of which leads one partition."""
    cluster = MockCluster(2)
    cluster.lead(0, 1)
    cluster.lead(1, 2)
    return cluster


def asked_once(cluster: MockCluster) -> KafkaClient:
    """A client that knows the leaders already."""
    client = KafkaClient(cluster.servers, timeout_ms=TIMEOUT_MS)
    wait_until(lambda: client.ask_offsets(ASKED, "latest") == (dict.fromkeys(ASKED, 0), {}), "all answer")
    return client


def test_f169_a_leader_that_was_elected_again_answers_soon() -> None:
    cluster = led_by_two()
    with asked_once(cluster) as client:
        cluster.lead(0, 1)
        wait_until(lambda: FIRST in client.ask_offsets(ASKED, "latest")[0], "it answers", SOON_SECONDS)


def test_f169_a_leader_that_is_away_has_no_end_of_a_log_and_the_next_one_is_asked_soon() -> None:
    cluster = led_by_two()
    with asked_once(cluster) as client:
        cluster.down(1)
        for which in WHERE:
            found, failed = client.ask_offsets(ASKED, which)
            assert FIRST not in found
            assert isinstance(failed[FIRST], UnavailableError)
        cluster.lead(0, 2)
        wait_until(lambda: FIRST in client.ask_offsets(ASKED, "latest")[0], "it answers", SOON_SECONDS)


def test_f169_that_all_brokers_are_away_is_each_partitions_reason() -> None:
    cluster = led_by_two()
    with asked_once(cluster) as client:
        cluster.down(1)
        cluster.down(2)
        for _ in range(4):
            found, failed = client.ask_offsets(ASKED, "latest")
            assert (found, [type(error) for error in failed.values()]) == ({}, [UnavailableError] * 2)
