"""What the doctor makes of facts: each thing that does not fit is found, and a good deployment has no finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zkcoord.core.record import Policy
from zkcoord.core.severity import Severity
from zkcoord.core.view import Member
from zkcoord.doctor import fleet, kafka, zookeeper
from zkcoord.doctor.facts import Finding, GroupFacts, KafkaFacts, ServerFacts, TreeFacts
from zkcoord.tree.brokers_move import BrokersMove

CONF = {"tickTime": "2000", "maxClientCnxns": "0"}


def server(n: int, mode: str = "follower", **more: Any) -> ServerFacts:
    srvr = {"Zookeeper version": "3.9.3-c26634f, built on 2024-10-17", "Mode": mode}
    return ServerFacts(address=f"zk{n}:2181", srvr=srvr, conf=CONF, **more)


SERVERS = [server(1), server(2, "leader", mntr={"zk_learners": "2", "zk_synced_followers": "2"}), server(3)]
TREE = TreeFacts(
    read_ms=(1, 1, 2),
    brokers=3,
    topics=40,
    cluster_id="A",
    revision="0002",
    served=("0001", "0002"),
    serving="0",
    candidates=({"host": "a", "version": "1.0"}, {"host": "b", "version": "1.0"}),
)
MEMBER = Member(consumer_id="g_a-1-00000000", czxid=1, rebalance_timeout_ms=60_000, session_timeout_ms=10_000)
GROUP = GroupFacts(group="g", state="Stable", store="kafka", mode="coordinated", policy=Policy(), members=(MEMBER,))
KAFKA = KafkaFacts(brokers=3, cluster_id="A", config={"offsets.retention.minutes": "10080"})


def of_zookeeper(
    servers: list[ServerFacts] = SERVERS, timeouts: tuple[int, ...] = (10_000,), **tree: Any
) -> list[Finding]:
    return [f for f in zookeeper.judge(servers, replace(TREE, **tree), timeouts) if f.severity > Severity.OK]


def of_kafka(answer: KafkaFacts | None = KAFKA, group: GroupFacts = GROUP, **tree: Any) -> list[Finding]:
    return [f for f in kafka.judge(replace(TREE, **tree), answer, [group]) if f.severity > Severity.OK]


def of_fleet(group: GroupFacts = GROUP, **tree: Any) -> list[Finding]:
    return [f for f in fleet.judge(replace(TREE, **tree), [group], "1.0") if f.severity > Severity.OK]


def one(found: list[Finding], severity: Severity, words: str, evidence: str) -> None:
    """There is this finding alone, with a remedy."""
    (finding,) = found
    assert (finding.severity, words in finding.what, evidence in finding.evidence) == (severity, True, True), finding
    assert finding.remedy


def test_a_good_deployment_has_no_finding() -> None:
    assert of_zookeeper() + of_kafka() + of_fleet() == []


def test_a_tree_at_the_oldest_revision_that_is_served_is_in_order() -> None:
    assert of_fleet(revision="0001") == []


def test_one_member_is_counted_in_the_singular() -> None:
    (told,) = [found.evidence for found in fleet.judge(TREE, [GROUP], "1.0") if found.what == "group g"]
    assert told == "Stable, coordinated, offsets in kafka, 1 member"


@pytest.mark.parametrize(
    ("changed", "severity", "words", "evidence"),
    [
        ({"refused": ("mntr",)}, Severity.INFO, "does not allow all four-letter words", "mntr"),
        ({"srvr": {"Zookeeper version": "3.4.14-4c25d48, built"}}, Severity.WARN, "no mends", "3.4.14"),
        ({"srvr": {"Zookeeper version": "3.3.6-1366786, built"}}, Severity.ERR, "no transactions", "3.3.6"),
        ({"mntr": {"zk_approximate_data_size": str(2 << 30)}}, Severity.WARN, "much data", "2048 MiB"),
        (
            {"mntr": {"zk_open_file_descriptor_count": "1000", "zk_max_file_descriptor_count": "1024"}},
            Severity.ERR,
            "few file descriptors",
            "1000 of 1024",
        ),
        ({"conf": {"maxClientCnxns": "10"}}, Severity.WARN, "few connections from one machine", "=10"),
        ({"conf": {"maxCnxns": "100"}, "mntr": {"zk_num_alive_connections": "90"}}, Severity.WARN, "left", "90 of"),
        ({"dirs": {"datadir_size": str(6 << 30), "logdir_size": "99"}}, Severity.WARN, "much room", "6144 MiB"),
        ({"conf": {"dataDirSize": "7", "dataLogSize": str(5 << 30)}}, Severity.WARN, "much room", "logs 5120 MiB"),
        ({"mntr": {"zk_learners": "2", "zk_synced_followers": "1"}}, Severity.WARN, "followers lag", "1 of 2"),
    ],
)
def test_a_server_that_is_not_as_it_should_be(
    changed: dict[str, Any], severity: Severity, words: str, evidence: str
) -> None:
    first = replace(SERVERS[0], **changed)

    one(of_zookeeper([first, *SERVERS[1:]]), severity, words, evidence)


def test_one_server_alone_or_one_of_several_is_told() -> None:
    one(of_zookeeper([server(1, "standalone")]), Severity.WARN, "no quorum", "standalone")
    one(of_zookeeper([server(1, "follower")]), Severity.WARN, "only one server", "follower")


def test_session_timeouts_below_five_ticks_latency_and_open_nodes_are_told() -> None:
    found = of_zookeeper(SERVERS[:1] + [replace(each, conf={}) for each in SERVERS[1:]], (6_000, 30_000))
    one(found, Severity.WARN, "short for its ticks", "from 6000 ms")
    one(of_zookeeper(read_ms=(30, 40, 50)), Severity.WARN, "answers slowly", "within 40 ms")
    one(of_zookeeper(read_ms=(300, 400, 500)), Severity.ERR, "very slowly", "the slowest 500 ms")
    one(of_zookeeper(writes_anybody=("/zkcoord",)), Severity.INFO, "everybody", "/zkcoord")
    one(of_zookeeper(writes_anybody=("/zkcoord",), logs_in=True), Severity.WARN, "everybody", "/zkcoord")


def limited(*limits: tuple[int, int]) -> list[ServerFacts]:
    """The servers with these least and greatest session timeouts."""
    confs = [{**CONF, "minSessionTimeout": str(least), "maxSessionTimeout": str(most)} for least, most in limits]
    return [replace(each, conf=conf) for each, conf in zip(SERVERS, confs, strict=True)]


@pytest.mark.parametrize(
    ("limits", "timeouts", "severity", "words", "evidence"),
    [
        ([(4_000, 40_000)] * 2 + [(4_000, 20_000)], (10_000,), Severity.WARN, "different session", "4000 to 20000"),
        ([(4_000, 40_000)] * 3, (10_000, 60_000), Severity.WARN, "not get their timeout again", "of 60000 ms"),
        ([(12_000, 60_000)] * 3, (12_000,), Severity.INFO, "longer than what programs ask for", "12000 to"),
        ([(1_000, 8_000)] * 3, (), Severity.INFO, "shorter than what programs ask for", "to 8000"),
    ],
)
def test_session_timeouts_that_servers_do_not_allow(
    limits: list[tuple[int, int]], timeouts: tuple[int, ...], severity: Severity, words: str, evidence: str
) -> None:
    one(of_zookeeper(limited(*limits), timeouts), severity, words, evidence)
    assert of_zookeeper(limited(*[(4_000, 40_000)] * 3), (10_000, 30_000)) == []


@pytest.mark.parametrize(("size", "severity"), [(600_000, Severity.WARN), (2_000_000, Severity.ERR)])
def test_a_list_of_nodes_that_is_near_the_largest_answer(size: int, severity: Severity) -> None:
    listed = {"/brokers/ids": 5, "/brokers/topics": size}
    one(of_zookeeper(listing_bytes=listed), severity, "near the largest answer", f"/brokers/topics has {size}")
    assert of_zookeeper(listing_bytes={"/brokers/topics": 500_000}) == []


@pytest.mark.parametrize(
    ("tree", "severity", "words"),
    [
        ({"topics": None}, Severity.ERR, "no Kafka has ever been here"),
        ({"brokers": 0}, Severity.ERR, "no broker is registered"),
        ({"move": BrokersMove.MOVING}, Severity.WARN, "to KRaft"),
        ({"move": BrokersMove.MOVED, "brokers": 0}, Severity.ERR, "for KRaft"),
        ({"controllers_write": False}, Severity.ERR, "do not write to ZooKeeper"),
        ({"controllers_write": False, "from_kafka": True}, Severity.ERR, "do not write to ZooKeeper"),
        ({"cluster_id": "B"}, Severity.ERR, "another cluster"),
    ],
)
def test_zookeepers_facts_of_kafka_are_judged(tree: dict[str, Any], severity: Severity, words: str) -> None:
    one(of_kafka(**tree), severity, words, "")


def test_a_tree_whose_topics_come_from_kafka_needs_no_nodes_of_kafka() -> None:
    assert of_kafka(from_kafka=True, topics=None, brokers=None) == []
    one(of_kafka(from_kafka=True, cluster_id="B"), Severity.ERR, "another cluster", "B")


@pytest.mark.parametrize(
    ("minutes", "store", "severity"),
    [("60", "kafka", Severity.ERR), ("60", "zookeeper", Severity.WARN), ("1440", "dual", Severity.WARN)],
)
def test_a_short_retention_of_offsets(minutes: str, store: str, severity: Severity) -> None:
    brokers = replace(KAFKA, config={"offsets.retention.minutes": minutes})

    one(of_kafka(brokers, replace(GROUP, store=store)), severity, "forgets", f"={minutes}")


def test_brokers_that_were_not_asked_or_do_not_answer_and_foreign_users_of_a_group_id() -> None:
    one(of_kafka(None), Severity.INFO, "not asked", "no address")
    one(of_kafka(KafkaFacts(unreachable="timed out")), Severity.ERR, "do not answer", "timed out")
    one(of_kafka(group=replace(GROUP, users=("app on /10.0.0.1",))), Severity.ERR, "group id g", "app on")
    one(of_kafka(group=replace(GROUP, users=("app",), store="zookeeper")), Severity.INFO, "group id g", "app")


def test_consumers_of_kafkas_own_protocol_are_in_order_in_a_group_that_was_handed_over_to_them() -> None:
    group = replace(GROUP, users=("app on /10.0.0.1",), left_to_kafka=True)
    assert of_kafka(group=group) == []
    told = [each.evidence for each in kafka.judge(TREE, KAFKA, [group]) if "group g is handed over" in each.what]
    assert told == ["app on /10.0.0.1"]


@pytest.mark.parametrize(
    ("tree", "severity", "words"),
    [
        ({"revision": None}, Severity.INFO, "not here yet"),
        ({"revision": "0003"}, Severity.WARN, "does not serve the tree's revision"),
        ({"serving": None}, Severity.ERR, "no coordinator serves"),
        ({"candidates": TREE.candidates[:1]}, Severity.WARN, "nobody stands by"),
        ({"candidates": TREE.candidates[:1] * 2}, Severity.WARN, "on one machine"),
        ({"candidates": (*TREE.candidates, {"host": "c", "version": "0.9"})}, Severity.INFO, "different versions"),
        ({"candidates": tuple({**each, "version": "2"} for each in TREE.candidates)}, Severity.INFO, "version 1.0"),
        ({"candidates": TREE.candidates * 2}, Severity.INFO, "more coordinators"),
        ({"candidates_ahead_ms": {"0": 90_000, "1": 5_000}}, Severity.WARN, "coordinators' clocks are ahead"),
    ],
)
def test_facts_of_coordinators_are_judged(tree: dict[str, Any], severity: Severity, words: str) -> None:
    one(of_fleet(**tree), severity, words, "")


@pytest.mark.parametrize(("from_kafka", "option"), [(True, True), (False, False)])
def test_the_remedy_names_the_option_that_the_trees_coordinators_need(from_kafka: bool, option: bool) -> None:
    (found,) = of_fleet(serving=None, from_kafka=from_kafka)
    assert ("--topics kafka" in found.remedy) is option


@pytest.mark.parametrize(
    ("group", "severity", "words"),
    [
        ({"failed": True}, Severity.ERR, "is not well"),
        ({"problems": 2}, Severity.ERR, "is not well"),
        ({"mode": "observe"}, Severity.WARN, "only observed"),
        ({"clock_ahead_ms": {"c": -90_000}}, Severity.WARN, "clocks differ"),
        ({"members": (replace(MEMBER, rebalance_timeout_ms=5_000),)}, Severity.WARN, "rebalance timeouts"),
        ({"members": (replace(MEMBER, hold_ms=500),)}, Severity.INFO, "held for a short time"),
        (
            {"members": (MEMBER, replace(MEMBER, consumer_id="g_b", protocols=(1, 2)))},
            Severity.INFO,
            "consumers of different releases",
        ),
        ({"policy": Policy(probe_interval_ms=1_000)}, Severity.WARN, "probes outrun"),
        ({"policy": Policy(evict_grace_ms=1_000)}, Severity.INFO, "grace"),
    ],
)
def test_facts_of_a_group_are_judged(group: dict[str, Any], severity: Severity, words: str) -> None:
    one(of_fleet(replace(GROUP, **group)), severity, words, "")
