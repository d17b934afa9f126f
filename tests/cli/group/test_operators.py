"""What an operator meets, on a real server with real coordinators and consumers: edited nodes, absent members."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.program import Run
from tests.integration.world import World, named
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT, SCHEMA

pytestmark = pytest.mark.zookeeper
T0 = TopicPartition("clicks", 0)


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A topic of four partitions, and somebody who coordinates."""
    with World(chroot) as made:
        made.topic("clicks", 4)
        made.coordinate()
        yield made


def test_f68_the_printed_remedy_for_an_overwritten_owner_gives_its_partition_anew(world: World, run: Run) -> None:
    member = world.join("g", "clicks")
    wait_until(lambda: member.held() == named("clicks", 0, 1, 2, 3), "everything is held")
    at = ("--zookeeper", world.zookeeper)
    path = DRAFT.owner("g", T0)
    world.put(path, b"xx yy")
    told = run("group", "describe", "g", *at)
    assert "an operator must set it empty, then run `zkcoord group rebalance g`" in told.stderr

    world.put(path, b"")
    assert run("group", "rebalance", "g", *at).exit_code == 0

    wait_until(lambda: world.data(path) != b"", "it is given anew")
    shown = run("group", "describe", "g", "--wait", "stable", "--output", "json", *at)
    assert (shown.exit_code, json.loads(shown.stdout)["settled"]) == (0, True)


def test_f65_a_wait_for_stable_does_not_succeed_while_a_static_member_is_away(world: World, run: Run) -> None:
    members = {name: world.join("g", "clicks", instance=name, hold_ms=60_000) for name in ("A", "B")}
    wait_until(lambda: sorted(len(m.held()) for m in members.values()) == [2, 2], "each has its share")
    share = members["A"].held()
    at = ("--zookeeper", world.zookeeper)

    members["A"].consumer.stop()
    wait_until(lambda: bool(world.reports.of("instance_away")), "its absence is noted")
    waited = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "500", *at)
    listed = json.loads(run("group", "list", "--output", "json", *at).stdout)

    assert waited.exit_code == 5
    assert "a static member is away (A: 2 partitions without a reader, kept for it until " in waited.stderr
    assert (listed["state"], listed["awaited"]["A"]["partitions"]) == ("AwaitingMember", share)
    assert listed["awaited"]["A"]["until_ms"] is not None
    again = world.join("g", "clicks", instance="A", hold_ms=60_000)
    wait_until(lambda: again.held() == share, "it has its share again")
    assert run("group", "describe", "g", "--wait", "stable", *at).exit_code == 0
    assert [told["instance"] for told in world.reports.of("instance_returned")] == ["A"]


def test_f68_coordinators_outlive_a_schema_that_is_bad_for_a_moment(world: World) -> None:
    def told(event: str) -> int:
        return len([fields for fields in world.reports.of(event) if fields["path"] == SCHEMA])

    good = world.data(SCHEMA)
    standby = world.stand_by()
    wait_until(lambda: len(world.reports.of("standing_by")) == 1, "it says that it stands by")
    world.put(SCHEMA, b"{")
    wait_until(lambda: told("unreadable") == 2, "both say so")
    world.put(SCHEMA, good)
    wait_until(lambda: told("problem_over") == 2, "both say that it is over")
    assert standby.error is None
