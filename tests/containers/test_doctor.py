"""`zkcoord doctor` on three servers and their brokers: it names each fault that is made, and who must act on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.containers.ensemble import Box, Ensemble, wait_until
from tests.containers.processes import PROGRAM
from tests.containers.scene import ANSWER_S, Scene
from zkcoord.cli.audit import FOUND

pytestmark = [pytest.mark.docker, pytest.mark.kafka, pytest.mark.namespaces]

NETWORK, OWNER = "whoever runs the network", "whoever runs ZooKeeper"
AWAY = "cannot be reached: nothing comes back from its address"
LAST = ("WARN", "2 of 3 servers serve: if one more goes, there is no quorum", OWNER)
HOUR_S = 3_600


class Patient(NamedTuple):
    """A deployment, and the container from whose network the doctor looks at it."""

    ensemble: Ensemble
    seat: Box

    def findings(self) -> list[dict[str, Any]]:
        """What the doctor finds; its exit code is that of its worst finding."""
        words = ["doctor", "--zookeeper", self.ensemble.hosts, "--bootstrap-servers", self.ensemble.bootstrap_servers]
        command = ["nsenter", "-t", str(self.seat.pid), "-n", *PROGRAM, *words, "--all", "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        worst = FOUND if any(each["severity"] == "ERR" for each in found) else 0
        assert done.returncode == worst, (done.returncode, done.stderr)
        return found

    def complaints(self) -> list[tuple[str, str, str]]:
        """Severity, finding and who must act: of all that is wrong with ZooKeeper and Kafka."""
        areas, bad = ("zookeeper", "kafka"), ("ERR", "WARN")
        found = [each for each in self.findings() if each["area"] in areas and each["severity"] in bad]
        return [(each["severity"], each["what"], each["who"]) for each in found]


@pytest.fixture
def patient(ensemble: tuple[Ensemble, list[Box]]) -> Iterator[Patient]:
    """It is well, and is made so again."""
    running, seats = ensemble
    running.heal()
    yield Patient(running, seats[0])
    seats[0].mend()
    for server in running.servers:
        if server.state == "running":
            server.mend()
    running.heal()


def test_of_a_deployment_that_is_well_nothing_is_said(patient: Patient) -> None:
    assert patient.complaints() == []


def test_a_server_that_only_the_doctor_cannot_reach_is_a_matter_of_the_network(patient: Patient) -> None:
    follower, _ = patient.ensemble.followers()
    patient.seat.cut_from(follower.address)

    assert patient.complaints() == [("ERR", f"{follower.hosts} {AWAY}", NETWORK), LAST]


def test_a_server_that_nobody_can_reach_is_one_that_the_leader_has_lost_as_well(patient: Patient) -> None:
    leader, (follower, other) = patient.ensemble.leader(), patient.ensemble.followers()
    follower.cut_from(leader.address, other.address, patient.seat.address)
    wait_until(lambda: "zk_synced_followers\t1" in leader.ask("mntr"), "the leader has lost it")

    assert patient.complaints() == [("ERR", f"{follower.hosts} {AWAY}", f"{NETWORK} or that machine"), LAST]


def test_a_server_that_is_cut_off_from_the_others_runs_without_a_quorum(patient: Patient) -> None:
    leader, (follower, other) = patient.ensemble.leader(), patient.ensemble.followers()
    follower.cut_from(leader.address, other.address)
    wait_until(lambda: follower.mode() == "read-only", "it has noticed")

    what = f"{follower.hosts} runs without a quorum: it is cut off from the other servers"
    assert patient.complaints() == [("ERR", what, f"{NETWORK}, or {OWNER}"), LAST]


def test_a_server_that_hangs_is_told_apart_from_one_that_is_gone(patient: Patient) -> None:
    follower, other = patient.ensemble.followers()
    follower.engine.pause()
    hangs = patient.complaints()
    follower.engine.unpause()
    other.engine.kill()
    gone = patient.complaints()

    assert hangs == [("ERR", f"{follower.hosts} hangs: it takes connections and answers nothing", OWNER), LAST]
    assert gone == [("ERR", f"{other.hosts} {AWAY}", f"{NETWORK} or that machine"), LAST]


def test_doctor_names_a_lost_quorum_before_it_waits_and_looks_at_kafka_too(
    patient: Patient,
) -> None:
    follower, other = patient.ensemble.followers()
    leader = patient.ensemble.leader()
    other.engine.kill()
    leader.engine.pause()
    wait_until(lambda: follower.mode() == "read-only", "it has noticed")

    found = patient.findings()
    servers = {
        follower.hosts: f"{follower.hosts} read-only",
        leader.hosts: f"{leader.hosts} does not answer",
        other.hosts: f"{other.hosts} does not answer",
    }
    (lost,) = [each for each in found if each["what"] == "no quorum: none of these servers serves"]
    assert (lost["severity"], lost["who"]) == ("ERR", OWNER)
    assert lost["evidence"] == ", ".join(servers[server.hosts] for server in patient.ensemble.servers)
    assert [each["severity"] for each in found if each["area"] == "kafka"] == ["OK", "OK"], "its version, its retention"
    assert {each["what"] for each in found if each["severity"] == "ERR"} == {
        lost["what"],
        f"{leader.hosts} hangs: it takes connections and answers nothing",
        f"{other.hosts} {AWAY}",
    }


def test_brokers_that_hold_sessions_and_do_not_answer_are_a_matter_of_the_network(patient: Patient) -> None:
    patient.seat.cut_from(patient.ensemble.kafka.address)

    assert patient.complaints() == [("ERR", "the brokers do not answer", f"{NETWORK}, or the caller")]


def test_a_broker_that_is_gone_is_named_and_so_are_the_partitions_that_nobody_leads(patient: Patient) -> None:
    admin = AdminClient({"bootstrap.servers": patient.ensemble.bootstrap_servers})
    broker = patient.ensemble.broker(1)
    wait_until(lambda: len(admin.list_topics(timeout=ANSWER_S).brokers) == 2, "it is one of them")
    placed = NewTopic("placed", num_partitions=2, replica_assignment=[[0], [1]])
    admin.create_topics([placed])["placed"].result(ANSWER_S)
    wait_until(lambda: patient.complaints() == [], "its partitions have leaders")

    broker.engine.pause()  # longer than its session
    wait_until(lambda: len(admin.list_topics(timeout=ANSWER_S).brokers) == 1, "it is noticed")
    wait_until(lambda: admin.list_topics("placed", ANSWER_S).topics["placed"].partitions[1].leader < 0, "no leader")
    gone = patient.complaints()

    broker.engine.unpause()
    wait_until(lambda: patient.complaints() == [], "it is back", state=broker.said)
    admin.delete_topics(["placed"])["placed"].result(ANSWER_S)
    wait_until(lambda: "placed" not in admin.list_topics(timeout=ANSWER_S).topics, "its topic is gone")
    broker.engine.stop()
    wait_until(lambda: len(admin.list_topics(timeout=ANSWER_S).brokers) == 1, "it has left")
    assert gone == [
        ("ERR", "1 partition without a leader: nobody can read or write there", "whoever runs Kafka"),
        ("WARN", "broker 1 is gone", "whoever runs Kafka"),
    ]


def test_a_consumer_whose_clock_is_wrong_and_a_coordinator_that_is_gone_are_named(
    ensemble: tuple[Ensemble, list[Box]], patient: Patient
) -> None:
    running, seats = ensemble
    with Scene(running, seats[1:], "skewed") as scene:
        coordinator = scene.coordinate()
        coordinator.wait("elected")
        consumer = scene.consume(clock_ahead_s=HOUR_S)
        consumer.wait("fetch_started")
        (skewed,) = [each for each in patient.findings() if "clocks differ" in each["what"]]
        coordinator.close()
        wait_until(lambda: scene.candidates() == set(), "its session is over")
        (nobody,) = [each for each in patient.findings() if each["area"] == "fleet" and each["severity"] == "ERR"]

    assert skewed["what"] == "group skewed: 1 members' clocks differ from ZooKeeper's"
    assert skewed["evidence"] in (f"{consumer.ids()[0]} +{s} s" for s in range(HOUR_S - 5, HOUR_S + 1))
    assert skewed["who"] == "whoever runs the group's consumers"
    assert (nobody["what"], nobody["who"]) == ("no coordinator serves", "whoever runs the coordinators")
