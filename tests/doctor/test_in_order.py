"""What the doctor says of what is in order, how near to a limit that still is, and who must act when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.doctor.test_judging import (
    CONF,
    GROUP,
    KAFKA,
    MEMBER,
    SERVERS,
    TREE,
    of_fleet,
    of_kafka,
    of_zookeeper,
    one,
    server,
)
from zkcoord.core.record import Policy
from zkcoord.core.severity import Severity
from zkcoord.doctor import fleet, kafka, zookeeper
from zkcoord.doctor.facts import Finding, KafkaFacts, ServerFacts, TreeFacts
from zkcoord.tree.brokers_move import BrokersMove

WEEK = {"offsets.retention.minutes": "10080", "inter.broker.protocol.version": "3.9-IV0"}
SESSIONS = {"minSessionTimeout": "4000", "maxSessionTimeout": "40000"}
ROOM = {"datadir_size": str(4 << 30), "logdir_size": "7"}  # as much as a folder may take
FULL = {
    "zk_approximate_data_size": str(512 << 20),
    "zk_open_file_descriptor_count": "924",
    "zk_max_file_descriptor_count": "1024",
    "zk_num_alive_connections": "80",
}
AT_ITS_LIMITS = replace(
    SERVERS[0], conf={**CONF, **SESSIONS, "maxCnxns": "100", "maxClientCnxns": "60"}, mntr=FULL, dirs=ROOM
)
TICKS = ("ticks and session timeouts", "tickTime=2000, session timeouts from 10000 ms")


def whole(found: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Each finding, those too that are in order."""
    return [(each.severity.name, each.what, each.evidence) for each in found]


def test_of_a_good_deployment_everything_that_was_looked_at_is_shown_as_in_order() -> None:
    tree = replace(TREE, listing_bytes={"/brokers/topics": 512 * 1024})
    brokers = replace(KAFKA, config=WEEK)
    assert whole(zookeeper.judge([AT_ITS_LIMITS, *SERVERS[1:]], tree, [10_000])) == [
        ("OK", "zk1:2181: version", "3.9.3-c26634f"),
        ("OK", f"zk1:2181: {TICKS[0]}", TICKS[1]),
        ("OK", "zk2:2181: version", "3.9.3-c26634f"),
        ("OK", f"zk2:2181: {TICKS[0]}", TICKS[1]),
        ("OK", "zk3:2181: version", "3.9.3-c26634f"),
        ("OK", f"zk3:2181: {TICKS[0]}", TICKS[1]),
        ("OK", "zk1:2181: snapshots and logs", "snapshots 4096 MiB, logs 0 MiB"),
        ("OK", "limits of session timeouts", "zk1:2181 4000 to 40000 ms"),
        (
            "OK",
            "the size of answers",
            "the list of /brokers/topics has 524288 bytes; without jute.maxbuffer an answer has 1048576 at most",
        ),
        ("OK", "ensemble", "zk1:2181 follower, zk2:2181 leader, zk3:2181 follower"),
        ("OK", "latency", "3 reads from here: half of them within 1 ms, the slowest 2 ms"),
    ]
    assert whole(kafka.judge(tree, brokers, [GROUP])) == [
        ("OK", "ZooKeeper mode", "3 brokers and 40 topics are in ZooKeeper"),
        ("OK", "protocol version of the brokers", "inter.broker.protocol.version=3.9-IV0"),
        ("OK", "retention of offsets", "offsets.retention.minutes=10080"),
    ]
    assert whole(fleet.judge(tree, [GROUP], "1.0")) == [
        ("OK", "the tree's revision", "0002"),
        ("OK", "coordinators", "a (1.0), b (1.0)"),
        ("OK", "group g", "Stable, coordinated, offsets in kafka, 1 member"),
    ]


def test_before_zkcoord_has_come_in_no_coordinator_is_missed() -> None:
    one(of_fleet(revision=None, serving=None, candidates=()), Severity.INFO, "not here yet", "no /zkcoord/schema")


def test_where_no_coordinator_stands_nothing_else_is_said_of_them() -> None:
    one(of_fleet(serving=None, candidates=()), Severity.ERR, "no coordinator serves", "standing: none")


@pytest.mark.parametrize(("cluster", "said"), [(None, "not known yet"), ("A", "cluster A")])
def test_topics_from_kafka_name_the_cluster_once_it_is_known(cluster: str | None, said: str) -> None:
    tree = replace(TREE, from_kafka=True, cluster_id=cluster)
    assert said in next(iter(kafka.judge(tree, None, []))).evidence


def test_brokers_that_tell_nothing_of_themselves_are_said_to_be_old() -> None:
    one(of_kafka(replace(KAFKA, config={})), Severity.INFO, "older than Kafka 0.11", "3 brokers answer")


@pytest.mark.parametrize(
    ("read_ms", "versions", "timeouts"),
    [((20, 20, 20), ("3.8.0",), (10_000,)), ((1,), ("3.9.3", "3.8.4"), ()), ((), ("unknown",), (10_000, 40_000))],
)
def test_values_just_within_zookeepers_limits_are_in_order(
    read_ms: tuple[int, ...], versions: tuple[str, ...], timeouts: tuple[int, ...]
) -> None:
    named = [
        replace(each, srvr={**each.srvr, "Zookeeper version": versions[n % len(versions)]})
        for n, each in enumerate([AT_ITS_LIMITS, *SERVERS[1:]])
    ]
    assert of_zookeeper(named, timeouts, read_ms=read_ms) == []


@pytest.mark.parametrize("absent", [*FULL, "zk_learners", "zk_synced_followers"])
def test_a_number_that_a_server_does_not_tell_is_no_finding(absent: str) -> None:
    told = {**dict.fromkeys(FULL, "1"), "zk_max_file_descriptor_count": "9999"}
    told |= {"zk_learners": "2", "zk_synced_followers": "2"}
    first = server(1, "leader", mntr={name: value for name, value in told.items() if name != absent})
    assert of_zookeeper([replace(first, conf={"maxCnxns": "100"}), SERVERS[0], SERVERS[2]]) == []


@pytest.mark.parametrize("conf", [{"maxCnxns": "0"}, {"minSessionTimeout": "99999"}, {"maxSessionTimeout": "1"}])
def test_unlimited_and_half_told_values_are_no_finding(conf: dict[str, str]) -> None:
    first = replace(SERVERS[0], conf={**CONF, **conf}, mntr={"zk_num_alive_connections": "5"})
    assert of_zookeeper([first, *SERVERS[1:]]) == []


@pytest.mark.parametrize(
    ("gone", "said"), [((), "clicks-1; every broker is there"), ((2,), "clicks-1; gone: broker 2")]
)
def test_a_partition_without_a_leader_is_told_with_the_brokers_that_are_gone(gone: tuple[int, ...], said: str) -> None:
    found = of_kafka(replace(KAFKA, leaderless=("clicks-1",), gone=gone))
    assert (found[0].severity, found[0].evidence) == (Severity.ERR, said)


def test_servers_without_a_quorum_are_told_by_what_each_says() -> None:
    silent = ServerFacts(address="zk1", unreachable="srvr: why")
    alone, reading = ServerFacts(address="zk2", without_quorum=True), server(3, "read-only")
    (told,) = [each for each in of_zookeeper([silent, alone, reading]) if "no quorum" in each.what]
    assert told.evidence == "zk1 does not answer, zk2 does not serve, zk3:2181 read-only"
    of_two = [each.evidence for each in of_zookeeper([*SERVERS, alone, reading]) if "cut off" in each.what]
    assert of_two == ["it says: not serving; others serve", "it says: read-only; others serve"]


def test_a_list_that_just_fits_into_an_answer_is_a_warning() -> None:
    one(
        of_zookeeper(listing_bytes={"/brokers/ids": 1 << 20}), Severity.WARN, "near the largest answer", "1048576 bytes"
    )


def test_of_slow_reads_the_middle_one_counts() -> None:
    one(of_zookeeper(read_ms=(1, 200, 900)), Severity.WARN, "answers slowly", "within 200 ms")
    one(of_zookeeper(read_ms=(1, 201, 900)), Severity.ERR, "answers very slowly", "within 201 ms")


@pytest.mark.parametrize(
    ("group", "member"),
    [
        ({"clock_ahead_ms": {"c": 60_000, "d": -60_000}}, {}),
        ({}, {"rebalance_timeout_ms": 10_000}),
        ({}, {"hold_ms": 10_000}),
        ({"policy": Policy(probe_interval_ms=10_000, max_probes=3)}, {}),
        ({"policy": Policy(evict_grace_ms=10_000)}, {}),
        ({"policy": Policy(probe_interval_ms=1_000), "members": ()}, {}),
    ],
)
def test_times_of_a_group_that_just_fit_are_in_order(group: dict[str, Any], member: dict[str, Any]) -> None:
    given = {"members": (replace(MEMBER, **member),), **group}
    assert of_fleet(replace(GROUP, **given)) == []


def test_only_what_is_skewed_is_named() -> None:
    one(of_fleet(replace(GROUP, clock_ahead_ms={"a": 0, "b": 61_000})), Severity.WARN, "1 members' clocks", "b +61 s")
    (found,) = of_fleet(candidates_ahead_ms={"0": 61_000, "1": 60_000})
    assert found.evidence == "coordinator 0 +61 s or more"


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"failed": True}, "FAILED"),
        ({"quarantined": 2}, "2 partitions quarantined"),
        ({"problems": 3}, "3 nodes that cannot be read"),
        ({"failed": True, "problems": 1}, "FAILED, 1 nodes that cannot be read"),
    ],
)
def test_a_group_that_is_not_well_is_told_with_all_that_ails_it(group: dict[str, Any], said: str) -> None:
    stranger = replace(MEMBER, consumer_id="old", speaks_protocol=False, rebalance_timeout_ms=1, protocols=(7, 7))
    members = (MEMBER, stranger)
    (found,) = of_fleet(replace(GROUP, members=members, **group))
    begin = "Stable, coordinated, offsets in kafka, 1 member and 1 that do not speak the protocol"
    assert (found.severity, found.evidence) == (Severity.ERR, f"{begin}, {said}")


@pytest.mark.parametrize(
    ("minutes", "store", "severity"),
    [("120", "kafka", Severity.ERR), ("121", "kafka", Severity.WARN), ("121", "zookeeper", Severity.INFO)],
)
def test_how_short_a_retention_is_and_for_whom_decides_how_bad_it_is(
    minutes: str, store: str, severity: Severity
) -> None:
    brokers = replace(KAFKA, config={"offsets.retention.minutes": minutes})
    one(of_kafka(brokers, replace(GROUP, store=store)), severity, "forgets", f"={minutes}")
    assert of_kafka(replace(KAFKA, config={"offsets.retention.minutes": "1441"})) == []
    assert of_kafka(replace(KAFKA, config={"offsets.retention.minutes": "a week"})) == []


@pytest.mark.parametrize(("tree", "brokers"), [(None, "A"), ("A", None)])
def test_a_cluster_that_one_side_does_not_name_is_no_other_one(tree: str | None, brokers: str | None) -> None:
    assert of_kafka(replace(KAFKA, cluster_id=brokers), cluster_id=tree) == []


@pytest.mark.parametrize(
    ("tree", "absent"), [({"topics": None}, "/brokers/topics"), ({"brokers": None}, "/brokers/ids")]
)
def test_the_node_that_is_missing_is_named(tree: dict[str, Any], absent: str) -> None:
    one(of_kafka(**tree), Severity.ERR, "no Kafka has ever been here", f"there is no {absent}")


AWAY = KafkaFacts(unreachable="timed out")
USED = replace(GROUP, users=("app",))


@pytest.mark.parametrize(
    ("look", "who"),
    [
        (lambda: of_kafka(None), "the caller"),
        (lambda: of_kafka(topics=None), "the caller, or whoever runs Kafka"),
        (lambda: of_kafka(move=BrokersMove.MOVING), "whoever runs the coordinators"),
        (lambda: of_kafka(cluster_id="B"), "the caller"),
        (lambda: of_kafka(group=USED), "whoever runs that consumer"),
        (lambda: of_kafka(AWAY, brokers=0), "whoever runs Kafka, or the caller"),
        (lambda: of_kafka(AWAY, from_kafka=True), "whoever runs Kafka, or the caller"),
        (lambda: of_kafka(AWAY), "whoever runs the network, or the caller"),
        (lambda: of_fleet(candidates=tuple({**each, "version": "2"} for each in TREE.candidates)), "the caller"),
        (lambda: of_fleet(serving=None), "whoever runs the coordinators"),
        (lambda: of_fleet(replace(GROUP, failed=True)), "whoever runs the group's consumers"),
        (lambda: of_zookeeper([server(1)]), "the caller"),
        (lambda: of_zookeeper([server(1, "standalone")]), "whoever runs ZooKeeper"),
    ],
)
def test_each_finding_says_who_must_act(look: Callable[[], list[Finding]], who: str) -> None:
    assert look()[-1].acts == who


def test_brokers_that_do_not_answer_are_an_error_also_where_they_are_registered() -> None:
    assert [each.severity for each in of_kafka(AWAY)] == [Severity.ERR]


def test_of_facts_that_nobody_could_read_nothing_is_concluded() -> None:
    assert whole(kafka.judge(None, replace(KAFKA, config=WEEK), []))[-1][:2] == ("OK", "retention of offsets")
    told = zookeeper.judge([ServerFacts(address="zk1")], TreeFacts(), ())
    assert [each for each in told if each.severity > Severity.OK] == []
