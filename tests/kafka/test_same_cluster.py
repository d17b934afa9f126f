"""The brokers' own addresses lead to another cluster. Its answers are ignored."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kafka.helpers import Coordinator, read
from tests.kafka.two_clusters import TwoClusters, two_clusters
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.kafka import same_cluster
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.native_log import NativeLog
from zkcoord.kafka.same_cluster import SameCluster, ask_cluster
from zkcoord.kafka.steady import SteadyClient

P0 = TopicPartition(TwoClusters.topic, 0)
METADATA = 3
MUTE = {"log_level": "3"}
SELDOM_MS = 300_000
"""Between librdkafka's own requests for metadata. By default they come every five seconds, and one may come between two
counts of such requests."""


def test_the_scene_leads_a_client_from_one_cluster_to_the_other_by_itself() -> None:
    with two_clusters((2, 5)) as both, KafkaClient(both.servers) as client:
        assert client.end_offsets([P0]) == {P0: 2}
        both.way.lead(1)
        wait_until(lambda: client.ask_offsets([P0], "latest")[0] == {P0: 5}, "the other cluster's end")


def test_f310_another_clusters_log_ends_are_refused_and_the_first_clusters_count_again() -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers) as client:
        assert client.ask_offsets([P0], "latest") == ({P0: 2}, {})
        both.way.lead(1)
        with pytest.raises(UsageError, match="is another cluster now"):
            wait_until(lambda: bool(client.ask_offsets([P0], "latest")[0]), "an answer")
        for _ in range(2):
            with pytest.raises(UsageError, match="is another cluster now"):
                client.confirm(P0.topic, 60_000)
        both.way.lead(0)
        both.produce(0, 0, [b"more"])

        def back() -> bool:
            try:
                return client.ask_offsets([P0], "latest") == ({P0: 3}, {})
            except UsageError:
                return False

        wait_until(back, "the first cluster's end")


def test_f310_a_steady_client_asks_for_its_cluster_once_and_after_broken_connections() -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers, leaders_ms=SELDOM_MS) as client:
        client.ask_offsets([P0], "latest")
        client.confirm(P0.topic, 60_000)
        asked = both.way.asked.count(METADATA)
        for _ in range(20):
            client.ask_offsets([P0], "latest")
            client.confirm(P0.topic, 60_000)
        assert both.way.asked.count(METADATA) == asked
        both.way.lead(0)
        wait_until(lambda: client.ask_offsets([P0], "latest") == ({P0: 2}, {}), "it connects again")
        assert both.way.asked.count(METADATA) > asked


def test_f310_a_steady_client_in_place_of_another_asks_for_its_cluster() -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers) as client:
        assert client.ask_offsets([P0], "latest") == ({P0: 2}, {})
        both.way.lead(1, cut=False)  # only new connections lead to the other cluster
        client._renewed._held = None
        with pytest.raises(UsageError, match="is another cluster now"):
            wait_until(lambda: bool(client.ask_offsets([P0], "latest")[0]), "an answer")


def test_f310_a_client_that_nothing_was_asked_of_since_sees_that_its_connections_have_ended() -> None:
    same = SameCluster("h:1", sure_ms=3_600_000)  # otherwise the time that passes would be enough to see it
    with two_clusters((2, 5)) as both, SteadyClient(both.servers, same=same) as client:
        client.ask_offsets([P0], "latest")
        both.way.lead(1)

        def sure() -> bool:
            try:
                client.confirm(P0.topic, 5_000)
            except UnavailableError:
                return True
            return False

        with pytest.raises(UsageError, match="is another cluster now"):
            wait_until(sure, "the brokers tell")


def test_f310_new_connections_tell_of_another_cluster_though_the_clients_own_hold() -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers) as client:
        assert client.ask_offsets([P0], "latest") == ({P0: 2}, {})
        both.way.lead(1, cut=False)
        client.confirm(P0.topic, 60_000)
        with pytest.raises(UsageError, match="is another cluster now"):
            client.look_anew(P0.topic, 60_000)
        both.way.is_down = True
        with pytest.raises(UnavailableError):
            client.look_anew(P0.topic, 200)


def test_f310_a_doubt_stays_while_the_question_has_no_answer() -> None:
    same = SameCluster("h:1")
    same.confirm(lambda: "a")
    assert not same.doubtful
    same.doubt()

    def away() -> None:
        raise UnavailableError("nobody answers")

    with pytest.raises(UnavailableError):
        same.confirm(away)
    assert same.doubtful

    def told_meanwhile() -> str:
        same.doubt()
        return "a"

    same.confirm(told_meanwhile)
    assert same.doubtful
    same.confirm(lambda: "a")
    assert not same.doubtful


def test_an_untold_cluster_id_is_the_known_one_and_a_different_id_is_refused() -> None:
    old: Any = SimpleNamespace(list_topics=lambda *_, **__: SimpleNamespace(cluster_id=None))
    same = SameCluster("h:1")
    for told in (None, "a", "a"):
        same.hear(told)
    same.confirm(lambda: ask_cluster(old, "t", 1.0))
    assert same.cluster_id == "a"
    for known in (same, SameCluster("h:1", known=lambda: "a")):
        with pytest.raises(UsageError, match="another cluster now, 'b', than before, 'a'"):
            known.hear("b")


def test_f310_only_a_client_unused_for_long_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [0], list[int]()
    monkeypatch.setattr(same_cluster, "mono_ms", lambda: clock[0])
    same = SameCluster("h:1")

    def ask() -> str:
        asked.append(clock[0])
        return "a"

    for clock[0] in (0, 29_999, 59_998, 89_998):
        same.confirm(ask)
    assert asked == [0, 89_998]


@pytest.mark.parametrize("config", [MUTE, {"log.connection.close": "false"}])
def test_f310_a_client_that_must_not_tell_of_broken_connections_asks_each_time(config: dict[str, str]) -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers, config, leaders_ms=SELDOM_MS) as client:
        client.ask_offsets([P0], "latest")
        asked = both.way.asked.count(METADATA)
        client.confirm(P0.topic, 60_000)
        assert both.way.asked.count(METADATA) == asked + 1


@pytest.mark.parametrize("config", [{}, MUTE])
def test_f310_a_consumer_whose_brokers_come_back_as_another_cluster_hands_out_nothing_of_it(
    coordinator: Coordinator, config: dict[str, str]
) -> None:
    with two_clusters((2, 5)) as both:
        consumer = KafkaConsumer("zk:2181", both.servers, "g", [P0.topic], membership=coordinator, config=config)
        with consumer:
            coordinator.give({P0: 0})
            assert read(consumer, 2) == [(0, 0), (0, 1)]
            both.way.lead(1)
            for _ in range(2):
                with pytest.raises(UsageError, match="is another cluster now"):
                    wait_until(lambda: consumer.poll(0.1) is not None, "a message of the other cluster")
            assert consumer.position(P0) == 2
            both.way.lead(0)
            both.produce(0, 0, [b"0-2"])
            values = list[bytes]()

            def come() -> bool:
                try:
                    message = consumer.poll(0.1)
                except UsageError:
                    return False
                return message is not None and not values.append(message.value())  # type: ignore[func-returns-value]

            wait_until(come, "the first cluster's next message")
            assert values == [b"0-2"]


@pytest.mark.parametrize("policy", ["latest", "earliest"])
def test_f310_no_place_in_another_clusters_log_is_told_for_a_partition_without_an_offset(
    coordinator: Coordinator, policy: str
) -> None:
    with two_clusters((2, 5)) as both:
        beginning = policy == "earliest"
        consumer = KafkaConsumer(
            "zk:2181", both.servers, "g", [P0.topic], membership=coordinator, from_beginning=beginning
        )
        with consumer:
            reset = coordinator.settings["reset"]
            assert reset((P0,)) == {P0: 0 if beginning else 2}
            both.way.lead(1)
            with pytest.raises(UsageError, match="is another cluster now"):
                reset((P0,))
            both.way.lead(0)
            assert reset((P0,)) == {P0: 0 if beginning else 2}


@pytest.mark.parametrize("line", ["FAIL [c]: %s", "CLUSTERID [c]: %s", "CONNECT [c]: %s"])
def test_f310_the_end_of_a_connection_and_another_clusters_id_are_a_doubt(line: str) -> None:
    broken = list[str]()
    NativeLog(lambda: broken.append(line)).log(logging.INFO, line, "127.0.0.1:9092")
    assert broken == ([] if line.startswith("CONNECT") else [line])


def test_the_topics_of_another_cluster_are_refused() -> None:
    with two_clusters((2, 5)) as both, SteadyClient(both.servers) as client:
        client.partitions()
        both.way.lead(1)

        def told() -> bool:
            try:
                client.partitions()
            except UnavailableError:
                return False
            return True

        with pytest.raises(UsageError, match="is another cluster now"):
            wait_until(told, "the brokers tell")


def test_log_ends_are_not_known_while_nobody_tells_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise UnavailableError("nobody tells")

    with two_clusters((2, 5)) as both, SteadyClient(both.servers) as client:
        monkeypatch.setattr(client, "_confirm", away)
        found, failed = client.ask_offsets([P0], "latest")
        assert (found, str(failed[P0])) == ({}, "nobody tells")
