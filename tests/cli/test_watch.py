"""`zkcoord watch` on a real server: each change is a line, also after its session was ended."""

import json
import signal
from collections.abc import Iterator

import pytest

from tests.audit.test_sessions import expire
from tests.cli.group_tree import P0, A, B, World
from tests.cli.program import Program, Run, Spawn
from tests.waiting import PATIENCE_SECONDS, wait_until
from zkcoord.cli.options import Settings
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UnavailableError
from zkcoord.operating.watching import Follower
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def event(program: Program, name: str) -> dict[str, object]:
    """The next event of this kind."""
    found: dict[str, object] = json.loads(program.line(having=f'"event":"{name}"'))
    del found["time_ms"]
    return found


def test_watch_prints_events_as_they_happen(world: World, spawn: Spawn) -> None:
    world.settle()
    watching = spawn("watch", "--output", "json", "--interval-ms", "600000", "--zookeeper", world.address)
    assert event(watching, "coordinator_seen")["coordinator"] is None
    seen = event(watching, "group_seen")
    assert (seen["group"], seen["state"], seen["members"]) == ("g", "Stable", 1)

    world.member(B)
    joined = {"event": "member_joined", "group": "g", "consumer": B, "instance": None, "topics": {"clicks": 1}}
    assert event(watching, "member_joined") == joined

    world.start_for_a()
    sent = event(watching, "command_sent")
    assert (sent["consumer"], sent["sequence"], sent["partitions"]) == (A, "0000000003", ["clicks-1"])
    world.remove(f"{DRAFT.channel('g', A)}/0000000003")
    assert event(watching, "command_done")["sequence"] == "0000000003"

    world.put(DRAFT.owner("g", P0), f"{B}-0".encode())
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="dual", store_step=1)))
    moved = event(watching, "partitions_moved")
    assert (moved["from"], moved["to"], moved["partitions"]) == (f"{A}-0", f"{B}-0", ["clicks-0"])
    assert event(watching, "offset_store_changed")["to"] == "dual"

    world.remove(DRAFT.registration("g", A))
    gone = event(watching, "member_gone")
    assert (gone["consumer"], gone["why"], gone["partitions"]) == (A, "died", ["clicks-1"])

    world.put(DRAFT.offset("later", P0), b"5")
    assert event(watching, "group_appeared")["group"] == "later"
    watching.process.send_signal(signal.SIGTERM)
    assert watching.end() == 0


def test_only_the_groups_that_were_named_are_watched(world: World, spawn: Spawn) -> None:
    world.settle()
    world.put(DRAFT.offset("other", P0), b"5")
    watching = spawn("watch", "g", "--zookeeper", world.address)
    assert "g group_seen state=Stable" in watching.line(having="group_seen")

    world.remove(DRAFT.registration("g", A))
    world.put(DRAFT.registration("other", "x"), b"{}")
    world.member(B)

    assert f"member_gone consumer={A} why=died" in watching.line(having=" g ")
    watching.line(having=f"member_joined consumer={B}")
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 0
    assert [line for line in watching.rest() if " other " in line] == []


def test_a_group_that_is_not_there_is_refused(world: World, run: Run) -> None:
    result = run("watch", "nothing", "--zookeeper", world.address)

    why = "error: there is no group 'nothing'; `zkcoord group list` shows them\n"
    assert (result.exit_code, result.stderr) == (2, why)


def test_without_a_zookeeper_it_ends_and_asks_no_more(spawn: Spawn) -> None:
    watching = spawn("watch", "--zookeeper", "127.0.0.1:1")

    assert watching.end() == 5


def test_after_a_session_everything_is_read_again_and_watched_in_the_next_one(world: World) -> None:
    world.settle()
    with Follower(world.address, Settings(zookeeper=world.address).tree, whole_every_ms=3_600_000) as follower:
        assert sorted(follower.read().groups["g"].view.members) == [A]
        expire(follower.tree, world.address)
        world.member(B)
        with pytest.raises(UnavailableError):
            follower.read()
        assert sorted(follower.read().groups["g"].view.members) == [A, B]
        world.remove(DRAFT.registration("g", B))
        assert follower.changed.wait(PATIENCE_SECONDS)
        wait_until(lambda: sorted(follower.read().groups["g"].view.members) == [A], "the watch tells it")
