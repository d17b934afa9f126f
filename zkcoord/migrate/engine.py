"""Moves a tree to a revision: reads, asks the plan, sends one batch, reads again.

Nothing is remembered between two batches: a refused or unknown one means read again and plan again, so that a run which
broke off anywhere is resumed by the next one. Who may write is decided by the schema's mark alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from zkcoord.errors import FencedError, SchemaError, UnavailableError, UsageError, invariant
from zkcoord.migrate import plan
from zkcoord.migrate.plan import Mark
from zkcoord.migrate.ports import BlockingTree
from zkcoord.migrate.rehearsal import Rehearsal
from zkcoord.migrate.revision import HEAD, Change, Revision, history, reach
from zkcoord.shell.ports import Outcome
from zkcoord.tree.paths import DRAFT, EPOCH, FROM_ZOOKEEPER, KAFKA, LEGACY, ROOT, SCHEMA, Layout, layout_named
from zkcoord.tree.schema import Schema, old_consumers
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import Transaction, Write

ROUNDS_MAX = 20
"""How often in a row a batch may be refused, or its outcome be unknown, before a person must look."""

Report = Callable[[Transaction], None]


def current(tree: BlockingTree) -> Schema | None:
    """The tree's revision and layout, and the migration in progress; None: there is no zkcoord tree yet."""
    return plan.read_schema(_node(tree, SCHEMA))


def upgrade(
    tree: BlockingTree,
    *,
    run_id: str,
    tree_id: str | None = None,
    goal: str = HEAD,
    layout: str | None = None,
    topics: str = FROM_ZOOKEEPER,
    cluster_id: str = "",
    revisions: Sequence[Revision] | None = None,
    report: Report = lambda _: None,
) -> tuple[str, ...]:
    """Bring the tree to `goal`; returns the revisions that it took, oldest first (none: it was there).

    `layout`: of a new tree (None: draft); of an existing one it must be the same. `topics`: where those of a new tree
    come from, and `cluster_id` of which cluster ("": not known yet); with `kafka`, `goal` is a revision that knows it.
    `run_id` is this run's alone, and should tell people whose. `tree_id`: of a tree that has none (None: a random one).
    A migration that broke off is finished first. `report` is told of each batch carried out.
    SchemaError: the tree is newer than this program, or has another layout. FencedError: another run took over.
    UnavailableError: the tree changes faster than it can be migrated.
    """
    known = tuple(history() if revisions is None else revisions)
    target = reach(known, goal)
    taken: list[str] = []
    run = Run(tree=tree, run_id=run_id, tree_id=tree_id or plan.new_tree_id(), report=report)
    schema = current(tree)
    if schema is None:
        place = layout_named(layout or DRAFT.name, topics)
        schema = run.first(known[: target + 1], place, cluster_id)
        taken += [revision.revision for revision in known[: _position(known, schema) + 1]]
    if layout is not None and layout_named(layout).name != schema.layout:
        raise SchemaError(f"the tree has the layout {schema.layout!r}, not {layout!r}; a tree keeps its layout")
    if _position(known, schema) > target and plan.read_mark(schema) is None:
        raise UsageError(
            f"the tree is at revision {schema.revision}, {goal} lies before it: `zkcoord migrate downgrade {goal}`"
        )
    return (*taken, *_walk(run, known, schema, range(target, len(known))))


def downgrade(
    tree: BlockingTree,
    *,
    run_id: str,
    goal: str,
    revisions: Sequence[Revision] | None = None,
    report: Report = lambda _: None,
) -> tuple[str, ...]:
    """Bring the tree back to `goal`, an earlier revision; returns what was carried out (none: it was there).

    As `upgrade`, backwards: a migration that broke off is finished first, in its own direction.
    """
    known, schema = tuple(history() if revisions is None else revisions), _there(tree)
    target = reach(known, goal)
    if _position(known, schema) < target and plan.read_mark(schema) is None:
        raise UsageError(f"the tree is at revision {schema.revision}, {goal} lies behind it: `zkcoord migrate upgrade`")
    plan.refuse_topics(schema, known[target].revision)
    run = Run(tree=tree, run_id=run_id, tree_id=plan.new_tree_id(), report=report)
    return _walk(run, known, schema, range(target + 1))


def stamp(
    tree: BlockingTree,
    *,
    goal: str,
    revisions: Sequence[Revision] | None = None,
    report: Report = lambda _: None,
) -> bool:
    """Write that the tree is at `goal` and no migration is in progress, and nothing else; False: it says so already.

    For an operator who has mended the tree by hand. A run that is under way can write nothing more. UsageError for a
    revision that does not know where the tree's topics come from.
    """
    known = tuple(history() if revisions is None else revisions)
    name = known[reach(known, goal)].revision
    run = Run(tree=tree, run_id="", tree_id=plan.new_tree_id(), report=report)
    changed = False
    while True:
        node, epoch = tree.read([Read(SCHEMA), Read(EPOCH)])
        schema = _there(tree, node)
        _next(known, schema, range(len(known)))  # SchemaError for what this program does not know
        if schema.revision == name and schema.migration is None:
            return changed
        plan.refuse_topics(schema, name)
        changed = run.commit(plan.stamp(node, epoch, name)) or changed


def _there(tree: BlockingTree, node: Node | None = None) -> Schema:
    schema = plan.read_schema(_node(tree, SCHEMA) if node is None else node)
    if schema is None:
        raise SchemaError("there is no zkcoord tree: run `zkcoord migrate upgrade`")
    return schema


def _walk(run: Run, known: Sequence[Revision], schema: Schema, goal: range) -> tuple[str, ...]:
    """Carry out revision after revision, first of all one that broke off; returns those that were carried out.

    `goal`: the places in the line at which the tree may stay.
    """
    layout_name, taken = layout_named(schema.layout).name, []
    while (step := _next(known, schema, goal)) is not None:
        schema = run.step(step, layout_name)
        taken.append(step.revision)
    return tuple(taken)


class _Step(NamedTuple):
    """One revision to be carried out, forwards or back."""

    revision: str
    old: str  # the tree's revision before
    new: str  # and after it
    reads: Callable[[str], tuple[str, ...]]
    change: Change


def _next(known: Sequence[Revision], schema: Schema, goal: range) -> _Step | None:
    """The step from the tree's revision towards the goal; of a migration in progress its own. None: it is there."""
    mark, at = plan.read_mark(schema), _position(known, schema)
    up = [_Step(new.revision, old.revision, new.revision, new.reads, new.upgrade) for old, new in pairwise(known)]
    down = [_Step(new.revision, new.revision, old.revision, new.reads, new.downgrade) for old, new in pairwise(known)]
    if mark is None:
        return None if at in goal else up[at] if at < goal.start else down[at - 1]
    for step in (*up, *down):
        if (step.old, step.new) == (mark.old, mark.new) and step.old == schema.revision:
            return step
    raise SchemaError(
        f"the migration {mark.old} -> {mark.new} (run {mark.run}) is in progress and this program cannot finish it: "
        "resume it with the program, or the command, that began it"
    )


def _position(known: Sequence[Revision], schema: Schema) -> int:
    names = [revision.revision for revision in known]
    if schema.revision not in names:
        raise SchemaError(
            f"the tree is at revision {schema.revision}, which this program (up to {names[-1]}) does not know: "
            "use the newer program"
        )
    return names.index(schema.revision)


def _node(tree: BlockingTree, path: str) -> Node:
    return tree.read([Read(path)])[0]


@dataclass(slots=True, kw_only=True)
class Run:
    """One operator's run. Invariant: `refused` counts the batches since the last one that was committed."""

    tree: BlockingTree
    run_id: str
    tree_id: str
    report: Report
    refused: int = field(default=0)

    def first(self, revisions: Sequence[Revision], layout: Layout, cluster_id: str) -> Schema:
        """Create the first nodes, or find that somebody else did."""
        if not layout.adopts:
            self._refuse_beside_old_consumers()
        while True:
            batch = self._first_batch(revisions, layout, cluster_id)
            schema = current(self.tree)
            if schema is not None:
                return schema
            invariant(bool(batch.writes), f"revision {revisions[0].revision} makes no schema")
            self.commit(batch)

    def _first_batch(self, revisions: Sequence[Revision], layout: Layout, cluster_id: str) -> Transaction:
        """All that the revisions make of an empty tree, at once: there is no schema to mark yet.

        Where nodes of zkcoord are without a schema, only the first revision is carried out in this way.
        """
        rehearsal = Rehearsal(self.tree)
        first = revisions[: 1 if _node(self.tree, ROOT).exists else len(revisions)]
        writes: list[Write] = []
        for revision in first:
            more = revision.upgrade(snapshot(rehearsal, revision.reads(layout.name)), layout.name)
            rehearsal.commit(Transaction(writes=more))
            writes += more
        name = first[-1].revision
        made = plan.with_schema(
            writes,
            lambda schema: plan.from_source(
                replace(schema, revision=name, tree_id=self.tree_id), layout.source, cluster_id
            ),
        )
        return Transaction(writes=made, why=f"revision {name}")

    def _refuse_beside_old_consumers(self) -> None:
        brokers, listed = self.tree.read([Read(KAFKA), Read(LEGACY.groups, Kind.CHILDREN)])
        ids = self.tree.read([Read(LEGACY.ids(group)) for group in listed.children]) if listed.children else ()
        refusal = old_consumers(brokers, ids)
        if refusal is not None:
            raise refusal

    def step(self, step: _Step, layout_name: str) -> Schema:
        """Carry one step out from wherever it stands; returns the schema after it."""
        mark = Mark(old=step.old, new=step.new, run=self.run_id)
        begun, rounds = False, 0
        while True:
            node = _node(self.tree, SCHEMA)
            now = plan.read_schema(node)
            if now is None or node.stat is None:
                raise SchemaError(f"{SCHEMA} is missing: an operator must restore it")
            if now.migration is None and now.revision == mark.new:
                return now
            if now.migration == mark.document():
                begun = True
                rounds += self._work(step, node, mark, layout_name)
                invariant(rounds < ROUNDS_MAX, f"{mark.old} -> {mark.new} asks for writes after all were carried out")
            elif begun or now.revision != mark.old:
                raise FencedError(
                    f"another run took the migration {mark.old} -> {mark.new} over: the tree is at {now.revision}, "
                    f"in progress: {now.migration}"
                )
            else:
                plan.refuse_topics(now, mark.new)  # somebody may have changed their source since this run looked
                self.commit(plan.begin(node, _node(self.tree, EPOCH), mark))

    def _work(self, step: _Step, schema: Node, mark: Mark, layout_name: str) -> bool:
        """What of the step remains; when nothing does, its end. True when all of it was carried out.

        A batch that is not committed ends the round.
        """
        writes = step.change(snapshot(self.tree, step.reads(layout_name)), layout_name)
        invariant(schema.stat is not None, "a marked schema has a version")
        version = -1 if schema.stat is None else schema.stat.version
        for batch in plan.batches(version, mark, writes):
            if not self.commit(batch):
                return False
        return bool(writes) or self.commit(plan.finish(schema, mark, self.tree_id))

    def commit(self, transaction: Transaction) -> bool:
        """Send one batch; False: read again, plan again."""
        done = self.tree.commit(transaction)
        if done.outcome is Outcome.COMMITTED:
            self.refused = 0
            self.report(transaction)
            return True
        path = transaction.writes[done.failed_at].path if done.failed_at >= 0 else "its path"
        if done.reason == "NoAuth":
            raise UsageError(f"ZooKeeper refuses the write of {path}: give this user the right to it (ACL)")
        self.refused += 1
        if self.refused >= ROUNDS_MAX:
            raise UnavailableError(
                f"`{transaction.why}` was not carried out in {ROUNDS_MAX} rounds ({done.reason} at {path}): "
                "stop what writes there, then run it again"
            )
        self.tree.sync()
        return False


def snapshot(tree: BlockingTree, paths: Sequence[str]) -> Mapping[str, Node]:
    """The nodes at these paths, by path; `*` stands for every child, in sorted order."""
    return {node.path: node for node in tree.read([Read(path) for path in _expand(tree, paths)])}


def _expand(tree: BlockingTree, paths: Sequence[str]) -> list[str]:
    found = list(paths)
    while any("/*" in path for path in found):
        parents = {path.partition("/*")[0] or "/" for path in found if "/*" in path}
        answers = tree.read([Read(parent, Kind.CHILDREN) for parent in sorted(parents)])
        children = {node.path: node.children for node in answers}
        step: list[str] = []
        for path in found:
            parent, star, below = path.partition("/*")
            step += [f"{parent}/{name}{below}" for name in children[parent or "/"]] if star else [path]
        found = step
    return list(dict.fromkeys(found))
