"""Brokers that come back while requests about a group's offsets are open. (librdkafka's issue 4605 would abort.)"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import QUIET
from tests.offsets.test_kafka_store import NOWHERE, new_group, new_topic, ours
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper
from zkcoord.errors import UnavailableError
from zkcoord.kafka.client import KafkaClient
from zkcoord.offsets.kafka_store import KafkaCommits

PAUSES_SECONDS = (0.0, 1.5, 3.0, 5.0)  # how long the broker is away, beside its start: requests take 2 s at most


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedZooKeeper(fsync=False) as zookeeper, EmbeddedKafka(zookeeper.hosts) as kafka:
        yield kafka


def restart(broker: EmbeddedKafka, times: int) -> None:
    """Kill the broker and start it again, so many times, while another process commits, which must survive it."""
    topic = new_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=QUIET), 1)
    command = [sys.executable, "-m", "tests.offsets.committing", broker.bootstrap_servers, new_group(), topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        taken: list[int] = []
        lines = program.stdout
        reads = threading.Thread(target=lambda: taken.extend(map(int, lines)), daemon=True)
        reads.start()

        def commits() -> None:
            before = len(taken)
            wait_until(lambda: len(taken) > before + 5 or program.poll() is not None, "Kafka takes commits")
            assert program.poll() is None, f"it died with {program.returncode}"

        commits()
        for number in range(times):
            broker.kill()
            threading.Event().wait(PAUSES_SECONDS[number % len(PAUSES_SECONDS)])
            broker.start()
            commits()
        program.stdin.close()
        assert program.wait(30) == 0


@pytest.mark.kafka
def test_f142_a_process_that_commits_survives_a_broker_that_comes_back(broker: EmbeddedKafka) -> None:
    restart(broker, 2)


@pytest.mark.kafka
@pytest.mark.long
def test_f142_a_process_that_commits_survives_brokers_that_come_back_again_and_again(broker: EmbeddedKafka) -> None:
    restart(broker, 20)


def test_f142_a_tool_asks_no_groups_coordinator_while_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = TopicPartition("t", 0)
    with KafkaClient(NOWHERE) as client:
        store = KafkaCommits(client, timeout_ms=300)
        for name in ("list_consumer_group_offsets", "alter_consumer_group_offsets", "describe_consumer_groups"):
            monkeypatch.setattr(client.admin(), name, None)  # it would raise TypeError
        assert sorted(store.read(["g", "h"]).unknown) == ["g", "h"]
        assert set(store.commit("g", {partition: ours(1)}).unknown) == {partition}
        for ask in (store.users, store.forget):
            with pytest.raises(UnavailableError, match="does not answer"):
                ask("g")
