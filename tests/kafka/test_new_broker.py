"""A broker that has just started knows neither other brokers nor itself. It is asked about its cluster."""

from __future__ import annotations

import subprocess
import sys

from tests.kafka.helpers import PATIENCE_SECONDS
from tests.kafka.played_broker import CLUSTER_ID, TOPIC, PlayedBroker
from zkcoord.core.topic_answers import Broker, Cluster, Described, Kind, Question, Told
from zkcoord.kafka.metadata import KafkaMetadata

OTHERWISE = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
admin.list_topics(timeout=60)  # now it knows who the controller is
admin.describe_cluster(request_timeout=60).result(61)
"""


def test_f243_brokers_are_asked_for_in_a_way_that_a_broker_which_knows_none_ends_nobody() -> None:
    with PlayedBroker() as broker, KafkaMetadata(broker.bootstrap_servers) as metadata:
        port = broker.server_address[1]
        told = Cluster(CLUSTER_ID, {0: Broker("127.0.0.1", port, "rack")})
        assert metadata.answer(Question(Kind.CLUSTER)) == told
        assert metadata.answer(Question(Kind.DESCRIBE, (TOPIC,))) == Described({TOPIC: Told(None, {0: (0,)})})
        assert metadata.answer(Question(Kind.CLUSTER)) == told


def test_f243_librdkafka_still_ends_a_process_that_asks_such_a_broker_for_its_cluster() -> None:
    """If this fails, librdkafka was repaired, and `describe_cluster` may be used again."""
    with PlayedBroker() as broker:
        command = [sys.executable, "-c", OTHERWISE, broker.bootstrap_servers]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert "Assertion `rko_result' failed" in ended.stderr, ended.stderr
        assert broker.asked_for_brokers
