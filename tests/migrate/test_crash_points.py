"""Each write of the project's own revisions is broken off, forwards and backwards; the next run ends as none had."""

import itertools

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord.migrate import current, downgrade, upgrade
from zkcoord.migrate.revision import history

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
