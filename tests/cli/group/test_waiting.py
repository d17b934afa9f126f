"""`zkcoord group describe` that waits for a group, and that asks Kafka how far it is behind."""

import json
import sys

import pytest

from tests.cli.group_tree import P0, A, World
from tests.cli.program import Run, Spawn
from zkcoord.cli.options import Limits
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord, Request
from zkcoord.core.state import Failure, GroupState
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.state import encode_state

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> World:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def test_waiting_ends_when_the_group_is_stable(world: World, spawn: Spawn) -> None:
    world.settle()
    world.start_for_a()
    program = spawn("group", "describe", "g", "--wait", "stable", "--output", "json", "--zookeeper", world.address)

    world.remove(f"{DRAFT.channel('g', A)}/0000000003")

    assert json.loads(program.line())["settled"] is True
    assert program.end() == 0


def test_waiting_begins_before_the_first_coordinator_has_made_the_tree(chroot: str, run: Run, spawn: Spawn) -> None:
    early = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", chroot)
    assert (early.exit_code, early.stderr.partition(" at ")[0]) == (7, "error: no zkcoord tree")

    program = spawn("group", "describe", "g", "--wait", "stable", "--output", "json", "--zookeeper", chroot)
    with Tree(chroot) as tree:
        World(tree, chroot).settle()
        assert json.loads(program.line())["settled"] is True
    assert program.end() == 0


def test_waiting_for_a_group_that_does_not_come_to_rest_ends_in_time(world: World, run: Run) -> None:
    world.settle()
    world.start_for_a()

    result = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    assert result.exit_code == 5
    assert "group g is not stable yet (AwaitingSync, 1 command outstanding)" in result.stderr


def test_waiting_names_the_node_that_nobody_can_read_and_who_must_act(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.owner("g", P0), b"no thread")

    result = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    assert result.exit_code == 5
    assert result.stderr.splitlines()[-1].startswith(
        "error: group g is not stable yet (PreparingRebalance, 0 commands outstanding);"
        f" {DRAFT.owner('g', P0)}: b'no thread' is no thread id: an operator must set it empty, then run `zkcoord group"
        " rebalance g`"
    )


def test_a_group_that_is_left_alone_is_not_stable(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.record("g"), b"{")

    result = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    assert result.exit_code == 5
    left_alone = (
        "error: group g is left alone until an operator mends what cannot be read: record: bad group record '{'"
    )
    assert result.stderr.startswith(left_alone)


@pytest.mark.parametrize("has_members", [True, False])
def test_a_group_that_was_moved_is_told_with_its_place(chroot: str, run: Run, has_members: bool) -> None:
    """Before, it named `group resume`, which is refused then, or had people start its consumers."""
    with Tree(chroot) as tree:
        world = World(tree, chroot)
        if has_members:
            world.settle()
        moved = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181/kafka", run="r")
        world.put(DRAFT.record("g"), encode_record(GroupRecord(moved=moved, requests={"pause": Request(run="r")})))

        result = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", chroot)

    told = "error: group g was moved to zk2:2181/kafka: nobody reads it here"
    assert (result.exit_code, result.stderr[: len(told)]) == (5, told)


def test_waiting_for_a_group_that_was_given_up_fails_at_once(world: World, run: Run) -> None:
    world.settle()
    failed = GroupState(generation=7, failed=Failure(error="A is silent", since_generation=7))
    world.put(DRAFT.state("g"), encode_state(failed))

    result = run("group", "describe", "g", "--wait", "stable", "--zookeeper", world.address)

    assert (result.exit_code, result.stderr) == (3, "error: group g: A is silent\n")


def test_kafka_that_is_away_leaves_the_lag_open(world: World, run: Run) -> None:
    kafka_away = ("--bootstrap-servers", "127.0.0.1:1", "--zookeeper", world.address)
    world.settle()

    result = run("group", "describe", "g", *kafka_away, limits=Limits(log_ends_wait_ms=500))

    assert result.exit_code == 0
    assert "warning: Kafka at 127.0.0.1:1" in result.stderr
    assert "clicks          0             100               -    -  g_h" in result.stdout


def test_one_reason_for_many_partitions_is_one_warning(world: World, run: Run) -> None:
    kafka_away = ("--bootstrap-servers", "127.0.0.1:1", "--zookeeper", world.address)
    world.settle()
    world.topic("clicks", 12)

    result = run("group", "describe", "g", *kafka_away, limits=Limits(log_ends_wait_ms=500))

    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert "tell the log's end of clicks-0: " in warning
    assert warning.endswith(" (and so for 11 further partitions)")


def test_without_the_kafka_client_the_lag_stays_open(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKCOORD_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    world.settle()

    result = run("group", "describe", "g", "--zookeeper", world.address)

    why = "Kafka needs an extra package: pip install 'zkcoord[kafka]'; no log ends and no lag are shown"
    assert (result.exit_code, result.stderr) == (0, f"warning: {why}\n")
    assert "clicks          0             100               -    -  g_h" in result.stdout


def test_waiting_is_for_a_group_with_members(world: World, run: Run, spawn: Spawn) -> None:
    world.put(DRAFT.offset("g", P0), b"7")
    wait = ("--wait", "stable", "--zookeeper", world.address)

    late = run("group", "describe", "g", *wait, "--timeout-ms", "150")
    program = spawn("group", "describe", "g", *wait, "--output", "json")
    world.settle()

    assert late.exit_code == 5
    nobody = "no coordinator is elected: start one (`zkcoord coordinator`)"
    assert late.stderr == f"error: group g has no members (Empty): start its consumers, or wait longer; {nobody}\n"
    assert json.loads(program.line())["settled"] is True
    assert program.end() == 0


def test_waiting_is_for_a_group_that_does_not_exist_yet(world: World, run: Run, spawn: Spawn) -> None:
    wait = ("--wait", "stable", "--zookeeper", world.address)

    late = run("group", "describe", "g", *wait, "--timeout-ms", "150")
    program = spawn("group", "describe", "g", *wait, "--output", "json")
    world.settle()

    assert late.exit_code == 2
    assert "there is no group 'g'" in late.stderr
    assert json.loads(program.line())["settled"] is True


def test_waiting_for_all_groups_passes_over_those_without_members(world: World, run: Run) -> None:
    world.settle()
    world.put("/consumers/groups/other")

    result = run("group", "describe", "--all-groups", "--state", "--wait", "stable", "--zookeeper", world.address)

    assert result.exit_code == 0, result.stderr
    assert [
        line.split()[:2] for line in result.stdout.splitlines() if line and not line.startswith(("GROUP", "!"))
    ] == [
        ["g", "Stable"],
        ["other", "Empty"],
    ]
