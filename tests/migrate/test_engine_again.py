"""What a run does when the tree is not as it was, or its answers are lost: it reads again, and plans again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.migrate.conftest import FIRST, three
from tests.migrate.memory_tree import CrashError, MemoryTree, write_revision
from tests.migrate.test_engine import ID, at_first, upgrade
from zkcoord.errors import FencedError, SchemaError
from zkcoord.migrate import Dump, Rehearsal, Revision, current, downgrade, history, stamp
from zkcoord.migrate.engine import snapshot
from zkcoord.migrate.plan import from_source
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import SCHEMA
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

Revisions = tuple[Revision, ...]
LARGE = b"new" * 50_000  # two of them do not fit in one batch


def groups(tree: MemoryTree) -> list[bytes]:
    return [data for path, data in sorted(tree.data().items()) if path.startswith("/zkcoord/groups/")]


def marked(revision: str, old: str, new: str) -> bytes:
    """A schema in the midst of bob's run."""
    return encode_schema(
        Schema(revision=revision, layout="draft", tree_id=ID, migration={"from": old, "to": new, "run": "bob"})
    )


def test_a_group_that_appears_while_the_last_batch_is_written_is_moved_too(revisions: Revisions) -> None:
    tree = at_first(revisions)
    tree.meanwhile = lambda n: tree.set("/zkcoord/groups/late", b"old") if n == 1 else None
    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)
    assert groups(tree) == [b"new"] * 3


def test_behind_a_batch_that_is_refused_no_later_one_is_sent_before_the_tree_is_read_again(tmp_path: Path) -> None:
    revisions = three(tmp_path, repr(LARGE))
    tree = at_first(revisions)
    tree.meanwhile = lambda n: tree.set("/zkcoord/groups/g0", b"changed") if n == 1 else None
    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)
    assert [commit.writes[-1].path.rpartition("/")[2] for commit in tree.commits] == [
        *("schema", "g0"),  # refused
        *("g0", "g1", "schema"),
    ]


def test_refusals_are_counted_in_a_row(revisions: Revisions) -> None:
    tree = at_first(revisions)

    def busy(n: int) -> None:
        if n < 15:
            tree.set("/zkcoord/epoch", b"7")
        elif 15 < n < 31:
            tree.set("/zkcoord/groups/g1", b"changed")

    tree.meanwhile = busy
    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)
    assert (len(tree.refusals), groups(tree)) == (30, [b"new"] * 2)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_behind_an_answer_that_is_lost_the_servers_are_in_step_before_anything_is_read(
    revisions: Revisions, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next reading may be of another server, which is behind."""
    tree, seen = at_first(revisions), list[str]()
    monkeypatch.setattr(tree, "sync", lambda: seen.append("sync"))
    tree.before_read = lambda _: seen.append("read")
    tree.meanwhile = lambda n: seen.append(f"write {n}")
    tree.fault = lambda n: fault if n == 1 else ""
    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)
    assert seen[seen.index("write 1") + 1 : seen.index("write 2")][:2] == ["sync", "read"]
    assert seen.count("sync") == 1


def test_a_run_that_was_taken_over_does_not_take_the_next_migration_over_either(revisions: Revisions) -> None:
    tree = at_first(revisions)
    further = marked("0002", "0002", "0003")
    tree.meanwhile = lambda n: tree.set(SCHEMA, further) if n == 1 else None
    with pytest.raises(FencedError, match="another run took the migration 0001 -> 0002 over: the tree is at 0002"):
        upgrade(tree, run_id="ann-1", revisions=revisions)
    assert tree.data()[SCHEMA] == further


def test_nodes_of_a_tree_that_lost_its_schema_are_moved_in_batches_as_any(revisions: Revisions) -> None:
    """All in one multi could be more than a server takes."""
    tree = at_first(revisions)
    del tree.nodes[SCHEMA]
    upgrade(tree, run_id="ann-1", revisions=revisions)
    assert [commit.why for commit in tree.commits][:3] == ["revision 0001", "begin 0001 -> 0002", "revision 0002"]
    assert (groups(tree), current(tree)) == ([b"new"] * 2, Schema(revision="0003", layout="draft", tree_id=ID))


def test_in_an_empty_tree_each_revision_sees_what_those_before_it_make(tmp_path: Path) -> None:
    (tmp_path / FIRST.name).write_text(FIRST.read_text(encoding="utf-8"), encoding="utf-8")
    change = "return tuple(SetNode(n.path, b'x', n.stat.version) for n in snapshot.values() if n.data == b'')"
    write_revision(tmp_path, "0002", "0001", reads='("/zkcoord/groups",)', upgrade=change)
    tree = MemoryTree()
    upgrade(tree, run_id="ann-1", revisions=history(tmp_path))
    assert (len(tree.commits), tree.data()["/zkcoord/groups"]) == (1, b"x")


def test_a_broken_off_migration_is_finished_first_whatever_the_goal(revisions: Revisions) -> None:
    for revision, old, new in (("0002", "0002", "0003"), ("0003", "0003", "0002")):
        tree = at_first(revisions)
        tree.set(SCHEMA, marked(revision, old, new))
        assert upgrade(tree, goal="0001", run_id="ann-1", revisions=revisions) == ("0003",)
        assert current(tree) == Schema(revision=new, layout="draft", tree_id=ID)
    tree = at_first(revisions)
    tree.set(SCHEMA, marked("0002", "0002", "0001"))
    assert downgrade(tree, goal="0003", run_id="ann-1", revisions=revisions) == ("0002",)
    assert current(tree) == Schema(revision="0001", layout="draft", tree_id=ID)


def test_a_stamp_of_the_revision_that_the_tree_has_gives_the_migration_up(revisions: Revisions) -> None:
    tree = at_first(revisions)
    tree.set(SCHEMA, marked("0001", "0001", "0002"))
    assert stamp(tree, goal="0001", revisions=revisions) is True
    assert current(tree) == Schema(revision="0001", layout="draft", tree_id=ID)
    assert stamp(tree, goal="0001", revisions=revisions) is False


@pytest.mark.parametrize("schema", [marked("0009", "0009", "0010"), marked("0001", "0001", "0007")])
def test_a_tree_of_a_newer_program_is_not_stamped(revisions: Revisions, schema: bytes) -> None:
    tree = at_first(revisions)
    tree.set(SCHEMA, schema)
    with pytest.raises(SchemaError):
        stamp(tree, goal="0001", revisions=revisions)
    assert tree.commits == []


def test_the_layout_draft_is_refused_whichever_of_the_groups_has_old_consumers() -> None:
    tree = MemoryTree("/brokers", "/consumers", "/consumers/a", "/consumers/g", "/consumers/g/ids", "/consumers/z")
    with pytest.raises(SchemaError, match=r"old consumers use this tree .*/consumers/g/ids"):
        upgrade(tree, run_id="ann-1")


@pytest.mark.parametrize(("layout", "shared"), [("draft", set()), ("legacy", {"/consumers"})])
def test_nodes_for_old_consumers_stay_open_to_them_whatever_the_acl(layout: str, shared: set[str]) -> None:
    writes = history()[0].upgrade(snapshot(MemoryTree(), history()[0].reads(layout)), layout)
    assert {write.path for write in writes if isinstance(write, CreateNode) and write.shared} == shared


def test_a_tree_with_topics_from_kafka_is_never_at_a_revision_that_does_not_know_it() -> None:
    first = Schema(revision="0001", layout="draft")
    assert from_source(first, "zookeeper") == first
    assert from_source(first, "kafka", "c1") == replace(first, revision="0003", topics="kafka", cluster_id="c1")
    later = replace(first, revision="0007")
    assert from_source(later, "kafka").revision == "0007"


def test_a_rehearsal_keeps_all_of_a_multi_or_nothing_and_shows_what_is_gone() -> None:
    tree = MemoryTree("/a", "/a/b", "/a/c")
    rehearsal = Rehearsal(tree)

    def commit(*writes: CreateNode | SetNode | DeleteNode) -> CommitDone:
        return rehearsal.commit(Transaction(writes=writes))

    def shown(path: str) -> tuple[bool, tuple[str, ...]]:
        data, children = rehearsal.read([Read(path), Read(path, Kind.CHILDREN)])
        return data.exists, children.children

    refused = commit(SetNode("/a", b"x", 0), DeleteNode("/a/b", 0), CreateNode("/a/c"))
    assert (refused.outcome, refused.failed_at, refused.reason) == (Outcome.REFUSED, 2, "NodeExists")
    assert rehearsal.read([Read("/a")])[0].data == b""
    assert shown("/a") == (True, ("b", "c"))
    assert commit(CreateNode("/x/y")).reason == "NoNode"
    assert commit(DeleteNode("/a/b", 0), DeleteNode("/a/c", 0)).outcome is Outcome.COMMITTED
    assert shown("/a") == (True, ())
    assert commit(DeleteNode("/a", 0), CreateNode("/x"), CreateNode("/x/y")).outcome is Outcome.COMMITTED
    assert (shown("/a"), shown("/x")) == ((False, ()), (True, ("y",)))
    assert tree.commits == []


def test_a_dump_answers_as_the_tree_did_parents_and_lists_too() -> None:
    dump = Dump([("/zkcoord/groups/g", b"1"), ("/zkcoord/groups/h/state", b"2")])
    found = snapshot(dump, ("/zkcoord/groups/*", "/zkcoord/groups/*/state", "/zkcoord", "/none"))
    assert {path: node.data for path, node in found.items() if node.exists} == {
        "/zkcoord/groups/g": b"1",
        "/zkcoord/groups/h": b"",
        "/zkcoord/groups/h/state": b"2",
        "/zkcoord": b"",
    }
    assert [path for path, node in found.items() if not node.exists] == ["/zkcoord/groups/g/state", "/none"]
    (root,) = dump.read([Read("/", Kind.CHILDREN)])
    assert root.children == ("zkcoord",)


def test_a_migration_that_dies_between_two_batches_goes_on_with_the_rest(tmp_path: Path) -> None:
    revisions = three(tmp_path, repr(LARGE))
    tree = at_first(revisions)
    tree.fault = lambda n: "crash-after" if n == 1 else ""
    with pytest.raises(CrashError):
        upgrade(tree, run_id="ann-1", revisions=revisions)
    assert groups(tree) == [LARGE, b"old"]
    tree.fault = lambda _: ""
    upgrade(tree, run_id="bob-1", revisions=revisions)
    assert [c.writes[-1].path for c in tree.commits if c.why == "revision 0002"][1:] == ["/zkcoord/groups/g1"]
