"""`zkcoord topic create`, on a real broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.program import Run
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.kafka.client import KafkaClient


@pytest.mark.kafka
@pytest.mark.kafka4
def test_a_topic_is_created_once_and_whatever_is_refused_says_what_to_do(kafka: KafkaBroker, run: Run) -> None:
    there = ("--bootstrap-servers", kafka.bootstrap_servers)
    made = run("topic", "create", "made-here", "--partitions", "3", *there)
    assert (made.exit_code, made.stdout, made.stderr) == (0, "topic made-here is created: 3 partitions\n", "")
    with KafkaClient(kafka.bootstrap_servers) as client:
        assert [number for topic, number in client.partitions() if topic == "made-here"] == [0, 1, 2]

    again = run("topic", "create", "made-here", "--partitions", "3", *there)
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists already: `zkcoord topic describe made-here` shows it" in again.stderr
    wide = run("topic", "create", "wide", "--partitions", "1", "--replication-factor", "3", *there)
    assert wide.exit_code == 2
    assert "start more brokers, or give a smaller --replication-factor" in wide.stderr
    asked = ("topic", "create", "other-here", "--partitions", "1", "--replication-factor", "1", "--output", "json")
    assert json.loads(run(*asked, *there).stdout) == {"topic": "other-here", "partitions": 1}


def test_a_name_that_no_topic_can_have_a_number_below_one_and_no_address_are_refused(run: Run) -> None:
    there = ("--partitions", "1", "--bootstrap-servers", "127.0.0.1:1")
    for name in ("a b", "..", "x" * 250, ""):
        refused = run("topic", "create", name, *there)
        assert (refused.exit_code, "can be no topic" in refused.stderr) == (2, True), name
    assert run("topic", "create", "t", "--partitions", "0").exit_code == 2
    assert "where is Kafka? give --bootstrap-servers" in run("topic", "create", "t", "--partitions", "1").stderr
    away = run("topic", "create", "t", *there)
    assert (away.exit_code, "cannot be reached" in away.stderr) == (5, True)
