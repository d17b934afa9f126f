"""`zkcoord group describe` of a group in which the share of a static member that is away waits for it."""

import json
import time

import pytest

from tests.cli.group_tree import P0, P1, A, B, World
from tests.cli.program import Run, Spawn
from zkcoord.cli.options import Limits
from zkcoord.core.state import GroupState
from zkcoord.core.view import Instance
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read
from zkcoord.tree.state import digest, encode_state

pytestmark = pytest.mark.zookeeper

HOLD_MS = 3_600_000


@pytest.fixture
def world(chroot: str) -> World:
    """A reads clicks-0; clicks-1 is owned by B, of the instance etl-2, which is gone."""
    with Tree(chroot) as tree:
        found = World(tree, chroot)
        found.settle()
        known = Instance(last_id=B, hold_ms=HOLD_MS, threads={"clicks": 1}, share={P1: 0}, assignor="sticky", away=True)
        found.put(DRAFT.instance("g", "etl-2"), encode_instance(known))
        found.put(DRAFT.owner("g", P1), f"{B}-0".encode())
        target = digest({P0: f"{A}-0", P1: "@etl-2-0"})
        found.put(DRAFT.state("g"), encode_state(GroupState(generation=7, target=target)))
        found.put(DRAFT.coordinator, b"3")
        yield found


def until(world: World) -> tuple[int, str]:
    """When the hold ends: ms, and as people read it."""
    noted, elected = world.tree.read([Read(DRAFT.instance("g", "etl-2")), Read("/zkcoord/epoch")])
    assert noted.stat is not None
    assert elected.stat is not None
    until_ms = max(noted.stat.mtime_ms, elected.stat.mtime_ms) + HOLD_MS
    return until_ms, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(until_ms / 1000))


def test_f65_people_see_who_is_away_how_much_waits_and_until_when(world: World, run: Run) -> None:
    plain = run("group", "describe", "g", "--zookeeper", world.address)
    members = run("group", "describe", "g", "--members", "--zookeeper", world.address)

    away = f"1 partition without a reader, kept for it until {until(world)[1]}, by the clock of ZooKeeper's server"
    assert plain.stdout.splitlines()[0] == (
        "Group g: AwaitingMember, generation 7, coordinator 3, epoch 0, 0 commands outstanding, 1 member,"
        f" static member etl-2 is away: {away}"
    )
    assert f"{B}-0 (gone)" in plain.stdout
    assert [line.split(maxsplit=7) for line in members.stdout.splitlines()[2:]] == [
        [B, "(gone)", "etl-2", "1", "0", "-", "clicks:1", f"away: {away}"]
    ]


def test_f65_of_a_group_whose_members_are_all_away_the_share_that_waits_is_the_one_remembered(
    world: World, run: Run
) -> None:
    world.remove(DRAFT.registration("g", A))

    plain = run("group", "describe", "g", "--zookeeper", world.address)
    late = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    assert "0 members, static member etl-2 is away: 1 partition without a reader" in plain.stdout.splitlines()[0]
    assert late.stderr.splitlines()[-1] == (
        "error: group g has no members (Empty), static members are away (etl-2): start its consumers, or wait longer"
    )


def test_f65_programs_see_it_too(world: World, run: Run) -> None:
    result = run("group", "list", "--output", "json", "--zookeeper", world.address)

    document = json.loads(result.stdout)
    assert (document["state"], document["settled"], document["member_count"]) == ("AwaitingMember", False, 1)
    awaited = {"consumer": B, "partitions": ["clicks-1"], "hold_ms": HOLD_MS, "until_ms": until(world)[0]}
    assert document["awaited"] == {"etl-2": awaited}


def test_f65_waiting_for_stable_says_whom_it_waits_for_and_does_not_succeed(world: World, run: Run) -> None:
    wait = ("--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)

    result = run("group", "describe", "g", *wait, limits=Limits(say_every_ms=0))

    assert result.exit_code == 5
    assert result.stdout == ""
    what = "group g is not stable (AwaitingMember): a static member is away (etl-2: 1 partition without a reader"
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"waiting: {what}")
    assert lines[-1].startswith(f"error: {what}")
    assert "start it again, wait longer, or let `zkcoord group rebalance g` give its share to others" in lines[-1]


def test_f65_waiting_ends_when_the_instance_is_back(world: World, spawn: Spawn) -> None:
    program = spawn("group", "describe", "g", "--wait", "stable", "--output", "json", "--zookeeper", world.address)

    world.member(B, "etl-2", hold_ms=HOLD_MS)

    assert json.loads(program.line())["awaited"] == {}
    assert program.end() == 0


def test_f65_without_a_coordinator_nobody_knows_until_when_and_that_is_said(world: World, run: Run) -> None:
    world.remove(DRAFT.coordinator)

    wait = ("--wait", "stable", "--timeout-ms", "150", "--zookeeper", world.address)
    plain = run("group", "describe", "g", "--zookeeper", world.address)
    late = run("group", "describe", "g", *wait)

    assert f"kept for it for {HOLD_MS} ms from the next election on" in plain.stdout.splitlines()[0]
    assert late.stderr.endswith("; no coordinator is elected: start one (`zkcoord coordinator`)\n")


def test_waiting_says_that_the_first_coordinator_is_not_there(chroot: str, run: Run) -> None:
    wait = ("--wait", "stable", "--timeout-ms", "150", "--zookeeper", chroot)
    result = run("group", "describe", "g", *wait, limits=Limits(say_every_ms=0))

    assert result.exit_code == 7
    assert "waiting: the first coordinator has not made zkcoord's nodes yet" in result.stderr


def test_a_time_without_a_wait_is_refused(world: World, run: Run) -> None:
    result = run("group", "describe", "g", "--timeout-ms", "150", "--zookeeper", world.address)

    assert result.exit_code == 2
    told = "--timeout-ms is how long --wait stable waits: give --wait stable, too, or leave --timeout-ms out"
    assert told in result.stderr
