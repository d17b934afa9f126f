"""`zkcoord backup` and `restore` on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.cli.program import Run
from tests.integration.world import World
from tests.waiting import wait_until
from zkcoord.cli import backup
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord, Request, Response
from zkcoord.core.state import GroupState
from zkcoord.core.view import TopicChange
from zkcoord.migrate import upgrade
from zkcoord.offsets import backup_file
from zkcoord.offsets.backup_file import BackupWriter, Saved
from zkcoord.offsets.restore import Restore
from zkcoord.tree.paths import CANDIDATES, DRAFT, LEGACY, SCHEMA
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.registration import MARKER
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.state import encode_state
from zkcoord.tree.topic import Mark, MarkSeen, change_of, decode_mark, encode_mark

pytestmark = pytest.mark.zookeeper

P0, P1, P2 = (TopicPartition("clicks", number) for number in range(3))
ASKED = GroupRecord(assignor="range", requests={"pause": Request(run="r1")}, responses={"pause": Response(run="r1")})


def mark(incarnation: int) -> bytes:
    return encode_mark(Mark(incarnation=incarnation, topic_id=None, czxid=5, root_czxid=6))


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with World(chroot) as world:
        upgrade(world.tree, run_id="test")
        world.put(DRAFT.record("g"), encode_record(ASKED))
        world.put(DRAFT.state("g"), encode_state(GroupState(generation=7)))
        world.put(DRAFT.mark("g", "clicks"), mark(1))
        world.put(DRAFT.owner("g", P0), b"g_a-0")
        world.put(DRAFT.offset("g", P0), b"100")
        world.put(DRAFT.offset("g", P1), b"7\n")
        world.put(DRAFT.offset("h", P0), b"1")
        yield world


@pytest.fixture
def other(chroot: str, zookeeper: Any) -> Iterator[World]:
    """An empty tree beside it."""
    client = KazooClient(zookeeper.hosts, timeout=30)
    client.start(timeout=120)
    path = "/" + chroot.partition("/")[2] + "-other"
    client.create(path)
    client.stop()
    client.close()
    with World(zookeeper.hosts + path) as world:
        yield world


@pytest.fixture
def saved(world: World, run: Run, tmp_path: Path) -> Path:
    file = tmp_path / "backup"
    result = run("backup", str(file), "--zookeeper", world.zookeeper)
    assert result.exit_code == 0, result.stderr
    return file


@pytest.fixture
def restore(run: Run, saved: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    def carry_out(world: World, *words: str, file: Path = saved) -> tuple[int, dict[str, Any], str]:
        result = run("restore", str(file), *words, "--output", "json", "--zookeeper", world.zookeeper)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        return result.exit_code, {row.pop("group"): row for row in rows}, result.stderr

    return carry_out


def offsets(world: World, group: str = "g") -> list[bytes]:
    return [world.data(DRAFT.offset(group, partition)) for partition in (P0, P1)]


def test_a_group_that_was_restored_into_an_empty_tree_reads_on_from_its_offsets(restore: Any, other: World) -> None:
    code, planned, _ = restore(other, "--dry-run")
    assert (code, other.children("/")) == (0, [])
    code, done, text = restore(other)
    assert code == 0, text
    assert {group: row | {"dry_run": False} for group, row in planned.items()} == done
    assert done["g"] == {
        "dry_run": False,
        "offsets": 2,
        "created": 2,
        "raised": 0,
        "lowered": 0,
        "kept": 0,
        "other_topic": 0,
        "nodes": 3,
        "obstacles": [],
    }
    record = decode_record(other.data(DRAFT.record("g")))
    assert (record.assignor, record.requests, record.responses) == ("range", {}, {})
    assert other.data(DRAFT.state("g")) == encode_state(GroupState(generation=7))
    copied = Mark(incarnation=1, topic_id=None, czxid=0, root_czxid=0)
    assert other.data(DRAFT.mark("g", "clicks")) == encode_mark(copied)

    other.topic("clicks", 2)
    other.coordinate()
    member = other.join("g", "clicks")
    wait_until(lambda: member.begun == {P0: 100, P1: 7}, "it goes on from there")


def test_f191_a_group_that_was_handed_over_stays_so_in_a_copy(
    world: World, other: World, run: Run, tmp_path: Path
) -> None:
    """Kafka's consumers may read it: ours must not."""
    pause = Request(run="r1", handed_over="done")
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", requests={"pause": pause})))
    file = str(tmp_path / "handed-over")
    assert run("backup", file, "--zookeeper", world.zookeeper).exit_code == 0
    copied = run("restore", file, "--zookeeper", other.zookeeper)
    assert copied.exit_code == 0, copied.stderr
    record = decode_record(other.data(DRAFT.record("g")))
    assert (record.handed_over, record.requests["pause"], record.responses) == (True, pause, {})


def test_f106_a_restore_never_sets_an_offset_back_unless_it_is_asked_to(world: World, restore: Any) -> None:
    """The group went on since the backup: what it has committed meanwhile would be processed again."""
    world.put(DRAFT.offset("g", P0), b"150")
    world.put(DRAFT.offset("g", P1), b"3")
    world.put(DRAFT.record("g"), encode_record(GroupRecord(assignor="sticky")))
    code, done, text = restore(world)
    assert (code, offsets(world)) == (0, [b"150", b"7"])
    assert (done["g"]["raised"], done["g"]["kept"], done["g"]["nodes"]) == (1, 1, 0)
    assert "notice: group g: left as it is, since it is further in the tree, or may be so in Kafka: clicks-0\n" in text
    assert decode_record(world.data(DRAFT.record("g"))).assignor == "sticky"
    assert restore(world, "--rewind", "--group", "g")[:2][1]["g"]["lowered"] == 1
    assert offsets(world) == [b"100", b"7"]
    code, done, _ = restore(world)
    assert (code, done["g"]["created"], done["g"]["raised"], done["g"]["lowered"]) == (0, 0, 0, 0)


def test_f107_offsets_of_a_topic_that_was_created_again_since_are_left_out(world: World, restore: Any) -> None:
    """They would lie anywhere in the new topic's log."""
    world.put(DRAFT.mark("g", "clicks"), mark(2))
    world.put(DRAFT.offset("g", P0), b"4")
    code, done, text = restore(world, "--rewind")
    assert (code, done["g"]["other_topic"], offsets(world)[0]) == (0, 2, b"4")
    assert "since it is of an earlier topic: clicks-0, clicks-1" in text


def test_a_group_with_members_is_refused_and_so_is_a_tree_with_coordinators(world: World, restore: Any) -> None:
    world.put(f"{CANDIDATES}/3", b"{}")
    code, _, text = restore(world)
    assert (code, "error: coordinators are running (3): whoever runs them stops them first" in text) == (2, True)
    world.remove(f"{CANDIDATES}/3")
    registration = {"version": 1, "subscription": {"clicks": 1}, "pattern": "static", "coordination": MARKER}
    world.put(DRAFT.registration("g", "g_a"), registration)
    code, _, text = restore(world)
    assert (code, "group g has members (g_a): stop its consumers, or restore other groups" in text) == (2, True)
    assert restore(world, "--group", "h")[0] == 0
    code, _, text = restore(world, "--group", "x")
    assert (code, "the backup has no group x" in text) == (2, True)


def test_a_dry_run_is_not_refused_and_says_what_would_be_and_who_must_act(world: World, restore: Any) -> None:
    world.remove(DRAFT.offset("g", P0))
    world.put(f"{CANDIDATES}/3", b"{}")
    registration = {"version": 1, "subscription": {"clicks": 1}, "pattern": "static", "coordination": MARKER}
    world.put(DRAFT.registration("g", "g_a"), registration)
    running = "coordinators are running (3): whoever runs them stops them first"
    members = "group g has members (g_a): stop its consumers, or restore other groups (--group)"
    code, planned, text = restore(world, "--dry-run")
    assert (code, planned["g"]["created"], offsets(world)[0]) == (0, 1, b"")
    assert {group: row["obstacles"] for group, row in planned.items()} == {"g": [running, members], "h": [running]}
    assert all(f"warning: as it is now, this would be refused: {why}\n" in text for why in (running, members))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda lines: lines[:-1], "is no whole backup"),
        (lambda lines: lines[:-2] + lines[-1:], "is no whole backup, or was changed"),
        (lambda lines: [lines[0], lines[1].replace('"/', '"/x'), *lines[2:]], "is no whole backup, or was changed"),
        (lambda lines: ["/consumers/g/offsets/t/0:1\n"], "written it (`zkcoord offsets import` takes an export)\n"),
        (lambda lines: ["{}\n"], "is no backup of zkcoord that this program can read; name a file as"),
        (lambda lines: [], "is no whole backup: it is empty; name a file as `zkcoord backup` has written it (`zkcoord"),
    ],
)
def test_a_file_that_is_not_whole_restores_nothing(
    saved: Path, restore: Any, other: World, spoil: Callable[[list[str]], list[str]], why: str
) -> None:
    saved.write_text("".join(spoil(saved.read_text().splitlines(keepends=True))))
    code, _, text = restore(other)
    assert (code, why in text) == (2, True), text
    assert other.children("/") == []


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("-", "a backup is checked when it is written: name a file"),
        ("x", "there is nothing to save: neither /zkcoord nor /consumers"),
    ],
)
def test_an_impossible_backup_is_refused(
    run: Run, other: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("backup", file, "--zookeeper", other.zookeeper)
    assert (result.exit_code, result.stderr) == (2, f"error: {why}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_a_disk_has_spoilt_does_not_appear(
    run: Run, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = BackupWriter.add

    def spoilt(writer: BackupWriter, node: Saved) -> None:
        add(writer, node)
        writer._file.seek(writer._file.tell() - 3)  # what is written next stands over the line's end

    monkeypatch.setattr(BackupWriter, "add", spoilt)
    result = run("backup", str(tmp_path / "x"), "--zookeeper", world.zookeeper)
    assert (result.exit_code, "is no whole backup" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_of_another_layout_is_refused(restore: Any, other: World) -> None:
    upgrade(other.tree, run_id="test", layout="legacy")
    code, _, text = restore(other)
    assert (code, "the tree has layout legacy and revision 0003, the backup draft and 0003" in text) == (7, True)


def test_f131_a_mark_keeps_its_zxids_in_its_own_tree_and_loses_them_in_a_copy(
    world: World, saved: Path, restore: Any, other: World
) -> None:
    """Two fresh ensembles may give `/zkcoord` the same czxid: then the czxid of a topic would drop the offsets."""
    world.remove(DRAFT.owner("g", P0))
    world.remove(DRAFT.mark("g", "clicks"))
    for tree, there in (
        (other, Mark(incarnation=1, topic_id=None, czxid=0, root_czxid=0)),
        (world, decode_mark(mark(1))),
    ):
        assert restore(tree)[0] == 0
        assert decode_mark(tree.data(DRAFT.mark("g", "clicks"))) == there
        present = Mark(incarnation=1, topic_id=None, czxid=9, root_czxid=6)  # the other root has the same czxid
        change = TopicChange.RENEWED if tree is other else TopicChange.RECREATED
        assert change_of(MarkSeen(there, 0), present) is change


def test_f106_an_offset_that_kafka_may_count_stays_unless_a_rewind_is_asked_for(world: World, restore: Any) -> None:
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka")))
    world.put(DRAFT.offset("g", P0), b"50")  # a checkpoint: Kafka has more, maybe more than 100
    (before,) = world.tree.read([Read(DRAFT.offset("g", P1))])
    code, done, text = restore(world)
    assert (code, offsets(world), done["g"]["kept"]) == (0, [b"50", b"7\n"], 1)
    assert "left as it is, since it is further in the tree, or may be so in Kafka: clicks-0" in text
    assert "keeps its offsets in Kafka, too" not in text  # nothing was made
    code, done, _ = restore(world, "--rewind")
    assert (code, offsets(world), done["g"]["raised"]) == (0, [b"100", b"7"], 1)
    (after,) = world.tree.read([Read(DRAFT.offset("g", P1))])
    assert before.stat is not None
    assert after.stat is not None
    assert after.stat.mzxid > before.stat.mzxid


@pytest.mark.parametrize(("store", "told"), [("zookeeper", False), ("kafka", True)])
def test_f245_a_restore_tells_that_later_commits_to_kafka_count_no_more(
    store: str, told: bool, world: World, run: Run, other: World, tmp_path: Path
) -> None:
    """Its consumers repeat what they have done since the last checkpoint before the backup."""
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name=store)))
    file = str(tmp_path / "kept-in-kafka")
    assert run("backup", file, "--zookeeper", world.zookeeper).exit_code == 0
    notice = "group g keeps its offsets in Kafka, too: 2 offsets that the tree has not will be as in the backup"
    for words, expected in ((("--dry-run",), told), ((), told), ((), False)):  # the third makes none
        result = run("restore", file, "--zookeeper", other.zookeeper, *words)
        assert (result.exit_code, notice in result.stderr) == (0, expected), result.stderr


@pytest.mark.parametrize("backed_up", ["a1", ""])
def test_f127_a_copy_of_a_tree_has_an_id_of_its_own_and_the_tree_itself_keeps_its_own(
    backed_up: str, world: World, run: Run, other: World, tmp_path: Path
) -> None:
    schema = json.loads(world.data(SCHEMA))
    world.put(SCHEMA, {**schema, "tree_id": backed_up})
    file = tmp_path / "with-id"
    assert run("backup", str(file), "--zookeeper", world.zookeeper).exit_code == 0
    for tree in (other, world, other):
        found = decode_schema(tree.data(SCHEMA)).tree_id if tree.children("/") else ""
        assert run("restore", str(file), "--zookeeper", tree.zookeeper).exit_code == 0
        restored = decode_schema(tree.data(SCHEMA)).tree_id
        assert restored == found if found else restored not in ("", backed_up)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.remove(DRAFT.offset("g", P0)),
        lambda tree: tree.remove(DRAFT.state("g")),
        lambda tree: tree.put(DRAFT.offset("g", P0), b"1"),
    ],
)
def test_restore_tells_of_a_change_made_behind_it(
    change: Callable[[World], None], restore: Any, other: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = Restore.carry_out

    def changed_behind_it(self: Restore, saved: Any) -> None:
        carry_out(self, saved)
        if not self.dry_run:
            change(other)

    monkeypatch.setattr(Restore, "carry_out", changed_behind_it)
    code, _, text = restore(other)
    assert (code, "group g is not as restored: somebody wrote meanwhile; run it again" in text) == (1, True)


def test_a_tree_in_a_migration_is_not_saved_and_a_backup_of_a_newer_program_is_not_restored(
    world: World, run: Run, saved: Path, restore: Any, other: World, tmp_path: Path
) -> None:
    schema = json.loads(world.data(SCHEMA))
    newer = tmp_path / "newer"
    with saved.open() as lines, newer.open("w+") as file:
        header = backup_file.check(lines, "saved")
        writer = BackupWriter(file, replace(header, revision="9999"))
        for node in backup_file.nodes(lines):
            writer.add(node)
        writer.end()
    code, _, text = restore(other, file=newer)
    assert (code, "the backup is of revision 9999, newer than this program" in text) == (7, True)
    assert other.children("/") == []
    world.put(SCHEMA, {**schema, "migration": {"from": "0002", "to": "0003", "run": "r"}})
    result = run("backup", str(tmp_path / "between"), "--zookeeper", world.zookeeper)
    assert (result.exit_code, "a migration is in progress: end it first" in result.stderr) == (7, True)
    assert not (tmp_path / "between").exists()


def test_a_tree_that_is_migrated_while_it_is_read_is_not_saved(
    world: World, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the nodes would be of one revision, half of the other, under a header that names one."""
    read = backup.saved

    def migrated_meanwhile(*words: Any) -> Iterator[Saved]:
        yield from read(*words)
        world.put(SCHEMA, json.loads(world.data(SCHEMA)))  # begun, and ended: it says the same

    monkeypatch.setattr(backup, "saved", migrated_meanwhile)
    result = run("backup", str(tmp_path / "torn"), "--zookeeper", world.zookeeper)
    assert (result.exit_code, "the tree was migrated while it was read" in result.stderr) == (7, True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_restored_into_a_tree_in_a_migration(world: World, restore: Any) -> None:
    world.put(DRAFT.offset("g", P1), b"6")
    world.put(
        SCHEMA, {**json.loads(world.data(SCHEMA)), "migration": {"from": "0003", "to": "uninstalled", "run": "r"}}
    )
    code, _, text = restore(world)
    assert (code, "a migration is in progress: end it first" in text) == (7, True)
    assert offsets(world) == [b"100", b"6"]


def test_backup_saves_and_names_unparsable_nodes(world: World, run: Run, tmp_path: Path) -> None:
    world.put(DRAFT.offset("g", P0), b"\xff\x00")
    file = tmp_path / "odd"
    result = run("backup", str(file), "--zookeeper", world.zookeeper)
    assert result.exit_code == 0
    assert "/consumers/groups/g/offsets/clicks/0: bad offset" in result.stderr
    assert '"base64":"/wA="' in file.read_text()
    result = run("restore", str(file), "--dry-run", "--zookeeper", world.zookeeper)
    assert (result.exit_code, "group g: 1 node of the backup holds no offset" in result.stderr) == (0, True)
    again = run("backup", str(file), "--zookeeper", world.zookeeper)
    assert (again.exit_code, "the file is there already" in again.stderr) == (2, True)


def test_groups_of_old_consumers_alone_are_saved_and_restored(
    run: Run, chroot: str, other: World, tmp_path: Path
) -> None:
    with World(chroot) as world:
        world.put(LEGACY.offset("old", P0), b"9")
        file = tmp_path / "old"
        assert run("backup", str(file), "--zookeeper", chroot).exit_code == 0
    assert run("restore", str(file), "--zookeeper", other.zookeeper).exit_code == 0
    assert other.data(LEGACY.offset("old", P0)) == b"9"
    assert other.children("/") == ["consumers"]
