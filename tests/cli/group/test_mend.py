"""`zkcoord group mend`: what nobody can parse is shown, a proposal is made, and written when somebody says so."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.group_tree import P0, P1, A, B, World
from tests.cli.program import PATIENCE_SECONDS, Run
from tests.cli.terminal import Terminal
from zkcoord.core.adoption import Adoption
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Request
from zkcoord.core.state import Announced
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.core.view import Channel, GroupView, Member, Owner
from zkcoord.group_report import read_group
from zkcoord.migrate import current
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.ports import ReadCommits
from zkcoord.operating.kafka_side import KafkaSide
from zkcoord.operating.mending import broken, record_without_faults
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.status import Status, encode_status
from zkcoord.tree.topic import Mark, encode_mark


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def data(world: World, path: str) -> bytes:
    (node,) = world.tree.read([Read(path)])
    return node.data


def mended(run: Run, world: World, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """Run it for programs; returns its objects."""
    result = run("group", "mend", "g", "--output", "json", "--zookeeper", world.address, *words)
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.zookeeper
def test_f181_a_group_with_unreadable_record_owner_and_offset_is_whole_again(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.record("g"), b'{"version":1,"assignor":"range","policy":{"max_moves":"many","max_probes":5}}')
    world.put(DRAFT.owner("g", P0), b"\xff\xfe")
    world.put(DRAFT.offset("g", P0), b'"100"')
    world.put(DRAFT.offset("g", P1), b"7")

    found = mended(run, world, "--yes")

    assert {each["kind"]: (each["result"], each["proposed"]) for each in found if each["kind"] != "record"} == {
        "owner": ("mended", ""),
        "offset": ("mended", "100"),
    }
    record = decode_record(data(world, DRAFT.record("g")))
    assert (record.assignor, record.policy.max_moves, record.policy.max_probes) == ("range", None, 5)
    (of_record,) = [each for each in found if each["kind"] == "record"]
    assert of_record["why"] == "it is left out: policy.max_moves; the offset store is zookeeper"
    assert (data(world, DRAFT.owner("g", P0)), data(world, DRAFT.offset("g", P0))) == (b"", b"100")
    assert data(world, DRAFT.offset("g", P1)) == b"7"
    assert read_group(world.tree, DRAFT, "g").problems == {}
    assert mended(run, world, "--yes") == []


@pytest.mark.zookeeper
def test_an_owner_is_its_reader_where_a_member_says_that_it_reads_the_partition(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.channel("g", A), encode_status(Status(held={7: {"clicks": "0-1"}})))
    world.put(DRAFT.owner("g", P1), b"nonsense")

    (found,) = mended(run, world, "--yes")

    assert (found["proposed"], found["why"]) == (f"{A}-0", f"{A} says that it reads it")
    assert data(world, DRAFT.owner("g", P1)) == f"{A}-0".encode()


@pytest.mark.zookeeper
def test_an_offset_is_never_guessed(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P0), b"1OO")

    (unknown,) = mended(run, world, "--yes", code=6)
    assert (unknown["result"], unknown["why"]) == ("no proposal", "say where to go on: --offset clicks-0=N")
    assert data(world, DRAFT.offset("g", P0)) == b"1OO"
    world.put(DRAFT.offset("g", P0), b"'9999999999999999999'")
    assert mended(run, world, "--yes", code=6)[0]["proposed"] is None
    world.put(DRAFT.offset("g", P0), b"1OO")
    readable = run("group", "mend", "g", "--yes", "--offset", "clicks-1=3", "--zookeeper", world.address)
    assert (readable.exit_code, "clicks-1: this offset can be read" in readable.stderr) == (2, True)

    (dry,) = mended(run, world, "--dry-run", "--offset", "clicks-0=90")
    assert (dry["proposed"], dry["result"], data(world, DRAFT.offset("g", P0))) == ("90", "proposed", b"1OO")
    (found,) = mended(run, world, "--yes", "--offset", "clicks-0=90")
    assert (found["result"], data(world, DRAFT.offset("g", P0))) == ("mended", b"90")


@pytest.mark.zookeeper
def test_mend_leaves_changed_nodes_alone(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P0), b"'5'")
    commit = Tree.commit

    def behind_somebody(tree: Tree, transaction: Any) -> Any:
        monkeypatch.setattr(Tree, "commit", commit)
        world.put(DRAFT.offset("g", P0), b"110")
        return commit(tree, transaction)

    monkeypatch.setattr(Tree, "commit", behind_somebody)
    (found,) = mended(run, world, "--yes", code=6)

    assert found["result"] == "left alone: it has changed meanwhile (BadVersion)"
    assert data(world, DRAFT.offset("g", P0)) == b"110"


@pytest.mark.zookeeper
@pytest.mark.parametrize(("answer", "left"), [("y", b"100"), ("n", b"100 records")])
def test_people_see_the_bytes_and_are_asked(world: World, answer: str, left: bytes) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P0), b"100 records")
    with closing(Terminal("group", "mend", "g", "--offset", "clicks-0=100", "--zookeeper", world.address)) as terminal:
        lines = terminal.until(lambda lines: any("Write 1 node? [y/N]:" in line for line in lines))
        terminal.press(f"{answer}\r")
        assert terminal.process.wait(PATIENCE_SECONDS) == 0

    assert lines[:4] == [
        f"{DRAFT.offset('g', P0)} (offset)",
        "  holds     b'100 records'",
        "  wrong     bad offset '100 records': not a number",
        "  proposed  b'100': by --offset",
    ]
    assert data(world, DRAFT.offset("g", P0)) == left
    terminal.until_closed()
    assert any("notice: nothing was written" in line for line in terminal.lines()) is (left == b"100 records")


@pytest.mark.zookeeper
def test_where_nobody_can_be_asked_nothing_is_written(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P0), b"'5'")

    result = run("group", "mend", "g", "--zookeeper", world.address)

    assert (result.exit_code, "--yes writes what is proposed" in result.stderr) == (2, True)
    assert data(world, DRAFT.offset("g", P0)) == b"'5'"
    whole = run("group", "mend", "g", "--yes", "--offset", "clicks-0=x", "--zookeeper", world.address)
    assert whole.stderr.startswith("error: --offset clicks-0=x: write TOPIC-PARTITION=N")


def of_members(*stores: tuple[str, int]) -> GroupView:
    channels = {
        str(n): Channel(consumer_id=str(n), version=1, store_name=name, store_step=step)
        for n, (name, step) in enumerate(stores)
    }
    return GroupView(group="g", channels=channels)


def test_f182_a_record_that_is_lost_keeps_the_offset_store_that_its_members_use() -> None:
    """Else they would go on at the old nodes in ZooKeeper."""
    for lost in (b"\xff", b"", b"[]", b'{"offsets":7}', b'{"assig'):
        proposed, _ = record_without_faults(lost, of_members(("kafka", 2), ("kafka", 2)))
        assert proposed is not None
        assert (decode_record(proposed).store_name, decode_record(proposed).store_step) == ("kafka", 2)
    known = encode_record(GroupRecord(store_name="dual", store_step=1)).replace(b'"cooperative"', b'"gentle"')
    proposed, why = record_without_faults(known, of_members(("kafka", 2)))
    assert proposed == encode_record(GroupRecord(store_name="dual", store_step=1))
    assert why == "it is left out: rebalance; the offset store is dual"


def test_a_record_that_nobody_should_write_over_has_no_proposal() -> None:
    assert record_without_faults(b'{"version":2}', of_members()) == (None, "a newer zkcoord wrote it: use that one")
    between = record_without_faults(b"x", of_members(("dual", 1), ("kafka", 2)))
    assert between == (None, "its members use different offset stores: write it by hand")
    unknown = "no member tells its offset store: write it by hand ({} if its offsets are in ZooKeeper)"
    for lost in (b"x", b'{"offsets":{"store":"kafka","step":"many"}}'):
        assert record_without_faults(lost, of_members()) == (None, unknown)
        assert record_without_faults(lost, of_members(("", 0))) == (None, unknown)
    moved = b'{"offsets":{"store":"kafka","step":2},"moved":{"state":"gone?","tree":"t"}}'
    why = "whether the group has moved to another tree is not known: write it by hand"
    assert record_without_faults(moved, of_members(("kafka", 2))) == (None, why)


def test_a_lost_record_is_one_of_zookeeper_where_members_read_and_were_told_no_other_store() -> None:
    reads = Channel(consumer_id=A, version=1, held=frozenset({P0}))
    assert record_without_faults(b"x", GroupView(group="g", channels={A: reads})) == (
        encode_record(DEFAULT_RECORD),
        "it is left out: all of it; the offset store is zookeeper",
    )


@pytest.mark.zookeeper
def test_f189_an_owner_is_not_free_while_a_member_may_read_its_partition(world: World, run: Run) -> None:
    """Else it is given to a second reader."""
    world.settle()
    world.put(DRAFT.owner("g", P1), b"nonsense")
    world.put(DRAFT.channel("g", A), b"no status")
    (unknown,) = mended(run, world, "--yes", code=6)
    why = f"what {A} reads is not known: stop it, and run this again"
    assert (unknown["proposed"], unknown["why"]) == (None, why)
    assert data(world, DRAFT.owner("g", P1)) == b"nonsense"

    world.put(DRAFT.channel("g", A), encode_status(Status()))
    world.start_for_a()
    (found,) = mended(run, world, "--yes")
    assert (found["result"], data(world, DRAFT.owner("g", P1))) == ("mended", f"{A}-0".encode())


@pytest.mark.zookeeper
def test_nobody_says_which_of_two_threads_reads_a_partition(world: World, run: Run) -> None:
    world.settle()
    world.member(B, "etl-2", subscription={"clicks": 2})
    world.put(DRAFT.channel("g", A), encode_status(Status()))
    world.put(DRAFT.channel("g", B), encode_status(Status(held={7: {"clicks": "1"}})))
    world.put(DRAFT.owner("g", P1), b"nonsense")
    assert mended(run, world, "--yes", code=6)[0]["why"] == f"{B} may read it: stop it, and run this again"


def test_members_in_different_steps_of_one_offset_store_do_not_tell_which_the_record_had() -> None:
    between = record_without_faults(b"x", of_members(("dual", 1), ("dual", 3)))
    assert between == (None, "its members use different offset stores: write it by hand")


def test_mend_prefers_the_users_offset_then_kafkas_the_nodes_and_the_announced_one() -> None:
    path = DRAFT.offset("g", P0)
    announced = {P0: Announced(30, 40, 7)}
    view = GroupView(
        group="g",
        owners={P0: Owner(f"{A}-0", 1)},
        channels={A: Channel(consumer_id=A, version=1, announced=announced)},
    )
    for text, chosen, committed, expected in (
        (b"'20'", {P0: 5}, {P0: 10}, b"5"),
        (b"'20'", {}, {P0: 10}, b"10"),
        (b"'20'", {}, {}, b"20"),
        (b"20.0", {}, {}, b"20"),
        (b"20.5", {}, {}, b"30"),
        (b"--20", {}, {}, b"30"),
        (b"nonsense", {}, {}, b"30"),
    ):
        node = Node(path, Kind.DATA, Stat(0, 1, 0), text)
        (found,) = broken({path: node}, view, DRAFT, chosen=chosen, committed=committed)
        assert found.proposed == expected


def proposed_owner(view: GroupView) -> tuple[bytes | None, str]:
    path = DRAFT.owner("g", P1)
    (found,) = broken({path: Node(path, Kind.DATA, Stat(0, 1, 0), b"\xff")}, view, DRAFT, chosen={}, committed={})
    return found.proposed, found.why


def test_f201_an_owner_is_not_free_while_a_silent_member_may_read_its_partition() -> None:
    free = (b"", "no member says that it reads it: it is free")
    draft_only = Member(consumer_id=A, czxid=1, threads={"clicks": 1}, speaks_protocol=False)
    channel = Channel(consumer_id=A, version=1)
    unknown = (None, f"what {A} reads is not known: stop it, and run this again")
    assert proposed_owner(GroupView(group="g", members={A: draft_only}, channels={A: channel})) == unknown
    elsewhere = replace(draft_only, threads={"views": 1})
    assert proposed_owner(GroupView(group="g", members={A: elsewhere}, channels={A: channel})) == free
    assert proposed_owner(GroupView(group="g", members={A: draft_only})) == free  # an old consumer: it is given nothing
    speaking = replace(draft_only, speaks_protocol=True)
    assert proposed_owner(GroupView(group="g", members={A: speaking})) == unknown
    assert proposed_owner(GroupView(group="g", members={A: speaking}, channels={A: channel})) == free


def test_f201_an_owner_is_not_free_while_an_evicted_consumer_may_read_its_partition() -> None:
    free = (b"", "no member says that it reads it: it is free")
    kept = (None, f"{A} was evicted, and may still read it: run this again when its session is over")
    evicted = Channel(consumer_id=A, version=1, evicted_ms=10_000)
    for channel, expected in (
        (replace(evicted, held=frozenset({P1})), kept),
        (replace(evicted, held=frozenset({P0})), free),
        (replace(evicted, status_unreadable=True), kept),
        (replace(evicted, held=frozenset({P1}), evicted_ms=None), free),  # it is dead: its lease has ended before
    ):
        assert proposed_owner(GroupView(group="g", channels={A: channel})) == expected


def test_a_claim_is_mended_by_nobody_but_its_session() -> None:
    path = LEGACY.owner("g", P0)
    claim = Node(path, Kind.DATA, Stat(0, 1, 0xAB), b"\xff")
    (found,) = broken({path: claim}, GroupView(group="g"), LEGACY, chosen={}, committed={})
    assert (found.proposed, found.why) == (None, "it is a claim: end the program with the session 0xab, and it goes")
    copied = Node(path, Kind.DATA, Stat(0, 1, 0), b"\xff")
    (found,) = broken({path: copied}, GroupView(group="g"), LEGACY, chosen={}, committed={})
    assert (found.proposed, found.why) == (None, "no session holds it, so it was copied or made by hand: delete it")


@pytest.mark.zookeeper
def test_a_group_that_is_reset_or_was_moved_is_not_mended(world: World, run: Run) -> None:
    world.settle()
    moved = Moved(state=MoveState.GONE, tree="t", address="elsewhere:2181", run="r", paused=False)
    reset = replace(DEFAULT_RECORD, requests={"reset": Request(who="somebody")})
    for record in (replace(DEFAULT_RECORD, moved=moved), reset):
        world.put(DRAFT.offset("g", P0), b"'5'")
        world.put(DRAFT.record("g"), encode_record(record))
        mended(run, world, "--yes", code=2)
        assert data(world, DRAFT.offset("g", P0)) == b"'5'"


@pytest.mark.zookeeper
def test_mend_prefers_the_commit_that_kafka_holds(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settle()
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="dual", store_step=1)))
    world.put(DRAFT.offset("g", P0), b"'5'")
    monkeypatch.setattr(KafkaSide, "committed", lambda *_: {P0: 55})

    (found,) = mended(run, world, "--yes", "--bootstrap-servers", "127.0.0.1:1")

    assert (found["proposed"], found["why"]) == ("55", "a consumer of the group committed it to Kafka")


@pytest.mark.zookeeper
@pytest.mark.parametrize(
    ("store", "tree", "incarnation", "old_members", "proposed"),
    [
        ("kafka", "own", 3, False, "55"),
        ("kafka", None, 0, False, "5"),  # another program's: ahead, it would skip records
        ("kafka", None, 0, True, "55"),  # old members commit so
        ("kafka", "another", 3, False, "5"),
        ("kafka", "own", 2, False, "5"),  # of an earlier topic
        ("zookeeper", "own", 3, False, "5"),  # from before its offsets were moved
    ],
)
def test_f200_an_offset_is_not_mended_from_a_commit_that_is_not_the_groups_own(
    world: World,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    tree: str | None,
    incarnation: int,
    old_members: bool,
    proposed: str,
) -> None:
    world.settle()
    schema = current(world.tree)
    assert schema is not None
    adoption = Adoption(offsets="kafka", strategy="range", kafka="0.11") if old_members else None
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name=store, store_step=2, adoption=adoption)))
    world.put(DRAFT.mark("g", "clicks"), encode_mark(Mark(incarnation=3, topic_id=None, czxid=0, root_czxid=0)))
    world.put(DRAFT.offset("g", P0), b"'5'")
    tenure = Tenure(schema.tree_id if tree == "own" else "another", 7)
    stamp = None if tree is None else Stamp(tenure=tenure, incarnation=incarnation)
    answer = ReadCommits(found={"g": {P0: KafkaCommit(offset=55, stamp=stamp)}}, unknown={})
    monkeypatch.setattr(KafkaCommits, "read", lambda *_: answer)

    (found,) = mended(run, world, "--yes", "--bootstrap-servers", "127.0.0.1:1")

    assert (found["proposed"], data(world, DRAFT.offset("g", P0))) == (proposed, proposed.encode())


def test_a_move_that_can_be_read_is_kept_in_a_mended_record() -> None:
    moved = Moved(state=MoveState.GONE, tree="t", address="zk2:2181", run="r")
    known = encode_record(replace(DEFAULT_RECORD, moved=moved)).replace(b'"cooperative"', b'"gentle"')
    proposed, why = record_without_faults(known, of_members())
    assert (proposed, why) == (
        encode_record(replace(DEFAULT_RECORD, moved=moved)),
        "it is left out: rebalance; the offset store is zookeeper",
    )


@pytest.mark.zookeeper
def test_a_rebalance_is_recommended_once_an_owner_was_written(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.owner("g", P1), b"nonsense")
    for option, recommended in (("--dry-run", False), ("--yes", True)):
        done = run("group", "mend", "g", option, "--zookeeper", world.address)
        assert ("now run `zkcoord group rebalance g`" in done.stderr) is recommended


@pytest.mark.zookeeper
def test_an_offset_beyond_63_bits_is_refused(world: World, run: Run) -> None:
    world.settle()
    world.put(DRAFT.offset("g", P0), b"many")
    done = run("group", "mend", "g", "--yes", "--offset", f"clicks-0={2**63}", "--zookeeper", world.address)
    assert (done.exit_code, "write TOPIC-PARTITION=N, with N from 0 to" in done.stderr) == (2, True)
