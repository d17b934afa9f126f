"""The verbs of `zkcoord group`, and `zkcoord coordinators`, on a real server with real coordinators and consumers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.program import Run, Spawn
from tests.integration.world import Member, World, named
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord
from zkcoord.migrate import upgrade
from zkcoord.operating.requesting import wait
from zkcoord.shell.zk.blocking import Tree
from zkcoord.shell.zk.config import Acl, ZooKeeperConfig
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.writes import CreateNode, Transaction

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A topic of four partitions, and somebody who coordinates."""
    with World(chroot) as made:
        made.topic("clicks", 4)
        made.coordinate()
        yield made


@pytest.fixture
def member(world: World) -> Member:
    """The only member of group g, which holds everything."""
    joined = world.join("g", "clicks")
    wait_until(lambda: joined.held() == named("clicks", 0, 1, 2, 3), "everything is held")
    return joined


def text(run: Run, *arguments: str) -> str:
    """What a command prints for people."""
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def said(result: Result) -> str:
    """The last line on standard error: those of coordinators and consumers of this process stand before it."""
    return str(result.stderr).splitlines()[-1]


def test_a_group_is_paused_and_resumed(world: World, member: Member, run: Run) -> None:
    at = ("--zookeeper", world.zookeeper)
    assert text(run, "group", "pause", "g", *at) == "group g: paused\n"
    wait_until(lambda: member.held() == [], "the member has seen its release, too")
    assert "paused by" in text(run, "group", "describe", "g", *at)
    assert text(run, "group", "pause", "g", *at) == "group g: paused\n"  # it stands: nothing new
    refused = run("group", "rebalance", "g", *at)
    assert (refused.exit_code, said(refused)) == (
        2,
        "error: rebalance of group g is refused: the group is paused: resume it first",
    )

    waited = run("group", "describe", "g", "--wait", "stable", "--timeout-ms", "0", *at)
    assert (waited.exit_code, said(waited)) == (
        5,
        "error: group g is paused, and not stable (Paused, 0 commands outstanding): `zkcoord group resume g` ends that",
    )
    assert text(run, "group", "resume", "g", *at) == "group g: resumed\n"
    wait_until(lambda: member.held() == named("clicks", 0, 1, 2, 3), "it has everything back")
    assert text(run, "group", "resume", "g", *at) == "group g: was neither held nor paused\n"


def test_a_held_group_shows_what_a_rebalance_would_move(world: World, member: Member, run: Run) -> None:
    at = ("--zookeeper", world.zookeeper)
    assert text(run, "group", "plan", "g", *at) == "group g: nothing would move\n"
    held = json.loads(text(run, "group", "hold", "g", "--output", "json", *at))
    assert (held["group"], held["request"], held["state"]) == ("g", "hold", "held")
    second = world.join("g", "clicks")
    wait_until(lambda: len(world.children(DRAFT.ids("g"))) == 2, "the second is a member")

    planned = json.loads(text(run, "group", "plan", "g", "--output", "json", *at))
    assert len(planned["moves"]) == 2
    header, *rows = [line.split() for line in text(run, "group", "plan", "g", *at).splitlines()]
    assert header == ["TOPIC", "PARTITION", "FROM", "TO"]
    assert [row[:2] for row in rows] == [move["partition"].split("-") for move in planned["moves"]]
    assert second.held() == []

    text(run, "group", "resume", "g", *at)
    wait_until(lambda: len(second.held()) == 2, "the second has its share")
    assert text(run, "group", "rebalance", "g", *at) == "group g: done\n"


def test_a_group_with_members_is_not_deleted(world: World, member: Member, run: Run) -> None:
    refused = run("group", "delete", "g", "--offsets", "--zookeeper", world.zookeeper)
    assert (refused.exit_code, said(refused)) == (
        2,
        "error: delete of group g is refused: it has 1 member: stop its consumers first",
    )
    assert member.held() == named("clicks", 0, 1, 2, 3)


def test_a_group_is_deleted_with_its_offsets_only_when_asked(world: World, member: Member, run: Run) -> None:
    at = ("--zookeeper", world.zookeeper)
    member.consumer.stop()
    wait_until(lambda: world.children(DRAFT.ids("g")) == [], "it is empty")

    kept = "group g: deleted; its offsets are kept (--offsets deletes them, too)\n"
    assert text(run, "group", "delete", "g", *at) == kept
    assert world.children(DRAFT.offsets("g")) == ["clicks"]
    assert world.data(DRAFT.record("g")) == b""

    assert text(run, "group", "delete", "g", "--offsets", *at) == "group g: deleted\n"
    assert world.children("/consumers/groups") == []
    assert world.children("/zkcoord/groups") == []
    gone = run("group", "delete", "g", "--offsets", *at)
    assert (gone.exit_code, said(gone)) == (2, "error: there is no group 'g'; `zkcoord group list` shows them")


def test_a_deleted_group_with_offsets_is_listed_again_after_a_join_or_a_decision(
    world: World, member: Member, run: Run
) -> None:
    at = ("--zookeeper", world.zookeeper)
    member.consumer.stop()
    wait_until(lambda: world.children(DRAFT.ids("g")) == [], "it is empty")
    assert text(run, "group", "list", *at) == "g\n"

    text(run, "group", "delete", "g", *at)
    assert text(run, "group", "list", *at) == ""
    assert text(run, "group", "list", "--output", "json", *at) == ""
    assert text(run, "group", "describe", "--all-groups", *at) == ""
    assert text(run, "group", "list", "--all", *at) == "g\n"
    assert "DELETED: only its offsets were kept" in text(run, "group", "list", "--all", "--state", *at)
    assert "DELETED: only its offsets were kept" in text(run, "group", "describe", "g", *at)
    assert json.loads(text(run, "group", "list", "--all", "--output", "json", *at))["deleted"] is True

    text(run, "group", "config", "g", "rebalance=eager", *at)
    assert text(run, "group", "list", *at) == "g\n"
    text(run, "group", "delete", "g", *at)
    assert text(run, "group", "list", *at) == ""

    joined = world.join("g", "clicks")
    wait_until(lambda: joined.held() == named("clicks", 0, 1, 2, 3), "everything is held")
    assert text(run, "group", "list", *at) == "g\n"
    assert json.loads(text(run, "group", "list", "--output", "json", *at))["deleted"] is False
    joined.consumer.stop()
    wait_until(lambda: world.children(DRAFT.ids("g")) == [], "it is empty again")
    assert text(run, "group", "list", *at) == "g\n"


def test_a_group_of_which_an_old_tool_left_the_record_is_found_and_deleted(world: World, run: Run) -> None:
    at = ("--zookeeper", world.zookeeper)
    with Tree(world.zookeeper) as tree:
        tree.commit(Transaction(writes=(CreateNode(DRAFT.record("left")),)))

    assert text(run, "group", "list", *at) == "left\n"
    assert text(run, "group", "describe", "left", *at).startswith("Group left: Empty, ")
    assert text(run, "group", "delete", "left", *at) == "group left: deleted\n"
    assert text(run, "group", "list", *at) == ""


def test_a_copy_whose_source_is_lost_is_deleted_and_its_offsets_may_be_kept(
    world: World, run: Run, tmp_path: Path
) -> None:
    at, kept = ("--zookeeper", world.zookeeper), str(tmp_path / "kept.txt")
    arriving = Moved(state=MoveState.ARRIVING, tree="aa", address="zk-aa:2181", run="r")
    world.put(DRAFT.record("g"), encode_record(GroupRecord(moved=arriving)))
    world.put(DRAFT.offset("g", TopicPartition("clicks", 0)), b"7")
    wait_until(lambda: "is arriving from zk-aa:2181" in text(run, "group", "describe", "g", *at), "it is seen")

    text(run, "offsets", "export", kept, "--group", "g", *at)
    delete = ("group", "delete", "g", "--copy-of")
    wrong = run(*delete, "zk-aa:2181", "--offsets", *at)
    assert (wrong.exit_code, said(wrong)) == (
        2,
        "error: --copy-of deletes the copy's offsets, too: leave --offsets out",
    )
    done = json.loads(text(run, *delete, "zk-aa:2181", "--output", "json", *at))
    assert done == {"group": "g", "request": "delete", "run": "", "state": "done"}
    assert world.children("/zkcoord/groups") == []
    again = run(*delete, "zk-aa:2181", *at)
    assert (again.exit_code, said(again)) == (
        2,
        "error: group g is not arriving from zk-aa:2181 here: it is no copy",
    )

    text(run, "offsets", "import", kept, "--group", "g", *at)
    assert world.data(DRAFT.offset("g", TopicPartition("clicks", 0))) == b"7"


def test_a_pause_that_cannot_end_names_the_owner_that_nobody_can_read(world: World, member: Member, run: Run) -> None:
    owner = DRAFT.owner("g", TopicPartition("clicks", 0))
    world.put(owner, b"no thread")

    result = run("group", "pause", "g", "--timeout-ms", "1000", "--zookeeper", world.zookeeper)

    assert result.exit_code == 5
    assert f"; {owner}: b'no thread' is no thread id: an operator must set it empty" in said(result)


PENDING = "the request stands, and a coordinator carries it out as soon as it can"


def test_without_a_coordinator_the_request_stands_and_the_command_says_so(chroot: str, run: Run) -> None:
    with World(chroot) as world:
        world.topic("clicks", 1)
        coordinator = world.coordinate()
        world.join("g", "clicks")
        wait_until(lambda: "0" in world.children(DRAFT.mark("g", "clicks")), "it is granted")
        coordinator.stop()
        result = run("group", "pause", "g", "--timeout-ms", "200", "--zookeeper", chroot)
        assert (result.exit_code, said(result)) == (
            5,
            f"error: pause of group g is not done after 200 ms (no coordinator is elected): {PENDING}",
        )
        assert json.loads(world.data(DRAFT.record("g")))["wish"]["pause"]["run"]


def test_an_interrupted_wait_says_that_its_request_stands(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait("pause of group g", 60_000, interrupted, lambda: "coordinator 0 serves")

    assert capsys.readouterr().err == f"notice: pause of group g is not done yet: {PENDING}\n"


def test_a_coordinator_that_resigns_is_replaced_at_once_and_stands_again(chroot: str, run: Run, spawn: Spawn) -> None:
    at = ("--zookeeper", chroot)
    first = spawn("coordinator", "--id", "7", *at)
    first.line(having="serves")
    second = spawn("coordinator", "--id", "8", *at)

    def states() -> list[tuple[str, str]]:
        lines = text(run, "coordinators", "list", "--output", "json", *at).splitlines()
        return [(line["coordinator"], line["state"]) for line in map(json.loads, lines)]

    wait_until(lambda: states() == [("7", "serving"), ("8", "standing by")], "both stand")
    listed = text(run, "coordinators", "list", *at).splitlines()
    assert [line.split()[-2] for line in listed] == ["PROTOCOLS", "1-1", "1-1"]
    resigned = run("coordinators", "resign", "7", *at)
    assert (resigned.stdout, resigned.stderr) == ("coordinator 7 has resigned; coordinator 8 serves\n", "")
    assert "epoch 2" in second.line(having="serves")
    wait_until(lambda: states() == [("7", "standing by"), ("8", "serving")], "it stands again")
    assert first.process.poll() is None
    nobody = run("coordinators", "resign", "3", *at)
    assert (nobody.exit_code, said(nobody)) == (
        2,
        "error: there is no coordinator 3; `zkcoord coordinators list` shows them",
    )


def test_resign_without_the_right_to_write_says_so(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        upgrade(tree, run_id="test")
    mine = ZooKeeperConfig(digest="alice:secret", acl=(Acl(31, "auth", ""), Acl(1, "world", "anyone")))
    with Tree(chroot, config=mine) as alice:
        alice.commit(Transaction(writes=(CreateNode(DRAFT.candidate(7), b'{"host":"a"}'),)))

    refused = run("coordinators", "resign", "7", "--zookeeper", chroot)

    assert (refused.exit_code, said(refused)) == (
        2,
        f"error: {DRAFT.candidate(7)}: no right to write there; log in as who may (--zookeeper-config)",
    )
