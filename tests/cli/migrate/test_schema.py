"""`zkcoord migrate` on a real server."""

import json
import os
import pwd
import re
from pathlib import Path

import pytest

from tests.cli.program import Run
from tests.migrate.memory_tree import write_revision
from zkcoord.cli.migrate import schema as cli_migrate
from zkcoord.migrate import history
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, SetNode, Transaction

pytestmark = pytest.mark.zookeeper

FIRST_NODES = [
    "/zkcoord",
    "/zkcoord/epoch",
    "/zkcoord/schema",
    "/zkcoord/coordinators",
    "/zkcoord/groups",
    "/consumers",
    "/consumers/groups",
]


def set_schema(chroot: str, schema: Schema) -> None:
    """As a newer or an unfinished program left it."""
    with Tree(chroot) as tree:
        (node,) = tree.read([Read("/zkcoord/schema")])
        assert node.stat is not None
        tree.commit(Transaction(writes=(SetNode("/zkcoord/schema", encode_schema(schema), node.stat.version),)))


def test_a_tree_is_made_once(chroot: str, run: Run) -> None:
    before = run("migrate", "current", "--zookeeper", chroot)
    made = run("migrate", "upgrade", "--zookeeper", chroot)
    after = run("migrate", "current", "--check", "--zookeeper", chroot)
    again = run("migrate", "upgrade", "--zookeeper", chroot)

    assert [r.exit_code for r in (before, made, after, again)] == [0, 0, 0, 0]
    assert before.stdout == "no zkcoord tree yet\n"
    assert made.stdout == "revision 0003: 7 operations\n"
    assert after.stdout == "0003 (head), layout draft\n"
    assert again.stdout == "nothing to do\n"


def test_a_dry_run_prints_the_operations_and_carries_none_out(chroot: str, run: Run) -> None:
    result = run("migrate", "upgrade", "0001", "--dry-run", "--zookeeper", chroot)

    schema = '{"version":1,"revision":"0001","layout":"draft","tree_id":"TREE_ID","migration":null}'
    data = {"/zkcoord/epoch": ": 0", "/zkcoord/schema": f": {schema}"}
    assert re.sub("[0-9a-f]{16}", "TREE_ID", result.stdout).splitlines() == [
        "# revision 0001",
        *(f"create {path}{data.get(path, '')}" for path in FIRST_NODES),
    ]
    assert run("migrate", "current", "--zookeeper", chroot).stdout == "no zkcoord tree yet\n"


def test_for_programs_each_batch_is_an_object(chroot: str, run: Run) -> None:
    result = run("--output", "json", "migrate", "upgrade", "0001", "--layout", "legacy", "--zookeeper", chroot)
    current = run("--output", "json", "migrate", "current", "--zookeeper", chroot)

    batch = json.loads(result.stdout)
    assert (batch["why"], batch["dry_run"]) == ("revision 0001", False)
    assert batch["writes"][1] == {"operation": "create", "path": "/zkcoord/epoch", "data": "0"}
    assert json.loads(current.stdout) == {
        "revision": "0001",
        "layout": "legacy",
        "tree_id": json.loads(batch["writes"][2]["data"])["tree_id"],
        "topics": "zookeeper",
        "cluster_id": "",
        "head": "0003",
        "migration": None,
    }


def test_check_tells_a_tree_that_is_not_at_head(chroot: str, run: Run) -> None:
    result = run("migrate", "current", "--check", "--zookeeper", chroot)

    assert (result.exit_code, result.stdout) == (7, "no zkcoord tree yet\n")
    assert result.stderr == "error: the tree is not at revision 0001 or 0002 or 0003: run `zkcoord migrate upgrade`\n"


def test_check_tells_a_tree_that_is_newer_than_the_program(chroot: str, run: Run) -> None:
    run("migrate", "upgrade", "--zookeeper", chroot)
    set_schema(chroot, Schema(revision="0009", layout="draft"))

    result = run("migrate", "current", "--check", "--zookeeper", chroot)

    assert (result.exit_code, result.stdout) == (7, "0009, layout draft\n")
    assert result.stderr == "error: the tree is at revision 0009, newer than this program: use the newer one\n"


def test_check_tells_a_migration_in_progress(chroot: str, run: Run) -> None:
    run("migrate", "upgrade", "--zookeeper", chroot)
    mark = {"from": "0001", "to": "0002", "run": "ann@db1-7-12345678"}
    set_schema(chroot, Schema(revision="0001", layout="draft", migration=mark))

    result = run("migrate", "current", "--check", "--zookeeper", chroot)

    assert result.exit_code == 7
    assert result.stdout.splitlines()[1] == "in progress: 0001 -> 0002, run ann@db1-7-12345678"


@pytest.mark.parametrize(
    ("schema", "words", "code", "why"),
    [
        (Schema(revision="0009", layout="draft"), [], 7, "the tree is at revision 0009, which this program"),
        (Schema(revision="0001", layout="draft"), ["--layout", "legacy"], 7, "has the layout 'draft', not 'legacy'"),
        (Schema(revision="0001", layout="draft"), ["0007"], 2, "there is no revision '0007'"),
    ],
)
def test_a_goal_that_cannot_be_reached_is_refused(
    chroot: str, run: Run, schema: Schema, words: list[str], code: int, why: str
) -> None:
    run("migrate", "upgrade", "--zookeeper", chroot)
    set_schema(chroot, schema)

    result = run("migrate", "upgrade", *words, "--zookeeper", chroot)

    assert result.exit_code == code
    assert why in result.stderr


def test_a_schema_that_nobody_can_read_names_its_path(chroot: str, run: Run) -> None:
    with Tree(chroot) as tree:
        tree.commit(Transaction(writes=(CreateNode("/zkcoord"), CreateNode("/zkcoord/schema", b"{nonsense"))))

    result = run("migrate", "current", "--zookeeper", chroot)

    assert result.exit_code == 6
    assert result.stderr.startswith("error: /zkcoord/schema: bad schema '{nonsense': no JSON")


def test_a_chroot_that_does_not_exist_is_named(chroot: str, run: Run) -> None:
    result = run("migrate", "upgrade", "--zookeeper", f"{chroot}/deeper")

    assert result.exit_code == 2
    assert "/deeper" in result.stderr
    assert run("migrate", "current", "--zookeeper", chroot).stdout == "no zkcoord tree yet\n"


def test_a_run_names_its_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("USER", "ann")
    first, second = cli_migrate._run_id(), cli_migrate._run_id()

    assert first.startswith("ann@")
    assert first != second


def test_a_run_without_the_variable_names_its_user_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, under sudo and cron it is often not set: `uid-0@host` was root."""
    monkeypatch.delenv("USER", raising=False)

    assert cli_migrate._run_id().startswith(f"{pwd.getpwuid(os.getuid()).pw_name}@")


def test_a_way_back_and_a_stamp_are_shown_first_and_then_carried_out(chroot: str, run: Run) -> None:
    run("migrate", "upgrade", "--zookeeper", chroot)
    planned = run("migrate", "downgrade", "0001", "--dry-run", "--zookeeper", chroot)
    untouched = run("migrate", "current", "--zookeeper", chroot)
    back = run("migrate", "downgrade", "0001", "--zookeeper", chroot)
    served = run("migrate", "current", "--check", "--zookeeper", chroot)
    again = run("migrate", "downgrade", "0001", "--zookeeper", chroot)
    stamped = run("migrate", "stamp", "head", "--zookeeper", chroot)
    after = run("migrate", "current", "--zookeeper", chroot)
    wrong = run("migrate", "downgrade", "0002", "--layout", "draft", "--zookeeper", chroot)

    assert [line for line in planned.stdout.splitlines() if line.startswith("#")] == [
        "# begin 0003 -> 0002",
        "# end 0003 -> 0002",
        "# begin 0002 -> 0001",
        "# end 0002 -> 0001",
    ]
    assert untouched.stdout == "0003 (head), layout draft\n"
    assert [line.partition(":")[0] for line in back.stdout.splitlines()] == [
        "begin 0003 -> 0002",
        "end 0003 -> 0002",
        "begin 0002 -> 0001",
        "end 0002 -> 0001",
    ]
    assert (served.exit_code, served.stdout) == (0, "0001, layout draft\n")
    assert again.stdout == "nothing to do\n"
    assert (stamped.stdout, after.stdout) == ("stamp 0003: 2 operations\n", "0003 (head), layout draft\n")
    assert (wrong.exit_code, "No such option" in wrong.stderr) == (2, True)


def test_a_dump_is_planned_without_a_server(chroot: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    run("migrate", "upgrade", "0001", "--zookeeper", chroot)
    assert run("backup", str(file), "--zookeeper", chroot).exit_code == 0
    real = run("migrate", "upgrade", "--dry-run", "--zookeeper", chroot)

    planned = run("migrate", "upgrade", "--dump", str(file))
    back = run("migrate", "downgrade", "0001", "--dump", str(file))
    stamped = run("--output", "json", "migrate", "stamp", "0002", "--dump", str(file))

    run_ids = re.compile('"run":"[^"]*"')
    assert run_ids.sub("", planned.stdout) == run_ids.sub("", real.stdout)
    assert planned.stdout.splitlines()[0] == "# begin 0001 -> 0002"
    assert back.stdout == "nothing to do\n"
    assert [json.loads(stamped.stdout)[key] for key in ("why", "dry_run")] == ["stamp 0002", True]
    assert run("migrate", "current", "--zookeeper", chroot).stdout == "0001, layout draft\n"


def test_a_dump_of_old_consumers_alone_is_refused_as_their_tree_is(chroot: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "dump"
    with Tree(chroot) as tree:
        paths = ("/brokers", "/consumers", "/consumers/g", "/consumers/g/ids")
        tree.commit(Transaction(writes=tuple(map(CreateNode, paths))))
    assert run("backup", str(file), "--zookeeper", chroot).exit_code == 0

    refused = run("migrate", "upgrade", "--dump", str(file))
    planned = run("migrate", "upgrade", "--layout", "legacy", "--dump", str(file))

    assert (refused.exit_code, "old consumers use this tree" in refused.stderr) == (7, True)
    assert planned.stdout.splitlines()[0] == "# revision 0003"


@pytest.mark.parametrize("text", ["", "{}\n", None])
def test_a_dump_that_is_none_is_refused(run: Run, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "dump"
    if text is not None:
        file.write_text(text)
    result = run("migrate", "upgrade", "--dump", str(file))
    assert (result.exit_code, str(file) in result.stderr) == (2, True)


def test_a_new_revision_is_a_file_that_is_loaded_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    write_revision(tmp_path, "0001", None)
    shown = run("migrate", "new", "more_room", "--folder", str(tmp_path), "--dry-run")
    assert [path.name for path in tmp_path.iterdir()] == ["0001_test.py"]

    made = run("migrate", "new", "more_room", "--folder", str(tmp_path))

    file = tmp_path / "0002_more_room.py"
    assert (made.stdout, file.read_text()) == (f"{file}\n", shown.stdout)
    new = history(tmp_path)[1]
    assert (new.revision, new.down_revision, new.serves_before) == ("0002", "0001", False)
    assert (new.reads("draft"), new.upgrade({}, "draft"), new.downgrade({}, "draft")) == ((), (), ())
    for name, folder, why in (
        ("More", tmp_path, "is no name of a revision"),
        ("more", tmp_path / "none", "is no folder"),
    ):
        refused = run("migrate", "new", name, "--folder", str(folder))
        assert (refused.exit_code, why in refused.stderr) == (2, True)
