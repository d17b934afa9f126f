"""The way back, and the stamp: the same term of office, crash points and fences as the way forward."""

from functools import partial

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord import migrate
from zkcoord.errors import FencedError, SchemaError, UnavailableError, UsageError
from zkcoord.migrate import Rehearsal, Revision, current, downgrade, stamp
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.writes import Transaction

Revisions = tuple[Revision, ...]
upgrade = partial(migrate.upgrade, tree_id="5e0b")


def at_head(revisions: Revisions) -> MemoryTree:
    """A tree at 0003 with two groups, no commit counted yet."""
    tree = MemoryTree()
    upgrade(tree, run_id="setup", revisions=revisions)
    for n in range(2):
        tree.set(f"/zkcoord/groups/g{n}", b"new")
    tree.commits.clear()
    return tree


def groups(tree: MemoryTree) -> list[bytes]:
    return [data for path, data in sorted(tree.data().items()) if path.startswith("/zkcoord/groups/")]


def at(revision: str, migration: dict[str, str] | None = None) -> Schema:
    return Schema(revision=revision, layout="draft", tree_id="5e0b", migration=migration)


def test_the_way_back_is_a_term_of_office_for_each_revision(revisions: Revisions) -> None:
    tree = at_head(revisions)

    taken = downgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)

    assert taken == ("0003", "0002")
    assert [batch.why for batch in tree.commits] == [
        "begin 0003 -> 0002",
        "end 0003 -> 0002",
        "begin 0002 -> 0001",
        "revision 0001",
        "end 0002 -> 0001",
    ]
    assert (current(tree), groups(tree), tree.data()["/zkcoord/epoch"]) == (at("0001"), [b"old", b"old"], b"2")
    assert upgrade(tree, run_id="ann-2", revisions=revisions) == ("0002", "0003")
    assert (current(tree), groups(tree)) == (at("0003"), [b"new", b"new"])


@pytest.mark.parametrize("fault", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("at_write", range(5))
def test_f128_a_way_back_that_broke_off_at_any_write_is_finished_by_the_next_run(
    revisions: Revisions, fault: str, at_write: int
) -> None:
    tree = at_head(revisions)
    tree.fault = lambda n: fault if n == at_write else ""
    try:
        downgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)
    except CrashError:
        tree.fault = lambda _: ""
        downgrade(tree, goal="0001", run_id="bob-1", revisions=revisions)

    assert (current(tree), groups(tree), tree.refusals) == (at("0001"), [b"old", b"old"], [])


def test_f128_an_upgrade_finishes_a_way_back_that_broke_off_before_it_goes_forward(revisions: Revisions) -> None:
    tree = at_head(revisions)
    tree.fault = lambda n: "crash-after" if n == 3 else ""
    with pytest.raises(CrashError):
        downgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)
    tree.fault = lambda _: ""
    tree.commits.clear()

    assert upgrade(tree, goal="0002", run_id="bob-1", revisions=revisions) == ("0002", "0002")

    assert [batch.why for batch in tree.commits] == [
        "resume 0002 -> 0001",
        "end 0002 -> 0001",
        "begin 0001 -> 0002",
        "revision 0002",
        "end 0001 -> 0002",
    ]
    assert (current(tree), groups(tree)) == (at("0002"), [b"new", b"new"])


def test_a_way_back_finishes_an_upgrade_that_broke_off_before_it_goes_back(revisions: Revisions) -> None:
    tree = at_head(revisions)
    downgrade(tree, goal="0001", run_id="setup", revisions=revisions)
    tree.commits.clear()
    tree.fault = lambda n: "crash-after" if n == 0 else ""
    with pytest.raises(CrashError):
        upgrade(tree, run_id="ann-1", revisions=revisions)
    tree.fault = lambda _: ""

    assert downgrade(tree, goal="0001", run_id="bob-1", revisions=revisions) == ("0002", "0002")

    assert (current(tree), groups(tree)) == (at("0001"), [b"old", b"old"])


@pytest.mark.parametrize("write", range(1, 5))
def test_f129_of_two_operators_one_wins_and_the_other_is_told(revisions: Revisions, write: int) -> None:
    """The second one starts at each write of the first, and goes forward while the first goes back."""
    tree = at_head(revisions)

    def other(n: int) -> None:
        if n == write:
            tree.meanwhile = lambda _: None
            upgrade(tree, goal="0003", run_id="bob-1", revisions=revisions)

    tree.meanwhile = other
    with pytest.raises((FencedError, UsageError), match="another run took the migration") as told:
        downgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)

    assert isinstance(told.value, FencedError)
    assert (current(tree), groups(tree)) == (at("0003"), [b"new", b"new"])
    assert len(tree.refusals) == 1


@pytest.mark.parametrize(
    ("schema", "goal", "error", "why"),
    [
        (at("0002"), "0003", UsageError, "0003 lies behind it: `zkcoord migrate upgrade`"),
        (at("0009"), "0001", SchemaError, "which this program .up to 0003. does not know"),
        (at("0003"), "base", UsageError, "choose head or one of 0001, 0002, 0003"),
        (at("0003", {"from": "0003", "to": "0004", "run": "x"}), "0001", SchemaError, "cannot finish it"),
        (at("0002", {"from": "0003", "to": "0002", "run": "x"}), "0001", SchemaError, "cannot finish it"),
        (at("0003", {"from": "0003", "to": "uninstalled", "run": "x"}), "0001", SchemaError, "cannot finish it"),
    ],
)
def test_a_goal_that_does_not_fit_is_refused_before_any_write(
    revisions: Revisions, schema: Schema, goal: str, error: type[Exception], why: str
) -> None:
    tree = at_head(revisions)
    tree.set("/zkcoord/schema", encode_schema(schema))

    with pytest.raises(error, match=why):
        downgrade(tree, goal=goal, run_id="ann-1", revisions=revisions)

    assert tree.commits == []


def test_there_is_no_way_back_and_no_stamp_without_a_tree(revisions: Revisions) -> None:
    for call in (partial(downgrade, run_id="ann-1"), stamp):
        tree = MemoryTree()
        with pytest.raises(SchemaError, match="there is no zkcoord tree: run `zkcoord migrate upgrade`"):
            call(tree, goal="0001", revisions=revisions)
        assert tree.commits == []


@pytest.mark.parametrize("migration", [None, {"from": "0003", "to": "0002", "run": "ann-1"}])
def test_a_stamp_writes_the_revision_alone_and_deposes_who_serves(
    revisions: Revisions, migration: dict[str, str] | None
) -> None:
    tree = at_head(revisions)
    tree.set("/zkcoord/schema", encode_schema(at("0003", migration)))

    assert stamp(tree, goal="0002", revisions=revisions) is True
    assert stamp(tree, goal="0002", revisions=revisions) is False

    assert [batch.why for batch in tree.commits] == ["stamp 0002"]
    assert (current(tree), groups(tree), tree.data()["/zkcoord/epoch"]) == (at("0002"), [b"new", b"new"], b"1")


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_stamp_whose_answer_was_lost_is_read_again(revisions: Revisions, fault: str) -> None:
    tree = at_head(revisions)
    tree.fault = lambda n: fault if n == 0 else ""

    stamp(tree, goal="0002", revisions=revisions)

    assert (current(tree), tree.data()["/zkcoord/epoch"], tree.refusals) == (at("0002"), b"1", [])


def test_a_stamp_that_others_overtake_all_the_time_is_given_up(revisions: Revisions) -> None:
    tree = at_head(revisions)
    tree.meanwhile = lambda n: tree.set("/zkcoord/schema", encode_schema(at("0003")))

    with pytest.raises(UnavailableError, match="`stamp 0002` was not carried out in 20 rounds"):
        stamp(tree, goal="0002", revisions=revisions)


def test_f129_a_stamp_fences_a_run_that_is_under_way(revisions: Revisions) -> None:
    tree = at_head(revisions)

    def stamped(n: int) -> None:
        if n == 3:
            tree.meanwhile = lambda _: None
            stamp(tree, goal="0003", revisions=revisions)

    tree.meanwhile = stamped
    with pytest.raises(FencedError, match="the tree is at 0003, in progress: None"):
        downgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)

    assert (current(tree), groups(tree)) == (at("0003"), [b"new", b"new"])


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_each_revision_of_the_project_goes_forward_and_back_on_trees_of_both_layouts(layout: str) -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="setup", goal="0001", layout=layout)
    groups_data = {f"/zkcoord/groups/g{n}": b'{"version":1}' for n in range(3)}
    for path, data in groups_data.items():
        tree.set(path, data)
    before = {path: data for path, data in tree.data().items() if path not in ("/zkcoord/schema", "/zkcoord/epoch")}
    tree.set("/zkcoord/schema", encode_schema(Schema(revision="0001", layout=layout)))  # of an earlier release
    for here, there in ((tree, None), (Rehearsal(tree), tree.data())):
        upgrade(here, run_id="ann-1")
        named = Schema(revision="0003", layout=layout, tree_id="5e0b")
        assert current(here) == named
        downgrade(here, goal="0001", run_id="ann-1")
        assert current(here) == Schema(revision="0001", layout=layout, tree_id="5e0b")
        if there is None:
            kept = {p: d for p, d in tree.data().items() if p not in ("/zkcoord/schema", "/zkcoord/epoch")}
            assert kept == before


def test_a_dry_run_of_the_way_back_plans_the_same_and_writes_nothing(revisions: Revisions) -> None:
    tree, real = at_head(revisions), at_head(revisions)
    before, planned = tree.data(), list[Transaction]()

    downgrade(Rehearsal(tree), goal="0001", run_id="ann-1", revisions=revisions, report=planned.append)
    downgrade(real, goal="0001", run_id="ann-1", revisions=revisions)

    assert (planned, tree.data()) == (real.commits, before)
