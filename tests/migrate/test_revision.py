"""The revisions' files: what each must have, and that they form one line."""

from pathlib import Path

import pytest

from tests.migrate.memory_tree import MemoryTree, write_revision
from zkcoord.errors import InvariantError, UsageError
from zkcoord.migrate import first_revision_reads, first_revision_writes, history, served
from zkcoord.migrate.engine import snapshot
from zkcoord.migrate.revision import checkout_folder
from zkcoord.tree.schema import Schema, decode_epoch, decode_schema
from zkcoord.tree.writes import CreateNode, DeleteNode, Transaction

DRAFT_SCHEMA = b'{"version":1,"revision":"0001","layout":"draft","tree_id":"5e0b","migration":null}'


def test_history_begins_with_the_first_nodes() -> None:
    first = history()[0]

    assert (first.revision, first.down_revision) == ("0001", None)
    assert first.title.startswith("The first nodes: ")


def test_first_revision_of_an_empty_draft_tree_creates_all_nodes() -> None:
    tree = MemoryTree()

    writes = first_revision_writes(snapshot(tree, first_revision_reads("draft")), "draft", "5e0b")

    assert writes == (
        CreateNode("/zkcoord"),
        CreateNode("/zkcoord/epoch", b"0"),
        CreateNode("/zkcoord/schema", DRAFT_SCHEMA),
        CreateNode("/zkcoord/coordinators"),
        CreateNode("/zkcoord/groups"),
        CreateNode("/consumers"),
        CreateNode("/consumers/groups"),
    )


def test_first_revision_beside_old_consumers_leaves_theirs_alone() -> None:
    tree = MemoryTree("/consumers", "/consumers/old-group")

    writes = first_revision_writes(snapshot(tree, first_revision_reads("legacy")), "legacy", "5e0b")

    assert [write.path for write in writes] == [
        "/zkcoord",
        "/zkcoord/epoch",
        "/zkcoord/schema",
        "/zkcoord/coordinators",
        "/zkcoord/groups",
        "/zkcoord/channels",
    ]


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_first_revision_writes_what_the_codecs_read(layout: str) -> None:
    tree = MemoryTree()

    missing = first_revision_writes(snapshot(tree, first_revision_reads(layout)), layout, "5e0b")
    tree.commit(Transaction(writes=missing))

    assert decode_schema(tree.data()["/zkcoord/schema"]) == Schema(revision="0001", layout=layout, tree_id="5e0b")
    assert decode_epoch(tree.data()["/zkcoord/epoch"]) == 0
    assert first_revision_writes(snapshot(tree, first_revision_reads(layout)), layout, "5e0b") == ()


def test_first_revision_of_no_layout_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no layout 'new': choose draft or legacy"):
        first_revision_reads("new")


def test_first_revision_goes_back_as_long_as_there_is_no_group() -> None:
    tree = MemoryTree()
    first = history()[0]
    tree.commit(Transaction(writes=first.upgrade(snapshot(tree, first.reads("draft")), "draft")))

    writes = first.downgrade(snapshot(tree, first.reads("draft")), "draft")

    assert writes == (
        DeleteNode("/zkcoord/groups", 0),
        DeleteNode("/zkcoord/coordinators", 0),
        DeleteNode("/zkcoord/schema", 0),
        DeleteNode("/zkcoord/epoch", 0),
        DeleteNode("/zkcoord", 0),
    )
    tree.set("/zkcoord/groups/g", b"")
    tree.commit(Transaction(writes=writes))
    assert tree.refusals == ["NotEmpty /zkcoord/groups"]


def test_a_star_stands_for_every_child() -> None:
    tree = MemoryTree("/g", "/g/b", "/g/b/state", "/g/a", "/g/a/state")

    seen = snapshot(tree, ("/g/*/state", "/g", "/none/*"))

    assert [node.path for node in seen.values()] == ["/g/a/state", "/g/b/state", "/g"]


def test_trees_at_the_revision_before_are_served_where_the_revision_says_so(tmp_path: Path) -> None:
    for number in range(1, 5):
        write_revision(tmp_path, f"000{number}", f"000{number - 1}" if number > 1 else None)
    for name in ("0003_test.py", "0004_test.py"):
        file = tmp_path / name
        file.write_text(file.read_text(encoding="utf-8") + "\nserves_before = True\n", encoding="utf-8")

    assert [served(history(tmp_path)[:n]) for n in (2, 3, 4)] == [("0002",), ("0002", "0003"), ("0002", "0003", "0004")]
    assert served() == ("0001", "0002", "0003")


def test_a_gap_in_the_line_is_a_bug(tmp_path: Path) -> None:
    write_revision(tmp_path, "0001", None)
    write_revision(tmp_path, "0003", "0002")

    with pytest.raises(InvariantError, match="revision 0003 follows 0002, but the one before it is 0001"):
        history(tmp_path)


def test_two_heads_are_a_bug(tmp_path: Path) -> None:
    write_revision(tmp_path, "0001", None)
    write_revision(tmp_path, "0002", "0001")
    write_revision(tmp_path, "0003", "0001")

    with pytest.raises(InvariantError, match="revision 0003 follows 0001, but the one before it is 0002"):
        history(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("1_short.py", "", "is no name of a revision"),
        ("0001_empty.py", "", "lacks revision, down_revision, reads, upgrade, downgrade"),
        (
            "0001_mute.py",
            "revision, down_revision = '0001', None\nreads = upgrade = downgrade = lambda *_: ()",
            "lacks a docstring",
        ),
        (
            "0001_other.py",
            "'''A.'''\nrevision, down_revision = '0002', None\nreads = upgrade = downgrade = lambda *_: ()",
            "names itself 0002",
        ),
    ],
)
def test_a_file_that_is_no_revision_is_a_bug(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(InvariantError, match=why):
        history(tmp_path)


@pytest.mark.parametrize(
    ("said", "served_too"), [("True", True), ("'no'", False), ("False", False), ("1", False), (None, False)]
)
def test_a_revision_serves_the_one_before_only_where_it_says_exactly_so(
    tmp_path: Path, said: str | None, served_too: bool
) -> None:
    write_revision(tmp_path, "0001", None)
    write_revision(tmp_path, "0002", "0001")
    if said is not None:
        with (tmp_path / "0002_test.py").open("a", encoding="utf-8") as file:
            file.write(f"\nserves_before = {said}\n")
    assert served(history(tmp_path)) == (("0001", "0002") if served_too else ("0002",))


def test_a_checkout_has_its_own_revisions_whatever_is_installed() -> None:
    versions = Path(__file__).parents[2] / "migrations" / "versions"

    assert [revision.revision for revision in history()] == [r.revision for r in history(versions)]
    assert checkout_folder() == versions


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    write_revision(tmp_path, "0001", None)
    (tmp_path / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "README.md").write_text("", encoding="utf-8")

    assert [revision.revision for revision in history(tmp_path)] == ["0001"]
