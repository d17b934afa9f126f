"""`zkcoord group plan` with an assumption: what would move if something were different."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.group_tree import A, B, World
from tests.cli.program import Run
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        made = World(tree, chroot)
        made.settle()
        yield made


def moves(world: World, run: Run, *options: str) -> list[tuple[str, str | None, str | None]]:
    """Partition, from, to."""
    result = run("group", "plan", "g", "--output", "json", "--zookeeper", world.address, *options)
    assert result.exit_code == 0, result.stderr
    return [(each["partition"], each["from"], each["to"]) for each in json.loads(result.stdout)["moves"]]


def test_one_more_member_would_be_given_half_and_nothing_is_written(world: World, run: Run) -> None:
    (before,) = world.tree.read([Read(DRAFT.state("g"))])

    (move,) = moves(world, run, "--add-member", "1")

    assert move[1:] == (f"{A}-0", "new-member-1-0")
    assert moves(world, run) == []
    assert world.tree.read([Read(DRAFT.state("g"))]) == (before,)


def test_a_member_that_left_would_leave_its_partitions_to_the_others(world: World, run: Run) -> None:
    world.member(B)

    found = moves(world, run, "--remove-member", A)

    assert found == [("clicks-0", f"{A}-0", f"{B}-0"), ("clicks-1", f"{A}-0", f"{B}-0")]


def test_more_partitions_would_be_given_to_who_reads_the_topic(world: World, run: Run) -> None:
    assert moves(world, run, "--partitions", "clicks=4") == [
        ("clicks-2", None, f"{A}-0"),
        ("clicks-3", None, f"{A}-0"),
    ]


def test_another_assignor_would_be_asked(world: World, run: Run) -> None:
    assert moves(world, run, "--assignor", "range") == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--remove-member", "nobody"),
            "--remove-member nobody: it is no member; `zkcoord group members g` shows them",
        ),
        (("--partitions", "other=3"), "the group reads no such topic"),
        (("--partitions", "clicks=1"), "it has 2, and Kafka removes none"),
        (("--partitions", "clicks"), "write TOPIC=NUMBER"),
        (("--partitions", "clicks=999999999"), "--partitions clicks=999999999: at most 100000 can be assumed"),
        (("--add-member", "99999999"), "--add-member 99999999: at most 10000 can be assumed"),
        (("--assignor", "mine"), "choose from"),
    ],
)
def test_impossible_assumptions_are_refused(world: World, run: Run, options: tuple[str, ...], says: str) -> None:
    result = run("group", "plan", "g", "--zookeeper", world.address, *options)

    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
