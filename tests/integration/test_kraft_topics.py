"""Kafka's own topics while a real cluster moves to KRaft."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer

from tests.integration.kraft_scene import KRaftMove
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from zkcoord.cli.main import cli

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.long]

ASK_SECONDS = 10.0
INTERNAL = "__transaction_state"
EARLIER = {"partitions": {"0": [0]}, "topic_id": "CkfMQjWNcxEqKNYh8gqpkI", "version": 3}


def test_f167_an_earlier_internal_topic_in_zookeeper_does_not_prevent_the_switch(
    tmp_path: Path,
) -> None:
    with KRaftMove(tmp_path) as scene:
        scene.migrate()
        path = f"/brokers/topics/{INTERNAL}"
        scene.make(path, json.dumps(EARLIER))  # as a broker does that still takes itself for the controller
        producer = Producer(
            {"bootstrap.servers": scene.servers, "transactional.id": "t", "enable.idempotence": True}, logger=QUIET
        )
        with suppress(KafkaException):  # the controller creates the topic, and cannot tell a broker in ZooKeeper mode
            producer.init_transactions(ASK_SECONDS)
        scene.kraft_mode()
        producer.init_transactions(PATIENCE_SECONDS)
        assert json.loads(scene.look(path)) == EARLIER  # the controller has left it as it is

        told = [_migrate(scene, *words) for words in (("upgrade",), ("topics", "--to", "kafka"))]

        assert [code for code, _ in told] == [0, 0], told
        assert f"topic {INTERNAL} is {EARLIER['topic_id']} in ZooKeeper" in told[1][1]
        assert "no group reads it, so the switch goes on" in told[1][1]


def _migrate(scene: KRaftMove, *words: str) -> tuple[int, str]:
    where = ("--zookeeper", scene.zookeeper, "--bootstrap-servers", scene.servers)
    done = CliRunner().invoke(cli, ["migrate", *words, *where])
    return done.exit_code, done.output
