"""Whatever outage a program tells at its usual log level, it tells the end of there, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.cli.program import Program
from tests.integration.world import World
from tests.kafka.helpers import Broker
from tests.shell.zk_world import Proxy
from zkcoord.embedded import EmbeddedZooKeeper

pytestmark = pytest.mark.zookeeper

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


@pytest.fixture
def link(chroot: str) -> Iterator[Proxy]:
    """A link to ZooKeeper, which can be cut."""
    with Proxy(int(chroot.partition("/")[0].rpartition(":")[2])) as link:
        yield link


def through(link: Proxy, chroot: str) -> tuple[str, str]:
    """The options of a program that reaches this chroot through the link."""
    return "--zookeeper", f"{link.hosts}/{chroot.partition('/')[2]}"


def test_f208_a_consume_and_a_coordinator_tell_that_zookeeper_is_away_and_that_it_is_back(
    chroot: str, link: Proxy, spawn: Spawn
) -> None:
    broker = Broker()
    name = broker.topic([10])
    with World(chroot) as world:
        world.topic(name, 1)
        zookeeper = through(link, chroot)
        coordinator = spawn("coordinator", *zookeeper)
        coordinator.line(having="serves")
        kafka = ("--bootstrap-servers", broker.bootstrap_servers)
        consumer = spawn("consume", "--group", "g", "--topic", name, "--from-beginning", *zookeeper, *kafka)
        consumer.line()

        link.down()
        for program in (coordinator, consumer):
            away = program.line("stderr", having="cannot be reached")
            assert "WARNING: ZooKeeper cannot be reached at" in away and away.endswith("still trying")
        link.up()

        for program in (coordinator, consumer):
            back = program.line("stderr", having="can be reached again")
            assert back.endswith(f"ZooKeeper can be reached again at {link.hosts}")
            assert "WARNING" not in back


def test_f208_a_consume_tells_that_kafka_is_away_and_that_it_is_back(chroot: str, spawn: Spawn) -> None:
    broker = Broker()
    name = broker.topic([10])
    with World(chroot) as world, Proxy(int(broker.bootstrap_servers.rpartition(":")[2])) as kafka:
        world.coordinate()
        world.topic(name, 1)
        kafka.down()
        servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.hosts)
        consumer = spawn("consume", "--group", "g", "--topic", name, *servers)

        assert "WARNING: kafka_away group=g" in consumer.line("stderr", having="kafka_away")
        kafka.up()

        assert consumer.line("stderr", having="kafka_back").endswith(" kafka_back group=g")


def test_f208_a_waiting_consume_tells_its_registration_and_the_election(
    spawn: Spawn,
) -> None:
    with closing(EmbeddedZooKeeper(fsync=False)) as server:
        server.start()
        servers = ("--zookeeper", server.hosts, "--bootstrap-servers", "127.0.0.1:1")
        consumer = spawn("consume", "--group", "g", "--topic", "clicks", *servers)
        assert "start a coordinator" in consumer.line("stderr", having="WARNING: waiting")

        coordinator = spawn("coordinator", "--zookeeper", server.hosts)
        coordinator.line(having="serves")

        assert "WARNING" not in consumer.line("stderr", having=" registered ")
        coordinator.process.kill()
        consumer.line("stderr", having="WARNING: no_coordinator")
        spawn("coordinator", "--zookeeper", server.hosts)

        assert "WARNING" not in consumer.line("stderr", having=" coordinator_elected ")
