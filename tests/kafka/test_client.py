"""Requests to a cluster, and how their failures are reported to the user."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.kafka.helpers import PATIENCE_SECONDS, Broker
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import RefusedError, UnavailableError, UnknownPartitionError, UsageError
from zkcoord.kafka.client import KafkaClient, check_servers
from zkcoord.kafka.lag import lag, log_ends

NOBODY = "127.0.0.1:1"
REFUSED_SECONDS_MAX = 4  # all waits for an answer take 5; it takes 0.2, unless the machine stands still


def test_log_ends_and_starts_of_many_partitions(broker: Broker) -> None:
    topic = broker.topic([3, 0, 5])
    asked = [TopicPartition(topic, number) for number in range(3)]
    with KafkaClient(broker.bootstrap_servers) as client:
        assert client.end_offsets(asked) == dict(zip(asked, [3, 0, 5], strict=True))
        assert client.beginning_offsets(asked) == dict.fromkeys(asked, 0)
        assert client.reset_positions(asked, "latest") == client.end_offsets(asked)
        assert client.reset_positions(asked, "earliest") == client.beginning_offsets(asked)
        assert client.end_offsets([]) == {}


def test_the_partitions_that_there_are(broker: Broker) -> None:
    topics = [broker.topic([1]), broker.topic([1])]
    with KafkaClient(broker.bootstrap_servers) as client:
        found = client.partitions()
    mine = [each for each in found if each.topic in topics]
    assert mine == sorted(TopicPartition(topic, number) for topic in topics for number in range(4))
    assert list(found) == sorted(found)


def test_a_missing_partition_is_the_callers_and_is_named(broker: Broker) -> None:
    topic = broker.topic([1])
    with KafkaClient(broker.bootstrap_servers) as client, pytest.raises(UsageError, match=f"{topic}-77"):
        client.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 77)])


def test_the_start_of_a_new_partition_is_asked_again_until_brokers_know_it(broker: Broker) -> None:
    old, new = TopicPartition(broker.topic([3]), 0), TopicPartition(f"new-{uuid.uuid4().hex}", 0)
    patient = KafkaClient(broker.bootstrap_servers, new_within_ms=1_000 * PATIENCE_SECONDS)
    with patient as client, ThreadPoolExecutor(1) as pool:
        asked, asked_once = client.ask_offsets, threading.Event()

        def ask(*arguments: Any) -> Any:
            answer = asked(*arguments)
            asked_once.set()
            return answer

        client.ask_offsets = ask  # type: ignore[method-assign]
        found = pool.submit(client.reset_positions, [old, new], "latest")
        assert asked_once.wait(PATIENCE_SECONDS)
        assert not found.done()
        broker.produce(new, [b"first"] * 2)
        assert found.result(PATIENCE_SECONDS) == {old: 3, new: 2}


def test_all_partitions_that_stay_unknown_are_named(broker: Broker) -> None:
    topic = broker.topic([1])
    lost = [TopicPartition(topic, number) for number in (7, 77, 777)]
    with KafkaClient(broker.bootstrap_servers, new_within_ms=200) as client:
        with pytest.raises(UnknownPartitionError, match=f"{topic}-7, {topic}-77, {topic}-777: if") as told:
            client.reset_positions([TopicPartition(topic, 0), *lost], "earliest")
        assert told.value.partitions == set(lost)


def test_a_cluster_that_is_away_is_named_within_the_timeout() -> None:
    with KafkaClient(NOBODY, timeout_ms=300) as client:
        with pytest.raises(UnavailableError, match=f"{NOBODY}.*try again"):
            client.end_offsets([TopicPartition("clicks", 0)])
        with pytest.raises(UnavailableError, match=NOBODY):
            client.partitions()


def refusal(ask: Callable[[], object]) -> str:
    """Ask until the brokers' refusal is known, and return it. On a busy machine one question may end before it
    comes."""
    told: list[RefusedError] = []

    def refused() -> bool:
        try:
            ask()
        except RefusedError as error:
            told.append(error)
        except UnavailableError:
            return False
        return True

    wait_until(refused, "the credentials are refused")
    return str(told[0])


def test_refused_credentials_are_the_callers(broker: Broker) -> None:
    config = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with KafkaClient(broker.bootstrap_servers, {**config, "sasl.password": "secret"}, timeout_ms=500) as client:
        refused = refusal(lambda: client.end_offsets([TopicPartition("clicks", 0)]))
        assert ("credentials" in refused, "secret" in refused) == (True, False)
        with pytest.raises(RefusedError, match=r"list its topics.*credentials"):
            client.partitions()


def test_refused_credentials_are_told_long_before_the_timeout(broker: Broker) -> None:
    config = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    config |= {"sasl.password": "secret"}
    with KafkaClient(broker.bootstrap_servers, config, timeout_ms=90_000) as client, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.partitions)
        with pytest.raises(RefusedError, match=r"list its topics.*credentials"):
            asking.result(PATIENCE_SECONDS)


def test_a_refused_connection_is_told_long_before_the_timeout() -> None:
    def is_told_soon() -> bool:
        with KafkaClient(NOBODY, timeout_ms=90_000) as client:
            began = time.monotonic()
            why = client.check_credentials()
            return time.monotonic() - began < REFUSED_SECONDS_MAX and "refused" in str(why).lower()

    wait_until(is_told_soon, "the refusal is told soon")


@pytest.mark.parametrize(
    "servers",
    ["", ",", ":9092", "h:port", "h:0", "h:65536", "h:1:2", "a b:1", "http://h:1", "h:1,,k:2", "::1", "h:1/x"],
)
def test_a_wrong_broker_list_is_the_callers_error(servers: str) -> None:
    with pytest.raises(UsageError, match=r"is no broker; write HOST:PORT\[,HOST:PORT…\]"):
        check_servers(servers)


@pytest.mark.parametrize("servers", ["::1:9092", "::1", "h:1,fe80::1:9092", "SSL://::1:9092"])
def test_an_ipv6_address_without_brackets_is_told_its_form(servers: str) -> None:
    with pytest.raises(UsageError, match=r"is no broker; .*; an IPv6 address stands in brackets, as in \[::1\]:9092$"):
        check_servers(servers)


@pytest.mark.parametrize("servers", ["h", "h:1,k:65535 ,", "10.0.0.1:9092", "[::1]:7,[fe80::1%eth0]", "SASL_ssl://h:1"])
def test_brokers_are_named_as_librdkafka_takes_them(servers: str) -> None:
    check_servers(servers)


@pytest.mark.parametrize("config", [{"no.such.setting": "1"}, {"isolation.level": "dirty"}])
def test_settings_are_checked_when_the_client_is_made(config: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(config))):
        KafkaClient(NOBODY, config)


def test_a_closed_client_says_so(broker: Broker) -> None:
    client = KafkaClient(broker.bootstrap_servers)
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.end_offsets([TopicPartition("clicks", 0)])


def test_without_the_package_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UsageError, match=r"pip install 'zkcoord\[kafka\]'"):
        KafkaClient(NOBODY)


def test_librdkafkas_lines_go_to_the_logger_of_zkcoord(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "zkcoord.kafka")
    with KafkaClient(NOBODY, {"isolation.level": "read_committed"}, timeout_ms=300) as client:
        log_ends(client, [TopicPartition("clicks", 0)], timeout_ms=500)
    assert {record.name for record in caplog.records} == {"zkcoord.kafka.librdkafka"}
    assert [record.getMessage().count("Connection refused") for record in caplog.records] == [1]  # for many attempts
    assert "CONFWARN" not in caplog.text


def test_nothing_is_printed_where_logging_is_not_configured() -> None:
    program = (
        "from zkcoord.core.model import TopicPartition\n"
        "from zkcoord.kafka.client import KafkaClient\n"
        "from zkcoord.kafka.fetcher import Fetcher\n"
        "from zkcoord.kafka.lag import log_ends\n"
        f"with KafkaClient({NOBODY!r}) as client:\n"
        "    log_ends(client, [TopicPartition('clicks', 0)], timeout_ms=300)\n"
        f"fetcher = Fetcher({NOBODY!r}, 'g', {{}})\n"
        "fetcher.apply({TopicPartition('clicks', 0): (1, 0)})\n"
        "fetcher.fetch(1, 0.5)\n"
        "fetcher.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_lag_is_what_is_known_and_is_not_limited_to_zero() -> None:
    a, b, c, d = (TopicPartition("clicks", number) for number in (10, 2, 3, 4))
    assert list(lag({a: 7, b: None, c: 9, d: 1}, {a: 9, b: 5, c: 4}).items()) == [(b, None), (c, -5), (d, None), (a, 2)]


def test_log_ends_gives_what_answers_and_says_why_the_rest_does_not(broker: Broker) -> None:
    topic = broker.topic([3])
    here, missing = TopicPartition(topic, 0), TopicPartition(topic, 99)
    with KafkaClient(broker.bootstrap_servers) as client:
        found = log_ends(client, [missing, here], timeout_ms=60_000)
    assert (found.ends, set(found.unknown)) == ({here: 3}, {missing})
    with KafkaClient(NOBODY) as client:
        away = log_ends(client, [here], timeout_ms=300)
    assert (away.ends, NOBODY in away.unknown[here]) == ({}, True)


@pytest.mark.kafka
@pytest.mark.kafka4
def test_a_real_cluster_answers_by_isolation_and_makes_no_topic_by_being_asked(kafka: EmbeddedKafka) -> None:
    topic, missing = f"orders-{uuid.uuid4().hex}", f"missing-{uuid.uuid4().hex}"
    asked = [TopicPartition(topic, number) for number in range(3)]
    quiet = logging.getLogger("test.librdkafka")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = AdminClient(servers, logger=quiet)
    create_topic(admin, topic, 3)
    producer = Producer({**servers, "transactional.id": topic}, logger=quiet)
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(PATIENCE_SECONDS) == 0
    with KafkaClient(kafka.bootstrap_servers) as client:
        assert [each for each in client.partitions() if each.topic == topic] == asked
        assert client.end_offsets(asked) == dict(zip(asked, [0, 0, 0], strict=True))
        assert client.end_offsets(asked, "read_uncommitted") == dict(zip(asked, [0, 1, 0], strict=True))
        producer.abort_transaction(PATIENCE_SECONDS)
        for lost in (TopicPartition(missing, 0), TopicPartition(topic, 3)):
            with pytest.raises(UsageError, match=str(lost)):
                client.end_offsets([lost])
            with pytest.raises(UsageError, match=str(lost)):
                client.end_offsets([asked[0], lost])
        assert missing not in {each.topic for each in client.partitions()}
