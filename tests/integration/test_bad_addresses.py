"""Servers that are away, that are none, that know no such chroot: who must act is told, and what can go on does."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.program import PATIENCE_SECONDS, Program
from tests.integration.world import World, named
from tests.kafka.helpers import Broker
from tests.shell.zk_world import Proxy
from tests.waiting import wait_until
from zkcoord import UsageError
from zkcoord.cli.main import cli
from zkcoord.cli.options import Limits, Settings
from zkcoord.core.model import TopicPartition
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.shell.zk.kafka_port import is_broker
from zkcoord.tree.paths import DRAFT

pytestmark = pytest.mark.zookeeper

ROOT = Path(__file__).parents[2]
NOWHERE = "127.0.0.1:1"
Spawn = Callable[..., Program]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts `zkcoord` with these arguments; nothing of it outlives the test."""
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def run(*arguments: str, limits: Limits | None = None) -> Result:
    """Run the command line in this process."""
    settings = None if limits is None else Settings(limits=limits)
    return CliRunner().invoke(cli, list(arguments), prog_name="zkcoord", obj=settings)


# ZooKeeper


def test_a_coordinator_whose_server_is_away_says_so_and_serves_once_it_is_there(spawn: Spawn) -> None:
    with closing(EmbeddedZooKeeper(fsync=False)) as server:
        program = spawn("coordinator", "--zookeeper", server.hosts)
        line = program.line("stderr", having="cannot be reached")
        assert server.hosts in line and line.endswith("still trying")

        server.start()

        assert program.line() == f"coordinator 0 serves: epoch 1, layout draft, ZooKeeper {server.hosts}"
        program.process.terminate()
        assert program.end() == 0


def test_a_name_that_nobody_knows_is_told_with_the_address() -> None:
    result = run("group", "list", "--zookeeper", "nowhere.invalid:2181", limits=Limits(tree_wait_ms=500))

    assert (result.exit_code, result.stdout) == (5, "")
    assert "nowhere.invalid:2181" in result.stderr
    assert "check that it runs and that the address is right" in result.stderr.splitlines()[-1]


def test_a_server_that_is_no_zookeeper_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        result = run("group", "describe", "g", "--zookeeper", address, limits=Limits(tree_wait_ms=500))

    assert (result.exit_code, result.stdout) == (5, "")
    assert f"ZooKeeper at {address} did not answer within 500 ms" in result.stderr


def test_kafkas_address_in_the_place_of_zookeepers_is_a_wrong_call() -> None:
    broker = Broker()
    result = run("group", "list", "--zookeeper", f"{broker.bootstrap_servers}/kafka")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        f"error: {broker.bootstrap_servers} is Kafka, not ZooKeeper: give ZooKeeper's address here, and the brokers' as"
        " --bootstrap-servers",
    )


def test_a_zookeeper_is_no_broker(zookeeper: EmbeddedZooKeeper) -> None:
    host, _, port = zookeeper.hosts.partition(":")
    assert not is_broker(host, int(port))


@pytest.mark.parametrize(
    "words",
    [
        ["group", "list"],
        ["group", "describe", "g"],
        ["consume", "--group", "g", "--topic", "clicks", "--bootstrap-servers", NOWHERE],
    ],
)
def test_a_chroot_that_does_not_exist_is_a_wrong_call(chroot: str, spawn: Spawn, words: list[str]) -> None:
    program = spawn(*words, "--zookeeper", f"{chroot}/deeper")

    assert program.end() == 2
    path = chroot.partition("/")[2]
    assert f"the chroot /{path}/deeper does not exist" in program.line("stderr", having="error: ")


def test_a_coordinator_where_there_is_no_kafka_says_so_until_there_is(chroot: str) -> None:
    with World(chroot) as world:
        told = world.reports

        def last() -> str:
            return told.paths("unreadable").get("/brokers", "")

        world.coordinate()
        wait_until(lambda: "there is no /brokers/ids" in last(), "it is told")
        assert "give the chroot of Kafka's brokers" in last()
        world.put("/brokers/ids")
        wait_until(lambda: "there is no /brokers/topics" in last(), "the other one is still missing")
        world.topic("clicks", 1)
        member = world.join("g", "clicks")
        wait_until(lambda: member.held() == ["clicks-0"], "it serves")
        assert len(told.of("unreadable")) == 2

        world.remove("/brokers/ids")
        wait_until(lambda: "there is no /brokers/ids" in last(), "it was there, and is told again")


def test_a_consumer_in_a_chroot_that_does_not_exist_ends_with_the_reason(chroot: str) -> None:
    with World(chroot) as world:
        world.zookeeper = f"{chroot}/deeper"
        consumer = world.join("g", "clicks").consumer

        wait_until(lambda: consumer.error is not None, "it ends")

        assert isinstance(consumer.error, UsageError)
        assert "/deeper does not exist" in str(consumer.error)


# Kafka


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A coordinator that serves."""
    with World(chroot) as world:
        world.coordinate()
        yield world


def test_a_consumer_whose_kafka_is_away_says_so_and_prints_once_it_is_there(world: World, spawn: Spawn) -> None:
    broker = Broker()
    name = broker.topic([10, 10])
    world.topic(name, 2)
    with Proxy(int(broker.bootstrap_servers.rpartition(":")[2])) as kafka:
        kafka.down()
        servers = ("--zookeeper", world.zookeeper, "--bootstrap-servers", kafka.hosts)
        program = spawn(
            "consume", "--group", "g", "--topic", name, "--from-beginning", "--max-messages", "20", *servers
        )
        other = world.join("other", name)

        line = program.line("stderr", having="start_refused")
        assert f"Kafka at {kafka.hosts}" in line and "check that it runs" in line
        wait_until(lambda: other.held() == named(name, 0, 1), "the other group goes on")
        kafka.up()

        assert program.end() == 0
        assert len(program.rest()) == 20


def test_a_consumer_whose_kafka_stays_away_leaves_at_its_timeout_and_keeps_its_offsets(
    world: World, spawn: Spawn
) -> None:
    world.topic("clicks", 1)
    offset = DRAFT.offset("g", TopicPartition("clicks", 0))
    world.put(offset, b"7")
    servers = ("--zookeeper", world.zookeeper, "--bootstrap-servers", NOWHERE)

    program = spawn("consume", "--group", "g", "--topic", "clicks", "--timeout-ms", "2000", *servers, "-v")

    assert program.end() == 5
    assert program.rest() == []
    told = program.rest("stderr")
    assert told[-2] == "0 messages"
    assert told[-1].startswith(f"error: Kafka at {NOWHERE} cannot be reached: ")
    assert world.data(offset) == b"7"


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("wrong", ["refused", "silent", "unknown name", "TLS to a plain port", "ZooKeeper's port"])
@pytest.mark.parametrize("has_offset", [True, False])
def test_f64_a_kafka_that_cannot_be_reached_is_told_once_and_ends_in_exit_code_5(
    world: World, spawn: Spawn, silent: str, tmp_path: Path, wrong: str, has_offset: bool
) -> None:
    world.topic("clicks", 1)
    if has_offset:
        world.put(DRAFT.offset("g", TopicPartition("clicks", 0)), b"7")
    address = {"silent": silent, "unknown name": "nowhere.invalid:9092", "ZooKeeper's port": world.zookeeper}
    servers = address.get(wrong, NOWHERE).partition("/")[0]
    options = []
    if wrong == "TLS to a plain port":
        servers = Broker().bootstrap_servers
        (tmp_path / "tls").write_text("security.protocol=SSL\n")
        options = ["--command-config", str(tmp_path / "tls")]

    where = ("--zookeeper", world.zookeeper, "--bootstrap-servers", servers)
    program = spawn("consume", "--group", "g", "--topic", "clicks", "--timeout-ms", "1500", *where, *options)

    assert program.end() == 5
    assert program.rest() == []
    told = program.rest("stderr")
    assert told[-2] == "0 messages"
    assert told[-1].startswith(f"error: Kafka at {servers} cannot be reached: ")
    assert told[-1].endswith("check that it runs, the address, and security.protocol")
    assert len([line for line in told if "kafka_away" in line]) == 1
    assert not [line for line in told if "rdkafka#" in line]


def test_f64_a_consume_that_is_stopped_while_kafka_is_away_all_the_time_is_no_success(
    world: World, spawn: Spawn
) -> None:
    world.topic("clicks", 1)
    servers = ("--zookeeper", world.zookeeper, "--bootstrap-servers", NOWHERE)
    program = spawn("consume", "--group", "g", "--topic", "clicks", *servers)
    assert "check that it runs" in program.line("stderr", having="kafka_away")

    program.process.terminate()

    assert program.end() == 5
    assert program.rest("stderr")[-1].startswith(f"error: Kafka at {NOWHERE} cannot be reached: ")


def test_a_group_whose_kafka_is_away_is_described_without_lag(world: World) -> None:
    world.topic("clicks", 1)
    world.put(DRAFT.offset("g", TopicPartition("clicks", 0)), b"7")
    member = world.join("g", "clicks")
    wait_until(lambda: member.held() == ["clicks-0"], "it is read")

    where = ("--zookeeper", world.zookeeper, "--bootstrap-servers", NOWHERE)
    result = run("group", "describe", "g", *where, limits=Limits(log_ends_wait_ms=500))

    assert result.exit_code == 0
    assert f"warning: Kafka at {NOWHERE}" in result.stderr and "check that it runs" in result.stderr
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("clicks ")]
    assert row == ["clicks", "0", "7", "-", "-", f"{member.consumer.consumer_id}-0"]


PATIENT = """
from zkcoord.kafka import resets
from zkcoord_command import main
resets.TIMEOUT_MS = resets.CLIENT_TIMEOUT_MS = 600_000
main()
"""


@pytest.mark.parametrize("begins", [[], ["--from-beginning"]])
def test_f84_a_consume_with_a_silent_kafka_ends_soon_after_its_time_and_says_it_in_plain_words(
    world: World, silent: str, begins: list[str]
) -> None:
    """It took 17 s with 2000 ms, and told the names of inner functions. Here each question without the program's limit
    would take ten minutes."""
    world.topic("clicks", 1)
    words = ("--group", "g", "--topic", "clicks", "--timeout-ms", "2000", *begins)
    servers = ("--zookeeper", world.zookeeper, "--bootstrap-servers", silent)
    command = [sys.executable, "-c", PATIENT, "consume", *words, *servers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)

    told = done.stderr.splitlines()
    assert (done.returncode, [line for line in told if "kafka_away" in line] != []) == (5, True), told
    advice = "check that it runs, the address, and security.protocol"
    assert told[-1] == f"error: Kafka at {silent} cannot be reached: it does not answer; {advice}"
    assert not [line for line in told if "UnavailableError" in line or "Local:" in line]
