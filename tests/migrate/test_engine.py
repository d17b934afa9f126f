"""The engine on a tree in memory: every place where it can break off, and who may go on."""

from functools import partial

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord import migrate
from zkcoord.errors import FencedError, InvariantError, SchemaError, UnavailableError, UsageError
from zkcoord.migrate import Mark, Rehearsal, Revision, current
from zkcoord.migrate.plan import batches
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.schema import Schema
from zkcoord.tree.writes import ITEMS_MAX, CheckNode, DeleteNode, SetNode, Transaction

Revisions = tuple[Revision, ...]

ID = "5e0b"
MARKED = (
    b'{"version":1,"revision":"0001","layout":"draft","tree_id":"5e0b",'
    b'"migration":{"from":"0001","to":"0002","run":"ann-1"}}'
)
ENDED = b'{"version":1,"revision":"0002","layout":"draft","tree_id":"5e0b","migration":null}'

upgrade = partial(migrate.upgrade, tree_id=ID)


def at_first(revisions: Revisions) -> MemoryTree:
    """A tree at 0001 with two groups, no commit counted yet."""
    tree = MemoryTree()
    upgrade(tree, goal="0001", run_id="setup", revisions=revisions)
    for n in range(2):
        tree.set(f"/zkcoord/groups/g{n}", b"old")
    tree.commits.clear()
    return tree


def test_an_empty_tree_takes_the_first_revision_in_one_batch(revisions: Revisions) -> None:
    tree = MemoryTree()

    taken = upgrade(tree, goal="0001", run_id="ann-1", revisions=revisions)

    assert taken == ("0001",)
    assert [len(transaction.writes) for transaction in tree.commits] == [7]
    assert current(tree) == Schema(revision="0001", layout="draft", tree_id=ID)


def test_a_revision_is_a_term_of_office(revisions: Revisions) -> None:
    tree = at_first(revisions)
    told: list[Transaction] = []

    taken = upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions, report=told.append)

    assert taken == ("0002",)
    assert [(transaction.why, transaction.writes) for transaction in tree.commits] == [
        ("begin 0001 -> 0002", (SetNode("/zkcoord/epoch", b"1", 0), SetNode("/zkcoord/schema", MARKED, 0))),
        (
            "revision 0002",
            (
                CheckNode("/zkcoord/schema", 1),
                SetNode("/zkcoord/groups/g0", b"new", 0),
                SetNode("/zkcoord/groups/g1", b"new", 0),
            ),
        ),
        (
            "end 0001 -> 0002",
            (SetNode("/zkcoord/schema", ENDED, 1),),
        ),
    ]
    assert told == tree.commits


def test_an_empty_tree_takes_all_revisions_and_a_second_run_none(revisions: Revisions) -> None:
    tree = MemoryTree()

    assert upgrade(tree, layout="legacy", run_id="ann-1", revisions=revisions) == ("0001", "0002", "0003")
    assert [(batch.why, len(batch.writes)) for batch in tree.commits] == [("revision 0003", 7)]
    tree.commits.clear()
    assert upgrade(tree, layout="legacy", run_id="ann-2", revisions=revisions) == ()

    assert tree.commits == []
    assert current(tree) == Schema(revision="0003", layout="legacy", tree_id=ID)
    assert tree.data()["/zkcoord/epoch"] == b"0"


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("at", range(6))
def test_a_lost_request_or_answer_changes_nothing_of_the_result(revisions: Revisions, fault: str, at: int) -> None:
    calm, tree = at_first(revisions), at_first(revisions)
    upgrade(calm, run_id="ann-1", revisions=revisions)
    tree.fault = lambda n: fault if n == at else ""

    upgrade(tree, run_id="ann-1", revisions=revisions)

    assert tree.data() == calm.data()
    assert tree.refusals == []


@pytest.mark.parametrize("crash", ["crash-before", "crash-after"])
@pytest.mark.parametrize("at", range(6))
def test_another_run_finishes_what_a_crash_left(revisions: Revisions, crash: str, at: int) -> None:
    tree = at_first(revisions)
    tree.fault = lambda n: crash if n == at else ""
    try:
        upgrade(tree, run_id="ann-1", revisions=revisions)
    except CrashError:
        tree.fault = lambda _: ""

    upgrade(tree, run_id="bob-1", revisions=revisions)

    assert current(tree) == Schema(revision="0003", layout="draft", tree_id=ID)
    assert {data for path, data in tree.data().items() if path.startswith("/zkcoord/groups/")} == {b"new"}
    assert tree.refusals == []


def test_a_broken_off_migration_is_finished_even_if_the_goal_lies_before(revisions: Revisions) -> None:
    tree = at_first(revisions)
    tree.fault = lambda n: "crash-after" if n == 0 else ""
    with pytest.raises(CrashError):
        upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)
    tree.fault = lambda _: ""

    taken = upgrade(tree, goal="0001", run_id="bob-1", revisions=revisions)

    assert taken == ("0002",)
    assert [transaction.why for transaction in tree.commits[1:]] == [
        "resume 0001 -> 0002",
        "revision 0002",
        "end 0001 -> 0002",
    ]


@pytest.mark.parametrize("at", [1, 2])
def test_of_two_runs_the_one_that_was_taken_over_writes_nothing_more(revisions: Revisions, at: int) -> None:
    tree = at_first(revisions)
    marked = MARKED.replace(b"ann-1", b"bob-1")
    tree.meanwhile = lambda n: tree.set("/zkcoord/schema", marked) if n == at else None

    with pytest.raises(FencedError, match=r"another run took the migration 0001 -> 0002 over: .*bob-1"):
        upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)

    assert tree.data()["/zkcoord/schema"] == marked
    assert tree.refusals == ["BadVersion /zkcoord/schema"]


def test_two_operators_begin_at_once_and_both_end_at_the_goal(revisions: Revisions) -> None:
    tree = at_first(revisions)

    def other_finishes_first(n: int) -> None:
        if n == 0:
            tree.meanwhile = lambda _: None
            upgrade(tree, goal="0002", run_id="bob-1", revisions=revisions)

    tree.meanwhile = other_finishes_first
    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)

    assert current(tree) == Schema(revision="0002", layout="draft", tree_id=ID)
    assert tree.refusals == ["BadVersion /zkcoord/epoch"]


def test_a_node_that_changes_meanwhile_is_decided_on_again(revisions: Revisions) -> None:
    tree = at_first(revisions)
    tree.meanwhile = lambda n: tree.set("/zkcoord/groups/g1", b"changed") if n == 1 else None

    upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)

    assert tree.refusals == ["BadVersion /zkcoord/groups/g1"]
    assert tree.nodes["/zkcoord/groups/g1"] == (b"new", 2)


def test_a_tree_that_changes_all_the_time_is_given_up_with_the_path(revisions: Revisions) -> None:
    tree = at_first(revisions)
    tree.meanwhile = lambda n: tree.set("/zkcoord/groups/g1", b"changed %d" % n)

    with pytest.raises(UnavailableError, match=r"not carried out in 20 rounds \(BadVersion at /zkcoord/groups/g1\)"):
        upgrade(tree, goal="0002", run_id="ann-1", revisions=revisions)


def test_a_missing_right_names_the_path(revisions: Revisions, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MemoryTree()

    def denied(_: Transaction) -> CommitDone:
        return CommitDone(0, Outcome.REFUSED, failed_at=2, reason="NoAuth")

    monkeypatch.setattr(tree, "commit", denied)

    with pytest.raises(UsageError, match="refuses the write of /zkcoord/schema: give this user the right"):
        upgrade(tree, run_id="ann-1", revisions=revisions)


def test_a_dry_run_plans_the_same_and_writes_nothing(revisions: Revisions) -> None:
    tree, real = at_first(revisions), at_first(revisions)
    before = tree.data()
    planned: list[Transaction] = []

    upgrade(Rehearsal(tree), run_id="ann-1", revisions=revisions, report=planned.append)
    upgrade(real, run_id="ann-1", revisions=revisions)

    assert planned == real.commits
    assert tree.data() == before


def test_a_rehearsal_refuses_what_the_server_would(revisions: Revisions) -> None:
    tree = at_first(revisions)
    rehearsal = Rehearsal(tree)

    outcomes = [
        rehearsal.commit(Transaction(writes=(CheckNode("/zkcoord/epoch", 0), write)))
        for write in (
            SetNode("/zkcoord/epoch", b"9", 7),
            SetNode("/none", b"", 0),
            DeleteNode("/zkcoord/groups", 0),
            DeleteNode("/zkcoord/groups/g0", 0),
        )
    ]

    assert [(done.failed_at, done.reason) for done in outcomes] == [
        (1, "BadVersion"),
        (1, "NoNode"),
        (1, "NotEmpty"),
        (-1, ""),
    ]


@pytest.mark.parametrize(
    ("schema", "goal", "layout", "error", "why"),
    [
        (Schema(revision="0009", layout="draft"), "head", None, SchemaError, "which this program .up to 0003. does"),
        (
            Schema(revision="0001", layout="draft"),
            "head",
            "legacy",
            SchemaError,
            "has the layout 'draft', not 'legacy'",
        ),
        (Schema(revision="0001", layout="other"), "head", None, UsageError, "there is no layout 'other'"),
        (
            Schema(revision="0002", layout="draft"),
            "0001",
            None,
            UsageError,
            "0001 lies before it: `zkcoord migrate downgrade 0001`",
        ),
        (Schema(revision="0001", layout="draft"), "0004", None, UsageError, "choose head or one of 0001, 0002, 0003"),
        (
            Schema(revision="0001", layout="draft", migration={"from": "0001", "to": "0007", "run": "x"}),
            "head",
            None,
            SchemaError,
            "0001 -> 0007 .run x. is in progress and this program cannot finish it",
        ),
        (Schema(revision="0001", layout="draft", migration={"to": 7}), "head", None, SchemaError, "of an unknown kind"),
    ],
)
def test_a_tree_or_goal_that_does_not_fit_is_refused_before_any_write(
    revisions: Revisions, schema: Schema, goal: str, layout: str | None, error: type[Exception], why: str
) -> None:
    from zkcoord.tree.schema import encode_schema

    tree = at_first(revisions)
    tree.set("/zkcoord/schema", encode_schema(schema))

    with pytest.raises(error, match=why):
        upgrade(tree, goal=goal, layout=layout, run_id="ann-1", revisions=revisions)

    assert tree.commits == []


def test_large_revisions_go_in_batches_each_behind_the_mark() -> None:
    mark = Mark(old="0001", new="0002", run="ann-1")
    many = [SetNode(f"/zkcoord/groups/g{n}", b"", 0) for n in range(2 * ITEMS_MAX + 1)]
    large = [SetNode(f"/zkcoord/groups/g{n}", b"x" * 200_000, 0) for n in range(3)]

    assert [len(batch.writes) for batch in batches(5, mark, many)] == [1_001, 1_001, 2]
    assert [len(batch.writes) for batch in batches(5, mark, large)] == [2, 2, 2]
    assert {batch.writes[0] for batch in batches(5, mark, many)} == {CheckNode("/zkcoord/schema", 5)}


def test_a_revision_that_writes_the_schema_is_a_bug() -> None:
    with pytest.raises(InvariantError, match="revision 0002 writes the schema or the epoch"):
        list(batches(5, Mark(old="0001", new="0002", run="r"), [SetNode("/zkcoord/epoch", b"9", 0)]))


def test_the_layout_draft_is_not_made_where_old_consumers_are_and_legacy_is() -> None:
    tree = MemoryTree("/brokers", "/consumers", "/consumers/g", "/consumers/g/ids")
    before = tree.data()
    with pytest.raises(SchemaError, match="old consumers use this tree"):
        upgrade(tree, run_id="ann-1")
    assert tree.data() == before
    upgrade(tree, run_id="ann-1", layout="legacy")
    assert current(tree) == Schema(revision="0003", layout="legacy", tree_id=ID)
