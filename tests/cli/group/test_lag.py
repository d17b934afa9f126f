"""`zkcoord group describe`: lag of all partitions, the order of rows, tables of several groups."""

from collections.abc import Iterator

import pytest

from tests.cli.group_tree import P0, P1, World
from tests.cli.program import Run
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def test_the_sum_of_the_lag_is_told_and_the_largest_can_come_first(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P1), b"50")
    monkeypatch.setattr("zkcoord.operating.kafka_side.KafkaSide.ends", lambda *_: {P0: 103, P1: 75})

    by_topic = run("group", "describe", "g", "--zookeeper", world.address).stdout.splitlines()
    by_lag = run("group", "describe", "g", "--sort", "lag", "--zookeeper", world.address).stdout.splitlines()

    assert by_topic[0].endswith("1 member, lag 28")
    assert [line.split()[4] for line in by_topic[3:5]] == ["3", "25"]
    assert [line.split()[4] for line in by_lag[3:5]] == ["25", "3"]


def test_with_all_groups_each_table_of_members_says_whose_it_is(world: World, run: Run) -> None:
    world.settle()

    result = run("group", "describe", "--all-groups", "--members", "--zookeeper", world.address)

    assert result.stdout.splitlines()[0] == "Group g"
