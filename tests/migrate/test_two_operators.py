"""Two migrations of different kinds at once: each run looked at a tree that the other one has changed since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from tests.migrate.test_topics import CLUSTER, OLD_MARK, drops_nothing, mirror_in, switch, tree_with
from zkcoord.errors import SchemaError, UsageError, ZkcoordError
from zkcoord.migrate import Revision, current, downgrade, stamp, upgrade
from zkcoord.operating.uninstalling import take_away
from zkcoord.tree.paths import DRAFT, SCHEMA
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.topic import decode_mark


def schema_of(tree: MemoryTree) -> Schema:
    found = current(tree)
    assert found is not None
    return found


def before_its_first_write(tree: MemoryTree, other: Callable[[], object]) -> None:
    """The other operator's command runs when this one has looked at everything, and written nothing."""

    def meanwhile(_: int) -> None:
        tree.meanwhile = lambda _: None
        other()

    tree.meanwhile = meanwhile


def breaks_off(tree: MemoryTree, run: Callable[[], object], writes: int) -> None:
    """Let the command make so many writes, and die."""
    stops_at = len(tree.commits) + writes
    tree.fault = lambda n: "crash-before" if n == stops_at else ""
    with suppress(CrashError):
        run()
    tree.fault = lambda _: ""


def test_f261_a_downgrade_refuses_a_revision_that_lacks_the_new_topic_source() -> None:
    """Coordinators of that revision would read /brokers/topics, and drop the offsets of topics that are not there."""
    tree = tree_with()
    before_its_first_write(tree, lambda: switch(tree))
    with pytest.raises(UsageError, match="topics come from 'kafka', which revision 0002 does not know"):
        downgrade(tree, run_id="bob", goal="0002")
    schema = schema_of(tree)
    assert (schema.revision, schema.topics, schema.migration) == ("0003", "kafka", None)
    drops_nothing(tree)


def test_f261_the_source_of_topics_is_not_changed_behind_a_way_back() -> None:
    tree = tree_with()
    before_its_first_write(tree, lambda: downgrade(tree, run_id="bob", goal="0002"))
    with pytest.raises(UsageError, match=r"the tree is at revision 0002, .*zkcoord migrate upgrade"):
        switch(tree)
    schema = schema_of(tree)
    assert (schema.revision, schema.topics, schema.migration) == ("0002", "zookeeper", None)


@pytest.mark.parametrize("goal", ["0001", "0002"])
def test_f261_a_stamp_is_refused_at_a_revision_that_does_not_know_the_source_of_topics(goal: str) -> None:
    tree = tree_with()
    switch(tree)
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match=f"topics come from 'kafka', which revision {goal} does not know"):
        stamp(tree, goal=goal)
    assert tree.nodes == before


def test_f261_a_switch_takes_no_migration_of_revisions_over_that_has_begun_since_it_looked() -> None:
    tree = tree_with()
    before_its_first_write(tree, lambda: breaks_off(tree, lambda: downgrade(tree, run_id="bob", goal="0002"), 1))
    with pytest.raises(SchemaError, match=r"another migration is in progress, 0003 -> 0002 \(run bob\): end it first"):
        switch(tree)
    assert schema_of(tree).migration == {"from": "0003", "to": "0002", "run": "bob"}
    downgrade(tree, run_id="bob-2", goal="0002")
    assert (schema_of(tree).revision, schema_of(tree).migration) == ("0002", None)


def test_f261_a_migration_of_revisions_takes_no_switch_over_that_has_begun_since_it_looked() -> None:
    tree = tree_with()
    before_its_first_write(tree, lambda: breaks_off(tree, lambda: switch(tree, run="ann"), 2))
    with pytest.raises(SchemaError, match=r"in progress, topics zookeeper -> topics kafka \(run ann\): end it first"):
        downgrade(tree, run_id="bob", goal="0002")
    assert switch(tree, run="ann-2") is True
    assert mirror_in(tree) == CLUSTER
    drops_nothing(tree)


def test_f261_an_uninstallation_takes_no_migration_over_that_has_begun_since_it_looked(
    revisions: tuple[Revision, ...],
) -> None:
    tree = MemoryTree()
    upgrade(tree, run_id="setup", goal="0001", revisions=revisions)
    for name in ("g", "h"):
        tree.set(DRAFT.record(name), b"old")
    schema, before = current(tree), tree.data()
    forward = {"run_id": "bob", "goal": "0002", "revisions": revisions}
    breaks_off(tree, lambda: upgrade(tree, **forward), 1)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"another migration is in progress, 0001 -> 0002 \(run bob\)"):
        take_away(tree, schema)
    assert before.keys() <= tree.data().keys()


def test_f261_a_switch_that_ended_meanwhile_is_not_given_up() -> None:
    """Its source would be changed without the comparison, and without a new term of office."""
    tree = tree_with()
    breaks_off(tree, lambda: switch(tree, run="ann"), 2)
    looks: list[int] = []

    def reads_the_mark(reads: Sequence[Read]) -> None:
        looks.append(1)
        if len(looks) == 2:  # bob has read the mark
            tree.before_read = lambda _: None
            switch(tree, run="ann-2")

    tree.before_read = reads_the_mark
    assert switch(tree, "zookeeper", run="bob") is True
    whys = [commit.why for commit in tree.commits]
    assert "give up topics zookeeper -> topics kafka" not in whys
    assert whys[-2:] == ["begin topics kafka -> topics zookeeper", "end topics kafka -> topics zookeeper"]
    assert (schema_of(tree).topics, schema_of(tree).migration) == ("zookeeper", None)
    drops_nothing(tree)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_f261_a_giving_up_whose_request_or_answer_is_lost_is_looked_at_again(fault: str) -> None:
    tree = tree_with()
    breaks_off(tree, lambda: switch(tree, run="ann"), 2)
    at = len(tree.commits)
    tree.fault = lambda n: fault if n == at else ""
    switch(tree, "zookeeper", run="bob")
    assert (schema_of(tree).topics, schema_of(tree).migration) == ("zookeeper", None)
    assert tree.refusals == []


def test_f261_a_run_that_must_stop_does_not_end_the_run_that_took_it_over() -> None:
    tree, asked = tree_with(), list[int]()

    def obstacles() -> list[str]:
        asked.append(1)
        if len(asked) == 2:  # the run has begun, and has not written anything yet
            taken = replace(schema_of(tree), migration={**dict(schema_of(tree).migration or {}), "run": "bob"})
            tree.set(SCHEMA, encode_schema(taken))
        return ["group g has the old consumer x"] if len(asked) > 1 else []

    with pytest.raises(ZkcoordError, match="joined meanwhile"):
        switch(tree, obstacles=obstacles)
    mark = schema_of(tree).migration
    assert mark is not None and mark["run"] == "bob"
    assert decode_mark(tree.data()[DRAFT.mark("g", "clicks")]) == OLD_MARK
