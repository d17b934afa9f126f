"""Old consumers read real records from real brokers, old and new, and commit to ZooKeeper, to Kafka, or to both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.old_consumers.lab import LONG, V011, V08, V11, Lab
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedKafka
from zkcoord.embedded.artifacts import KAFKA_VERSION, OLD_KAFKA_VERSIONS
from zkcoord.embedded.kafka import metadata

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]

DEADLINE_S = 120.0  # only what fails takes so long


def broker(hosts: str, version: str, session_ms: int = 20_000) -> EmbeddedKafka:
    """A broker of this version, not started yet. On a busy machine it may stand still for seconds. While its session is
    over, it takes no records."""
    return EmbeddedKafka(hosts, version=version, heap="256m", zookeeper_session_timeout_ms=session_ms)


def create(lab: Lab, kafka: EmbeddedKafka, topic: str, partitions: int) -> None:
    """A topic on a real broker, as soon as the broker knows that each partition has a leader."""
    lab.topic(topic, partitions)
    led = {f"{topic}-{n}" for n in range(partitions)}
    wait_until(lambda: led <= metadata(kafka.port, version=0).led, f"{topic} has leaders")


def send(kafka: EmbeddedKafka, topic: str, partitions: int, each: int) -> None:
    """As many records to each partition."""
    words: dict[str, str | bool | int] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    if kafka.version == V08:  # it does not tell what it can do
        words |= {"api.version.request": False, "broker.version.fallback": "0.8.2"}
    producer, failed = Producer(words), list[str]()
    for number in range(each):
        for partition in range(partitions):
            producer.produce(
                topic,
                b"%d" % number,
                partition=partition,
                on_delivery=lambda e, _: failed.append(str(e)) if e else None,
            )
    assert (producer.flush(DEADLINE_S), failed) == (0, [])


def all_read(lab: Lab, topic: str, partitions: int, each: int) -> Callable[[], bool]:
    """Whether every record of each partition has been read, at least once."""
    wanted = {f"{topic}-{n}": set(range(each)) for n in range(partitions)}
    return lambda: {key: set(offsets) for key, offsets in lab.read_offsets().items()} == wanted


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (V11, V11),
        *(pytest.param(*pair, marks=LONG) for pair in ((V08, V08), (V011, V011), (V08, V11))),
        *(pytest.param(client, KAFKA_VERSION, marks=LONG) for client in OLD_KAFKA_VERSIONS),
    ],
)
def test_every_record_is_read_while_members_come_go_and_die_and_offsets_are_the_next_ones(
    chroot: str, tmp_path: Path, client: str, server: str
) -> None:
    with Lab(chroot, tmp_path) as lab, broker(chroot, server) as kafka:
        create(lab, kafka, "t", 4)
        send(kafka, "t", 4, 10)
        a = lab.join("a", client, fetch=True)
        wait_until(all_read(lab, "t", 4, 10), "a reads all")
        b = lab.join("b", client, fetch=True)
        send(kafka, "t", 4, 10)
        wait_until(all_read(lab, "t", 4, 20), "both read all")
        assert {name for rows in lab.reads().values() for _, _, name in rows} == {"a", "b"}
        b.child.kill()
        send(kafka, "t", 4, 10)
        wait_until(all_read(lab, "t", 4, 30), "a reads b's share, too")
        a.child.say("commit")
        a.await_event("committed")
        offsets = {n: lab.zk.get(lab.path("offsets", "t", str(n))) for n in range(4)}
        found = {n: (data, stat.ephemeralOwner) for n, (data, stat) in offsets.items()}
        assert found == dict.fromkeys(range(4), (b"30", 0))  # decimal, and persistent


@pytest.mark.long
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
@pytest.mark.parametrize("dual", [True, False])
def test_offsets_in_kafka_stand_in_zookeeper_too_only_with_dual_commits(
    chroot: str, tmp_path: Path, version: str, dual: bool
) -> None:
    words = {"offsets_storage": "kafka", "dual_commit_enabled": str(dual).lower(), "auto_commit_enable": "false"}
    with Lab(chroot, tmp_path) as lab, broker(chroot, version) as kafka:
        create(lab, kafka, "t", 2)
        send(kafka, "t", 2, 10)
        a = lab.join("a", version, fetch=True, **words)
        wait_until(all_read(lab, "t", 2, 10), "it reads all")
        a.child.say("commit")
        a.await_event("committed")
        assert (lab.zk.exists(lab.path("offsets", "t", "0")) is not None) is dual
        a.leave()
        send(kafka, "t", 2, 5)
        b = lab.join("b", version, fetch=True, **words)
        wait_until(lambda: len(b.events("record")) >= 10, "the next reads on")
        read = sorted((event["partition"], event["offset"]) for event in b.events("record"))
        assert read == [(partition, offset) for partition in range(2) for offset in range(10, 15)]


@pytest.mark.long
@pytest.mark.parametrize("version", [V011, V11])
def test_a_member_that_pauses_hands_on_what_it_has_not_taken_out(chroot: str, tmp_path: Path, version: str) -> None:
    with Lab(chroot, tmp_path) as lab, broker(chroot, V11) as kafka:
        create(lab, kafka, "t", 1)
        a = lab.join("a", version, fetch=True)
        a.child.say("pause")
        a.await_event("paused")
        send(kafka, "t", 1, 10)
        a.leave()
        assert a.events("record") == []
        lab.join("b", V08, fetch=True)
        wait_until(all_read(lab, "t", 1, 10), "b reads all")


@pytest.mark.long
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_a_broker_that_was_killed_starts_again_with_its_partitions(chroot: str, tmp_path: Path, version: str) -> None:
    with Lab(chroot, tmp_path) as lab, broker(chroot, version, session_ms=2_000) as kafka:
        create(lab, kafka, "t", 2)
        send(kafka, "t", 2, 5)
        kafka.kill()
        assert not kafka.ready()
        kafka.start()
        send(kafka, "t", 2, 5)
        lab.join("a", version, fetch=True)
        wait_until(all_read(lab, "t", 2, 10), "all of both halves")
