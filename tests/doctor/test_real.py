"""`zkcoord doctor` on real servers."""

from __future__ import annotations

import json
import socket

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.cli.group_tree import A, World
from tests.cli.program import Run
from tests.integration.brokers import servers_of
from tests.kafka.helpers import QUIET
from tests.offsets.test_kafka_store import new_group, new_topic
from tests.waiting import wait_until
from zkcoord.cli.audit import FOUND
from zkcoord.coordinator import Coordinator
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.embedded import EmbeddedKafka
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.embedded.zookeeper import EmbeddedZooKeeper
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record


def found(run: Run, *options: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code and findings."""
    result = run("doctor", "--all", "--output", "json", *options)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def severity(findings: list[dict[str, str]], words: str) -> str:
    (one,) = [each for each in findings if words in each["what"]]
    return one["severity"]


@pytest.mark.zookeeper
def test_the_doctor_sees_a_real_server_and_a_group_in_it(chroot: str, zookeeper: EmbeddedZooKeeper, run: Run) -> None:
    with Tree(chroot) as tree:
        world = World(tree, chroot)
        world.settle()
        code, findings = found(run, "--zookeeper", chroot)
        world.put(DRAFT.registration("g", A), b"{")
        _, later = found(run, "--zookeeper", chroot)

    assert severity(findings, f"{zookeeper.hosts}: version") == "OK"
    assert severity(findings, "no quorum") == "WARN"
    assert severity(findings, "latency") in ("OK", "WARN")
    assert severity(findings, "everybody who reaches ZooKeeper") == "INFO"
    assert severity(findings, "no Kafka has ever been here") == "ERR"
    assert severity(findings, "no coordinator serves") == "ERR"
    assert code == FOUND
    assert severity(later, "group g is not well") == "ERR"


@pytest.mark.zookeeper
def test_the_doctor_works_before_zkcoord_has_come_in_and_for_people(chroot: str, run: Run) -> None:
    result = run("doctor", "--zookeeper", chroot)

    lines = result.stdout.splitlines()
    place = lines.index("INFO fleet: zkcoord is not here yet")
    assert lines[place + 1 : place + 3] == [
        "     seen: there is no /zkcoord/schema",
        "     do:   whoever runs the coordinators: start `zkcoord coordinator`,"
        " or run `zkcoord migrate upgrade` as a user who may write",
    ]
    assert lines[0].startswith("ERR  kafka: no Kafka has ever been here")


@pytest.mark.zookeeper
def test_a_chroot_that_does_not_exist_is_told_in_one_line(chroot: str, run: Run) -> None:
    result = run("doctor", "--zookeeper", f"{chroot}/deeper")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the chroot ") and "/deeper does not exist" in line


def test_a_server_that_is_away_is_a_finding(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, findings = found(run, "--zookeeper", address)
    assert (code, [(each["severity"], each["area"]) for each in findings]) == (
        FOUND,
        [("ERR", "zookeeper"), ("INFO", "kafka")],
    )
    assert findings[0]["what"].startswith(f"{address} does not run")
    assert findings[0]["who"] == "whoever runs ZooKeeper, or the caller"


@pytest.mark.kafka
def test_the_doctor_sees_a_real_kafka_in_zookeeper_mode(run: Run) -> None:
    with EmbeddedZooKeeper(fsync=False) as own, EmbeddedKafka(own.hosts) as kafka:
        _, findings = found(run, "--zookeeper", own.hosts, "--bootstrap-servers", kafka.bootstrap_servers)

    assert severity(findings, "ZooKeeper mode") == "OK"
    assert severity(findings, "protocol version of the brokers") == "OK"
    assert severity(findings, "retention of offsets") == "OK"
    assert not [each for each in findings if "another cluster" in each["what"]]


@pytest.mark.long
@pytest.mark.kafka
def test_the_doctor_sees_a_real_kafka_4_once_a_coordinator_mirrors_its_topics(run: Run) -> None:
    with servers_of(KAFKA_4_VERSION, {}) as (zookeeper, kafka, source):
        where = ("--zookeeper", zookeeper, "--bootstrap-servers", kafka.bootstrap_servers)
        _, before = found(run, *where)
        coordinator = Coordinator(zookeeper, **source)
        coordinator.start()
        try:
            wait_until(lambda: "cluster not known yet" not in evidence(found(run, *where)[1]), "it is mirrored")
            _, findings = found(run, *where)
        finally:
            coordinator.stop()

    assert severity(before, "no Kafka has ever been here") == "ERR"
    assert severity(findings, "topics come from Kafka itself") == "OK"
    assert severity(findings, "retention of offsets") == "OK"
    assert {each["severity"] for each in findings if each["area"] == "kafka"} == {"OK"}


def evidence(findings: list[dict[str, str]]) -> str:
    """What was seen of where topics come from; of a tree that is not there yet, that nothing is known."""
    seen = [each["evidence"] for each in findings if each["what"] == "topics come from Kafka itself"]
    return seen[0] if seen else "cluster not known yet"


@pytest.mark.kafka
def test_the_doctor_names_a_consumer_of_kafkas_own_protocol_that_uses_a_groups_id(
    chroot: str, kafka: EmbeddedKafka, run: Run
) -> None:
    where = {"bootstrap.servers": kafka.bootstrap_servers}
    group, topic = new_group(), new_topic(AdminClient(where, logger=QUIET), 1)
    with Tree(chroot) as tree:
        World(tree, chroot).put(DRAFT.record(group), encode_record(DEFAULT_RECORD))
    consumer = Consumer({**where, "group.id": group, "client.id": "app"}, logger=QUIET)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
        _, findings = found(run, "--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)
    finally:
        consumer.close()

    (told,) = [each for each in findings if each["what"].endswith(f"uses group id {group}")]
    assert (told["severity"], told["evidence"]) == ("INFO", "app on /127.0.0.1")
