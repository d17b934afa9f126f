"""What the doctor says of servers that do not answer or do not serve, of a quorum, and of brokers that are gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from zkcoord.core.severity import Severity
from zkcoord.doctor import ensemble, kafka
from zkcoord.doctor.asking import ask_server, ask_servers
from zkcoord.doctor.facts import Finding, KafkaFacts, ServerFacts, Silence, TreeFacts
from zkcoord.kafka.cluster import _missing

IN_STEP = {"zk_learners": "2", "zk_synced_followers": "2"}
RUNNING = KafkaFacts(brokers=2, cluster_id="A", config={"offsets.retention.minutes": "10080"})
TREE = TreeFacts(brokers=2, topics=4, cluster_id="A")


def server(n: int, mode: str) -> ServerFacts:
    return ServerFacts(address=f"zk{n}", srvr={"Mode": mode})


def away(n: int, silence: Silence = Silence.NO_ROUTE) -> ServerFacts:
    return ServerFacts(address=f"zk{n}", unreachable="srvr: why", silence=silence)


def alone(n: int) -> ServerFacts:
    return ServerFacts(address=f"zk{n}", without_quorum=True)


def told(found: Iterator[Finding]) -> list[tuple[str, str, str]]:
    return [(each.severity.name, each.what, each.acts) for each in found if each.severity > Severity.OK]


LEADER, FOLLOWER = server(1, "leader"), server(2, "follower")
LAST = ("WARN", "2 of 3 servers serve: if one more goes, there is no quorum", "whoever runs ZooKeeper")


@pytest.mark.parametrize(
    ("silence", "what", "who"),
    [
        (Silence.NO_NAME, "has a name that nobody here knows", "the caller, or whoever keeps the DNS"),
        (
            Silence.NO_ROUTE,
            "cannot be reached: nothing comes back from its address",
            "whoever runs the network or that machine",
        ),
        (
            Silence.REFUSED,
            "does not run: its machine answers that nobody listens on this port",
            "whoever runs ZooKeeper, or the caller",
        ),
        (Silence.HANGS, "hangs: it takes connections and answers nothing", "whoever runs ZooKeeper"),
        (Silence.CLOSES, "ends connections without an answer", "the caller, or whoever runs ZooKeeper"),
    ],
)
def test_how_a_server_is_silent_says_who_must_act_and_that_the_next_one_ends_the_quorum(
    silence: Silence, what: str, who: str
) -> None:
    found = told(ensemble.judge([LEADER, FOLLOWER, away(3, silence)]))

    assert found == [("ERR", f"zk3 {what}", who), LAST]


def test_a_server_that_the_leader_has_in_step_runs_and_the_network_to_it_is_to_be_mended() -> None:
    finding, _ = ensemble.judge([replace(LEADER, mntr=IN_STEP), FOLLOWER, away(3)])

    assert finding.acts == "whoever runs the network"
    assert finding.evidence == "srvr: why; the leader has it in step: it runs, and the other servers reach it"


@pytest.mark.parametrize("cut_off", [alone(3), server(3, "read-only")])
def test_a_server_that_runs_without_a_quorum_is_told_apart_from_a_quorum_that_is_lost(cut_off: ServerFacts) -> None:
    one = told(ensemble.judge([LEADER, FOLLOWER, cut_off]))
    all_of_them = told(ensemble.judge([away(1), alone(2), cut_off]))

    who = "whoever runs the network, or whoever runs ZooKeeper"
    assert one == [("ERR", "zk3 runs without a quorum: it is cut off from the other servers", who), LAST]
    assert all_of_them == [
        (
            "ERR",
            "zk1 cannot be reached: nothing comes back from its address",
            "whoever runs the network or that machine",
        ),
        ("ERR", "no quorum: none of these servers serves", "whoever runs ZooKeeper"),
    ]


def test_servers_that_are_all_silent_are_not_said_to_have_no_quorum() -> None:
    """Maybe it is only the way from here to them."""
    found = told(ensemble.judge([away(1), away(2)]))

    assert [what for _, what, _ in found] == [
        "zk1 cannot be reached: nothing comes back from its address",
        "zk2 cannot be reached: nothing comes back from its address",
    ]
    assert ensemble.serve_nobody([away(1), alone(2)])
    assert not ensemble.serve_nobody([away(1), ServerFacts(address="zk2", refused=("srvr",))])


def test_two_leaders_are_a_network_that_is_cut() -> None:
    what = "two servers say that they lead: the network between the servers is cut"
    assert told(ensemble.judge([LEADER, server(2, "leader"), server(3, "follower")])) == [
        ("ERR", what, "whoever runs the network")
    ]


def test_brokers_that_are_registered_and_do_not_answer_run_and_cannot_be_reached_from_here() -> None:
    silent = KafkaFacts(unreachable="cannot be reached")
    registered, none, unknown = (
        [each for each in kafka.judge(tree, silent, ()) if each.what == "the brokers do not answer"]
        for tree in (TREE, replace(TREE, brokers=0), None)
    )

    assert [each.acts for each in registered] == ["whoever runs the network, or the caller"]
    assert [each.evidence for each in registered] == ["cannot be reached; 2 brokers registered in ZooKeeper"]
    assert [each.acts for each in none + unknown] == ["whoever runs Kafka, or the caller"] * 2


def test_a_broker_that_is_gone_is_named_with_the_partitions_that_nobody_leads() -> None:
    one = replace(RUNNING, brokers=1, gone=(1,))
    leaderless = replace(one, leaderless=("clicks-0", "clicks-3"))

    assert told(kafka.judge(TREE, one, ())) == [("WARN", "broker 1 is gone", "whoever runs Kafka")]
    assert told(kafka.judge(TREE, leaderless, ())) == [
        ("ERR", "2 partitions without a leader: nobody can read or write there", "whoever runs Kafka"),
        ("WARN", "broker 1 is gone", "whoever runs Kafka"),
    ]


def test_brokers_that_are_gone_are_those_of_replicas_that_the_cluster_does_not_list() -> None:
    def partition(leader: int, *replicas: int) -> SimpleNamespace:
        return SimpleNamespace(leader=leader, replicas=list(replicas))

    clicks = SimpleNamespace(topic="clicks", partitions={0: partition(0, 0, 1), 10: partition(-1, 1), 2: partition(-1)})
    listed = SimpleNamespace(brokers={0: None}, topics={"clicks": clicks})

    assert _missing(listed) == ((1,), ("clicks-2", "clicks-10"))


@contextmanager
def listening(answers: bytes | None, unknown: bytes = b"") -> Iterator[int]:
    """A server that takes connections and answers so; None: it answers nothing, and keeps them open. It ends the
    connection at the word `unknown`."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as waiting:

        def serve() -> None:
            while True:
                try:
                    taken, _ = waiting.accept()
                except OSError:
                    return
                if answers is None:
                    kept.append(taken)
                    continue
                with taken, suppress(OSError):  # the client gave it up
                    word = taken.recv(4)
                    taken.sendall(answers if word != unknown else b"")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield waiting.getsockname()[1]
        finally:
            waiting.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in kept:
                each.close()


def test_a_real_socket_shows_how_a_server_is_silent() -> None:
    with listening(b"") as closing, listening(None) as hanging, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hangs = ask_server("127.0.0.1", hanging, seconds=0.2)
        addresses = [("127.0.0.1", closing), ("127.0.0.1", nobody.getsockname()[1]), ("absent.invalid", 2181)]
        closes, *others = ask_servers(addresses, seconds=60.0)
    found = [closes, hangs, *others]

    assert [each.silence for each in found] == [Silence.CLOSES, Silence.HANGS, Silence.REFUSED, Silence.NO_NAME]
    assert [each.unreachable for each in found] == [
        "srvr: the connection was ended without an answer",
        "srvr: no answer within 0.2 s",
        "srvr: Connection refused",
        "srvr: Name or service not known",
    ]
    assert [each.address for each in found[:2]] == [f"127.0.0.1:{closing}", f"127.0.0.1:{hanging}"]


def test_a_server_that_says_that_it_does_not_serve_is_believed() -> None:
    with listening(b"This ZooKeeper instance is not currently serving requests\n") as port:
        found = ask_server("127.0.0.1", port, seconds=60.0)
    assert (found.unreachable, found.serves, found.refused) == (None, False, ())


def test_a_server_before_3_5_which_does_not_know_a_word_is_not_silent() -> None:
    """3.4 has no `dirs`, and ends the connection. Before, the doctor looked at nothing else then."""
    with listening(b"Zookeeper version: 3.4.10-39d3a4f, built on 03/23/2017\nMode: standalone\n", b"dirs") as port:
        found = ask_server("127.0.0.1", port, seconds=60.0)
    assert (found.unreachable, found.serves, found.mode, found.dirs) == (None, True, "standalone", {})
