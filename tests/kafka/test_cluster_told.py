"""A poll-style consumer learns its cluster from requests that it sends anyway."""

from __future__ import annotations

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS, Broker, Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.kafka.resets import Resets


def test_f224_the_membership_is_told_the_cluster_by_the_question_that_a_start_asks_anyway(
    coordinator: Coordinator, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[object]()
    check = KafkaClient.check_credentials
    monkeypatch.setattr(KafkaClient, "check_credentials", lambda client: (asked.append(client), check(client))[1])
    topic = broker.topic()
    with KafkaConsumer("zk:2181", broker.bootstrap_servers, "g", [topic], membership=coordinator) as consumer:
        with KafkaClient(broker.bootstrap_servers) as client:
            assert coordinator.settings["cluster_id"]() == client.list_topics(PATIENCE_SECONDS).cluster_id
        coordinator.settings["reset"]((TopicPartition(topic, 0),))
        coordinator.give({TopicPartition(topic, 1): 0})
        consumer.poll(0)
    assert len(asked) == 1


def test_f224_a_place_in_a_log_is_told_only_with_its_cluster(broker: Broker) -> None:
    """Kafka is away when the consumer starts, and answers when a partition without an offset is started."""
    resets = Resets(broker.bootstrap_servers, {}, "earliest")
    assert (resets.cluster_id, resets.answered) == (None, False)
    resets.positions([TopicPartition(broker.topic(), 0)])
    assert resets.answered and resets.cluster_id


def test_a_cluster_that_names_itself_no_more_is_still_known_and_another_one_is_refused() -> None:
    resets = Resets("127.0.0.1:9", {}, "latest")
    for told in (None, "a", "a", None):
        resets.hear(told)
    assert resets.cluster_id == "a"
    with pytest.raises(UsageError, match="another cluster now, 'b', than before, 'a'"):
        resets.hear("b")
    assert resets.cluster_id == "a"
