"""`zkcoord group describe` reports how Kafka's brokers leave ZooKeeper; a real server, no coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.group_tree import World
from tests.cli.program import Run
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.brokers_move import SILENT
from zkcoord.tree.candidate import with_silent
from zkcoord.tree.paths import CANDIDATES, DRAFT

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def described(run: Run, world: World) -> str:
    """What programs see of the brokers."""
    result = run("group", "describe", "g", "--output", "json", "--zookeeper", world.address)
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["brokers"])


def test_f158_brokers_that_leave_zookeeper_are_shown_with_the_command_that_mends_it(world: World, run: Run) -> None:
    world.settle()
    world.put("/brokers/ids/0", b"{}")
    world.put("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}')
    told = run("group", "describe", "g", "--zookeeper", world.address)
    assert told.exit_code == 0
    assert "Kafka's brokers are being moved to KRaft" in told.stderr
    assert "run `zkcoord migrate topics --to kafka --bootstrap-servers HOST:PORT`" in told.stderr
    world.remove("/brokers/ids/0")
    assert "Kafka's brokers have left ZooKeeper for KRaft" in described(run, world)


@pytest.mark.parametrize("says", [True, False])
def test_f242_the_coordinators_word_of_silent_controllers_is_shown(world: World, run: Run, says: bool) -> None:
    world.settle()
    world.put("/brokers/ids/0", b"{}")
    world.put("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}')
    world.put(f"{CANDIDATES}/0", with_silent(b'{"host":"a"}', silent=says))
    world.put(DRAFT.coordinator, b"0")
    told = run("group", "describe", "g", "--zookeeper", world.address)
    assert (told.exit_code, SILENT in told.stderr) == (0, says)
    assert (SILENT in described(run, world)) is says
    world.remove("/brokers/ids/0")  # no broker uses ZooKeeper any more
    assert SILENT not in described(run, world)
