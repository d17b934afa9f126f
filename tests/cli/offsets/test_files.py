"""`zkcoord offsets export` and `import` on a real ZooKeeper; no coordinator, no Kafka."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.group_tree import A, World
from tests.cli.program import Run
from zkcoord.cli.main import cli
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import GroupRecord, Request, Response
from zkcoord.embedded.server import LOOPBACK, free_ports
from zkcoord.offsets.writing import changes, write_offsets
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read, parents
from zkcoord.tree.writes import CheckNode, CreateNode, Transaction

pytestmark = pytest.mark.zookeeper

P0, P1, P2 = (TopicPartition("clicks", number) for number in range(3))
OLD_MEMBER = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1416335000123"}'
PAUSE = Request(run="r1", who="me")


@pytest.fixture
def world(chroot: str) -> World:
    with Tree(chroot) as tree:
        world = World(tree, chroot)
        world.topic("clicks", 3)
        world.put(DRAFT.offset("g", P0), b"100")
        world.put(DRAFT.offset("g", P1), b"7\n")
        world.put(DRAFT.offset("h", P0), b"1")
        yield world


def offsets(world: World, group: str = "g") -> list[bytes]:
    return [node.data for node in world.tree.read([Read(DRAFT.offset(group, p)) for p in (P0, P1, P2)])]


def imported(run: Run, world: World, file: Path, *options: str) -> tuple[int, str, str]:
    result = run("offsets", "import", str(file), "--zookeeper", world.address, *options)
    return result.exit_code, result.stdout, result.stderr


def test_an_export_has_every_offset_in_the_old_tools_lines_or_as_json(world: World, run: Run, tmp_path: Path) -> None:
    lines, objects = tmp_path / "lines", tmp_path / "json"
    result = run("offsets", "export", str(lines), "--zookeeper", world.address)
    assert (result.exit_code, result.stderr) == (0, "notice: 3 offsets of 2 groups exported\n")
    assert lines.read_text() == (
        "/consumers/g/offsets/clicks/0:100\n/consumers/g/offsets/clicks/1:7\n/consumers/h/offsets/clicks/0:1\n"
    )
    run("offsets", "export", str(objects), "--group", "h", "--format", "json", "--zookeeper", world.address)
    assert json.loads(objects.read_text()) == {"group": "h", "topic": "clicks", "partition": 0, "offset": 1}
    assert run("offsets", "export", "-", "--group", "g", "--zookeeper", world.address).stdout.count("\n") == 2
    again = run("offsets", "export", str(lines), "--zookeeper", world.address)
    assert (again.exit_code, "the file is there already" in again.stderr) == (2, True)
    nobody = run("offsets", "export", str(tmp_path / "x"), "--group", "nobody", "--zookeeper", world.address)
    assert (nobody.exit_code, list(tmp_path.glob("*x*"))) == (2, [])


def test_f244_an_export_tells_which_groups_have_their_offsets_in_kafka(world: World, run: Run, tmp_path: Path) -> None:
    """Their nodes are as of the last checkpoint: importing them sets the group back."""
    for group, store in (("g", "kafka"), ("h", "dual")):
        world.put(DRAFT.record(group), encode_record(GroupRecord(store_name=store)))
    told = "the offsets of g count in Kafka, and ZooKeeper has them as of the last checkpoint"
    for words, expected in (((), True), (("--group", "g"), True), (("--group", "h"), False)):
        result = run("offsets", "export", "-", "--zookeeper", world.address, *words)
        assert (result.exit_code, told in result.stderr) == (0, expected), result.stderr


def test_an_export_tells_which_groups_went_to_another_tree(world: World, run: Run) -> None:
    """Whoever imports these offsets there sets the group back."""
    moved = Moved(state=MoveState.GONE, tree="bb", address="zk2:2181", run="r1")
    for group, state in (("g", MoveState.GONE), ("h", MoveState.ARRIVING)):
        record = GroupRecord(store_name="kafka", moved=replace(moved, state=state))
        world.put(DRAFT.record(group), encode_record(record))
    result = run("offsets", "export", "-", "--zookeeper", world.address)
    told = " ".join(result.stderr.split())
    assert result.exit_code == 0
    assert "g went to another tree (`zkcoord group describe` says where): these are the offsets as of the move" in told
    assert "the offsets of h count in Kafka" in told


def test_an_offset_that_nobody_can_read_is_named_and_the_others_are_exported(
    world: World, run: Run, tmp_path: Path
) -> None:
    world.put(DRAFT.offset("g", P0), b"many")
    result = run("offsets", "export", str(tmp_path / "f"), "--zookeeper", world.address)
    assert result.exit_code == 6
    assert "offsets/clicks/0: bad offset 'many': not a number; an operator must set it" in result.stderr
    assert (tmp_path / "f").read_text().count("\n") == 2


def test_an_import_sets_what_differs_and_says_first_what_that_is(world: World, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(
        "/consumers/g/offsets/clicks/0:100\n/consumers/g/offsets/clicks/1:5\n\n/consumers/g/offsets/clicks/2:9\n"
    )
    before = world.tree.read([Read(DRAFT.offset("g", p)) for p in (P0, P1, P2)])
    assert imported(run, world, file, "--dry-run") == (
        0,
        "TOPIC   PARTITION  BEFORE  AFTER\nclicks          1       7      5\nclicks          2       -      9\n",
        "notice: 2 offsets of 1 group would change; nothing was written\n",
    )
    assert world.tree.read([Read(DRAFT.offset("g", p)) for p in (P0, P1, P2)]) == before
    assert imported(run, world, file) == (0, "GROUP  OFFSETS  CHANGED  CREATED\ng            3        2        1\n", "")
    assert offsets(world) == [b"100", b"5", b"9"]
    assert world.tree.read([Read(DRAFT.offset("g", P0))]) == before[:1]
    code, text, _ = imported(run, world, file, "--output", "json")
    assert (code, json.loads(text)) == (0, {"group": "g", "offsets": 3, "changed": 0, "created": 0})


def test_an_import_makes_groups_that_are_not_there_and_leaves_others_alone(
    world: World, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.write_text('{"group":"new","topic":"clicks","partition":2,"offset":4}\n/consumers/g/offsets/clicks/0:1\n')
    assert imported(run, world, file, "--group", "new")[0] == 0
    assert (offsets(world, "new"), offsets(world)[:2]) == ([b"", b"", b"4"], [b"100", b"7\n"])
    code, _, error = imported(run, world, file, "--group", "other")
    assert (code, error) == (2, f"error: {file} has no offset of group other: check the names (--group)\n")


@pytest.mark.parametrize("words", [("--dry-run",), ()], ids=["dry-run", "import"])
def test_f308_topics_and_partitions_that_do_not_exist_are_told_once_each_and_set_all_the_same(
    world: World, run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file, group = tmp_path / "f", "/consumers/g/offsets"
    file.write_text(
        f"{group}/clisk/0:1\n{group}/clisk/1:1\n{group}/views/0:4\n{group}/clicks/0:3\n{group}/clicks/7:5\n"
    )
    code, _, text = imported(run, world, file, *words)
    assert (code, [line for line in text.splitlines() if line.startswith("warning: ")]) == (
        0,
        [
            "warning: there is no topic clisk now (2 offsets): correct the name, or leave it: what is set counts once"
            " there is one",
            "warning: there is no topic views now (1 offset): correct the name, or leave it: what is set counts once"
            " there is one",
            "warning: topic clicks has 3 partitions now, and no 7 (1 offset): correct the numbers, or leave them: what"
            " is set counts once there is one",
        ],
    )
    (node,) = world.tree.read([Read(DRAFT.offset("g", TopicPartition("clisk", 1)))])
    assert node.data == (b"" if words else b"1")


def test_a_file_of_many_deleted_topics_is_told_of_in_twenty_lines(world: World, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("".join(f"/consumers/g/offsets/t{number:02}/0:1\n" for number in range(33)))
    told = [line for line in imported(run, world, file, "--dry-run")[2].splitlines() if line.startswith("warning: ")]
    assert (len(told), told[-1]) == (21, "warning: the same is so of 13 further topics")


def test_where_no_topics_are_known_an_import_says_that_it_cannot_look(world: World, run: Run, tmp_path: Path) -> None:
    world.remove("/brokers/topics/clicks")
    world.remove("/brokers/topics")
    file = tmp_path / "f"
    file.write_text("/consumers/g/offsets/clicks/0:1\n")
    code, _, text = imported(run, world, file)
    why = "there is no /brokers/topics yet: whether the topics of the file exist is not known"
    assert (code, text, offsets(world)[0]) == (0, f"warning: {why}\n", b"1")


def test_a_kafka_that_is_away_does_not_keep_an_import_into_zookeeper_back(
    world: World, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.write_text("/consumers/g/offsets/clicks/0:1\n")
    nobody = f"{LOOPBACK}:{free_ports(1)[0]}"
    code, _, text = imported(run, world, file, "--bootstrap-servers", nobody)
    assert (code, text.count("\n"), offsets(world)[0]) == (0, 1, b"1")
    assert text.startswith(f"warning: Kafka at {nobody} cannot be reached")
    assert text.endswith("; whether offsets lie within their logs is not known\n")


def test_a_file_with_one_bad_line_changes_nothing(world: World, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("/consumers/g/offsets/clicks/0:1\n/consumers/g/offsets/clicks:1\n")
    code, _, error = imported(run, world, file)
    assert (code, f"{file}, line 2: '/consumers/g/offsets/clicks:1' is no offset" in error) == (2, True)
    assert offsets(world)[0] == b"100"


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ('{"zkcoord_backup":1,"revision":"0003"}\n', 2, ". This is a backup: `zkcoord restore` takes it"),
        ("clicks,0,5\n", 2, ". `zkcoord group reset-offsets G --from-file FILE` takes such lines"),
        ("many\n", 2, "or a JSON object with group, topic, partition and offset"),
        ("\n", 0, "warning: FILE has no offset: nothing is imported"),
    ],
    ids=["a-backup", "rows-of-kafkas", "something-else", "empty"],
)
def test_a_file_that_something_else_takes_or_that_is_empty_is_told(
    world: World, run: Run, tmp_path: Path, text: str, code: int, told: str
) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    result = imported(run, world, file)
    assert (result[0], result[2].endswith(f"{told.replace('FILE has', f'{file} has')}\n")) == (code, True), result


def test_standard_input_is_taken_too(world: World) -> None:
    words = ["offsets", "import", "-", "--zookeeper", world.address]
    result = CliRunner().invoke(cli, words, input="/consumers/g/offsets/clicks/0:1\n", prog_name="zkcoord")
    assert (result.exit_code, offsets(world)[0]) == (0, b"1")


def test_a_byte_of_standard_input_that_is_no_text_is_told_with_its_line(world: World) -> None:
    words = ["offsets", "import", "-", "--zookeeper", world.address]
    result = CliRunner().invoke(cli, words, input=b"/consumers/g/offsets/clicks/0:1\n\xff\n", prog_name="zkcoord")
    assert (result.exit_code, "error: standard input, line 2: " in result.stderr) == (2, True), result.stderr
    assert offsets(world)[0] == b"100"


def test_the_file_of_an_import_is_read_once_so_that_it_may_be_a_pipe(world: World, run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("/consumers/g/offsets/clicks/0:1\n",), daemon=True)
    writer.start()
    assert imported(run, world, pipe)[::2] == (0, "")
    assert offsets(world)[0] == b"1"
    writer.join()


def test_a_group_that_is_read_is_refused_with_who_must_act_unless_it_is_paused(
    world: World, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.write_text("/consumers/h/offsets/clicks/0:9\n/consumers/g/offsets/clicks/0:9\n")
    world.member(A)
    code, _, error = imported(run, world, file)
    assert (code, error) == (
        2,
        f"error: group g is read by {A}: stop these consumers, or run `zkcoord group pause g` first\n",
    )
    assert (offsets(world)[0], offsets(world, "h")[0]) == (b"100", b"1")  # no group is changed
    assert imported(run, world, file, "--force")[0] == 2
    code, planned, text = imported(run, world, file, "--dry-run")  # it writes nothing, so it is not
    assert (code, len(planned.splitlines()), text.splitlines()[0]) == (
        0,
        4,
        f"warning: as it is now, this would be {error.strip().replace('error: ', 'refused: ')}",
    )
    assert (offsets(world)[0], offsets(world, "h")[0]) == (b"100", b"1")
    world.put(DRAFT.record("g"), encode_record(GroupRecord(requests={"pause": PAUSE})))
    assert imported(run, world, file)[0] == 2  # the pause is not carried out yet
    responses = {"pause": Response(run="r1", state="paused")}
    world.put(DRAFT.record("g"), encode_record(GroupRecord(requests={"pause": PAUSE}, responses=responses)))
    assert imported(run, world, file)[0] == 0
    assert (offsets(world)[0], offsets(world, "h")[0]) == (b"9", b"9")


def test_old_consumers_can_be_overruled(chroot: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("/consumers/g/offsets/clicks/0:9\n")
    with Tree(chroot) as tree:
        path = LEGACY.registration("g", "g_h-1-aaaaaaaa")
        for parent in ("/brokers", *parents(path)):
            tree.commit(Transaction(writes=(CreateNode(parent),)))
        tree.commit(Transaction(writes=(CreateNode(path, OLD_MEMBER, ephemeral=True),)))
        result = run("offsets", "import", str(file), "--zookeeper", chroot)
        assert result.exit_code == 2
        assert result.stderr == (
            "error: group g is read by g_h-1-aaaaaaaa, which would overwrite the offsets:"
            " stop these consumers first, or force it (--force)\n"
        )
        assert run("offsets", "import", str(file), "--force", "--zookeeper", chroot).exit_code == 0
        assert tree.read([Read(LEGACY.offset("g", P0))])[0].data == b"9"


class Meddling:
    """A tree in which somebody does something before a commit, or whose answers are lost."""

    def __init__(self, tree: Tree, world: World) -> None:
        self.tree, self.world = tree, world
        self.before: list[tuple[str, bytes]] = []
        self.lost = 0
        self.read, self.sync = tree.read, tree.sync

    def commit(self, transaction: Transaction) -> CommitDone:
        for path, data in self.before:
            self.world.put(path, data)
        self.before = []
        done = self.tree.commit(transaction)
        if self.lost:
            self.lost -= 1
            return CommitDone(-1, Outcome.UNKNOWN)
        return done


def test_an_offset_that_changes_meanwhile_or_whose_answer_is_lost_is_read_again(world: World) -> None:
    tree = Meddling(world.tree, world)
    tree.before, tree.lost = [(DRAFT.offset("g", P0), b"55")], 2
    found = write_offsets(tree, DRAFT, "g", {P0: 1, P2: 2}, guard=(), why="a test")
    assert [(change.partition, change.before, change.after) for change in found] == [(P0, 100, 1), (P2, None, 2)]
    assert offsets(world) == [b"1", b"7\n", b"2"]


def test_nothing_more_is_written_once_people_ask_something_else_of_the_group(world: World) -> None:
    record = DRAFT.record("g")
    world.put(record, encode_record(GroupRecord()))
    tree = Meddling(world.tree, world)
    tree.before = [(record, encode_record(GroupRecord(assignor="range")))]
    with pytest.raises(Exception, match=r"group g: somebody changed its record \(/zkcoord/groups/g\) meanwhile"):
        write_offsets(tree, DRAFT, "g", {P0: 1}, guard=(CheckNode(record, 0),), why="a test")
    assert [change.before for change in changes(world.tree.read, DRAFT, "g", {P0: 1})] == [100]
