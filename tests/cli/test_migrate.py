"""`zkcoord migrate` on a real server."""

import json
import os
import pwd
from pathlib import Path

import pytest

from tests.cli.program import Run
from zkcoord.cli import migrate as cli_migrate
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
    assert made.stdout == "revision 0001: 7 operations\n"
    assert after.stdout == "0001 (head), layout draft\n"
    assert again.stdout == "nothing to do\n"


def test_a_dry_run_prints_the_operations_and_carries_none_out(chroot: str, run: Run) -> None:
    result = run("migrate", "upgrade", "--dry-run", "--zookeeper", chroot)

    schema = '{"version":1,"revision":"0001","layout":"draft","migration":null}'
    data = {"/zkcoord/epoch": ": 0", "/zkcoord/schema": f": {schema}"}
    assert result.stdout.splitlines() == [
        "# revision 0001",
        *(f"create {path}{data.get(path, '')}" for path in FIRST_NODES),
    ]
    assert run("migrate", "current", "--zookeeper", chroot).stdout == "no zkcoord tree yet\n"


def test_for_programs_each_batch_is_an_object(chroot: str, run: Run) -> None:
    result = run("--output", "json", "migrate", "upgrade", "--layout", "legacy", "--zookeeper", chroot)
    current = run("--output", "json", "migrate", "current", "--zookeeper", chroot)

    batch = json.loads(result.stdout)
    assert (batch["why"], batch["dry_run"]) == ("revision 0001", False)
    assert batch["writes"][1] == {"operation": "create", "path": "/zkcoord/epoch", "data": "0"}
    assert json.loads(current.stdout) == {
        "revision": "0001",
        "layout": "legacy",
        "head": "0001",
        "migration": None,
    }


def test_check_tells_a_tree_that_is_not_at_head(chroot: str, run: Run) -> None:
    result = run("migrate", "current", "--check", "--zookeeper", chroot)

    assert (result.exit_code, result.stdout) == (7, "no zkcoord tree yet\n")
    assert result.stderr == "error: the tree is not at revision 0001: run `zkcoord migrate upgrade`\n"


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
