"""Each write of the project's own revisions is broken off, forwards and backwards; the next run ends as none had."""

import itertools

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord.migrate import Rehearsal, current, downgrade, upgrade
from zkcoord.migrate.dump import Dump
from zkcoord.migrate.revision import history
from zkcoord.shell.ports import Outcome
from zkcoord.tree.paths import SCHEMA
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import Transaction, Write

REVISIONS = [revision.revision for revision in history()]
STEPS = list(itertools.pairwise(["", *REVISIONS]))
WAYS = {*STEPS, ("", REVISIONS[-1]), *((after, before) for before, after in STEPS if before)}
WAYS.add((REVISIONS[-1], REVISIONS[0]))
EPOCH = "/zkcoord/epoch"


def tree_at(revision: str, layout: str) -> MemoryTree:
    """A tree that has come so far, no commit counted yet; "": none of zkcoord's nodes is there."""
    tree = MemoryTree(*(("/consumers", "/consumers/g", "/consumers/g/ids") if layout == "legacy" else ()))
    if revision:
        upgrade(tree, run_id="setup", tree_id="5e0b", goal=revision, layout=layout)
        tree.commits.clear()
    return tree


def go(tree: MemoryTree, way: tuple[str, str], layout: str, run_id: str) -> None:
    """Bring it to the way's end."""
    start, goal = way
    if start > goal:
        downgrade(tree, run_id=run_id, goal=goal)
    else:
        upgrade(tree, run_id=run_id, tree_id="5e0b", goal=goal, layout=layout)


def result(tree: MemoryTree) -> dict[str, bytes]:
    """What stands there; the epoch counts terms of office, of which a broken one is one more."""
    return {path: data for path, data in tree.data().items() if path != EPOCH}


@pytest.mark.parametrize("layout", ["draft", "legacy"])
@pytest.mark.parametrize("way", sorted(WAYS), ids=" to ".join)
def test_f128_each_write_of_each_revision_may_be_the_last_of_its_run(way: tuple[str, str], layout: str) -> None:
    calm = tree_at(way[0], layout)
    go(calm, way, layout, "ann-1")
    schema = current(calm)
    assert schema is not None
    assert (schema.revision, schema.migration) == (way[1], None)
    writes = len(calm.commits)
    assert writes > 0
    for at, crash in itertools.product(range(writes), ("crash-before", "crash-after")):
        tree = tree_at(way[0], layout)
        tree.fault = lambda n, at=at, crash=crash: crash if n == at else ""  # type: ignore[misc]
        with pytest.raises(CrashError):
            go(tree, way, layout, "ann-1")
        tree.fault = lambda _: ""
        go(tree, way, layout, "bob-1")
        assert result(tree) == result(calm), (at, crash)
        assert tree.refusals == [], (at, crash)


@pytest.mark.parametrize("layout", ["draft", "legacy"])
@pytest.mark.parametrize("way", sorted(WAYS), ids=" to ".join)
def test_of_each_revision_a_dry_run_from_a_dump_plans_what_the_run_then_writes(
    way: tuple[str, str], layout: str
) -> None:
    real = tree_at(way[0], layout)
    dump, planned = Dump(real.data().items()), list[Transaction]()
    report = planned.append
    if way[0] > way[1]:
        downgrade(Rehearsal(dump), run_id="ann-1", goal=way[1], report=report)
    else:
        upgrade(Rehearsal(dump), run_id="ann-1", tree_id="5e0b", goal=way[1], layout=layout, report=report)
    go(real, way, layout, "ann-1")
    assert [unversioned(each) for each in planned] == [unversioned(each) for each in real.commits] != []


def unversioned(transaction: Transaction) -> list[tuple[object, ...]]:
    """A dump knows no versions of what stands in it."""
    return [(type(write), write.path, getattr(write, "data", b"")) for write in transaction.writes]


FIRST = history()[0]
"""No migration leads below it: `zkcoord uninstall` takes a whole tree away. It has a way back as each revision has."""


def way_back(tree: MemoryTree, layout: str) -> tuple[Write, ...]:
    """What is left to be written, so that the first revision is taken back."""
    nodes = tree.read([Read(path) for path in FIRST.reads(layout)])
    return tuple(FIRST.downgrade({node.path: node for node in nodes}, layout))


def carry_out(tree: MemoryTree, writes: tuple[Write, ...]) -> None:
    """Each in a transaction of its own, as a run may break off behind any."""
    for write in writes:
        done = tree.commit(Transaction(writes=(write,), why="revision 0001, back"))
        assert done.outcome is Outcome.COMMITTED, (done.reason, write)


@pytest.mark.parametrize("layout", ["draft", "legacy"])
def test_the_way_back_below_the_first_revision_may_break_off_at_each_write(
    layout: str,
) -> None:
    theirs = {path: data for path, data in tree_at("", layout).data().items() if path.startswith("/consumers")}
    calm = tree_at("0001", layout)
    writes = way_back(calm, layout)
    carry_out(calm, writes)
    assert way_back(calm, layout) == ()
    assert [path for path in calm.data() if path.startswith("/zkcoord")] == []
    assert calm.data().items() >= theirs.items()
    assert len(writes) == len([path for path in FIRST.reads(layout) if path.startswith("/zkcoord")])
    for at in range(len(writes) + 1):
        tree = tree_at("0001", layout)
        carry_out(tree, writes[:at])
        assert way_back(tree, layout) == writes[at:], at
        carry_out(tree, way_back(tree, layout))
        assert (tree.data(), tree.refusals) == (calm.data(), []), at

        broken = tree_at("0001", layout)
        carry_out(broken, writes[:at])
        if SCHEMA not in broken.data():  # else it says that the tree is there
            upgrade(broken, run_id="bob-1", tree_id="5e0b", goal="0001", layout=layout)
            assert result(broken) == result(tree_at("0001", layout)), at


@pytest.mark.parametrize("layout", ["draft", "legacy"])
@pytest.mark.parametrize("parent", ["/zkcoord/groups", "/zkcoord/coordinators"])
def test_the_first_revision_is_not_taken_back_while_groups_or_coordinators_stand(layout: str, parent: str) -> None:
    tree = tree_at("0001", layout)
    tree.set(f"{parent}/g", b"")
    before = tree.data()
    done = tree.commit(Transaction(writes=way_back(tree, layout), why="revision 0001, back"))
    assert (done.outcome, done.reason, tree.data()) == (Outcome.REFUSED, "NotEmpty", before)
