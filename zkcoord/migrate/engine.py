"""Migrates a tree to a revision: it reads, plans, sends one batch, and reads again.

Nothing is remembered between two batches. After a refused or unknown batch it reads and plans again. So the next run
resumes a run that was interrupted anywhere. Only the mark in the schema decides which run may write.
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
"""How many batches in a row may be refused or have an unknown outcome before the run ends with an error."""

Report = Callable[[Transaction], None]


def current(tree: BlockingTree) -> Schema | None:
    """Return the tree's schema: revision, layout, and the migration in progress. None: there is no zkcoord tree yet."""
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
    """Bring the tree to `goal`; return the revisions that were carried out, oldest first (none: it was there already).

    `layout`: the layout of a new tree (None: draft); an existing tree must have this layout. `topics`: the source of a
    new tree's topics; `cluster_id`: the cluster that they are of ("": not known yet). With the source `kafka`, `goal`
    must be a revision that knows this source. `run_id` must be unique, and should show people whose run it is.
    `tree_id`: the id for a tree that has none (None: a random id). A migration that was interrupted is finished first.
    `report` is called with each batch that was carried out.

    SchemaError: the tree is newer than this program, or has another layout. FencedError: another run took over.
    UnavailableError: too many batches in a row were refused or unknown, since others write to the tree.
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
    """Bring the tree back to `goal`, an earlier revision; return the revisions that were undone (none: it was there).

    Like `upgrade`, in the other direction. A migration that was interrupted is finished first, in its own direction.
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
    """Set the schema to revision `goal` without a migration in progress, and change nothing else but the epoch. False:
    the schema was like that already.

    This is for an operator who has repaired the tree by hand. A run in progress can write nothing after it. UsageError
    for a revision that does not know the source of the tree's topics.
    """
    known = tuple(history() if revisions is None else revisions)
    name = known[reach(known, goal)].revision
    run = Run(tree=tree, run_id="", tree_id=plan.new_tree_id(), report=report)
    changed = False
    while True:
        node, epoch = tree.read([Read(SCHEMA), Read(EPOCH)])
        schema = _there(tree, node)
        _next(known, schema, range(len(known)))  # SchemaError for a schema that this program does not know
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
    """Carry out one revision after the other, first the one that was interrupted; return those that were carried out.

    `goal`: the indices of the revisions at which the tree may stay.
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
    """Return the next step towards the goal; if a migration is in progress, return its step. None: the tree is
    there."""
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
        """Create the first nodes, and return the schema. Another program may have created them meanwhile."""
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
        """Return all writes of the revisions for an empty tree as one batch, since there is no schema to mark yet.

        If there are nodes of zkcoord but no schema, the batch has the writes of the first revision only.
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
        """Carry out one step, also one that is partly done; return the schema after it."""
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
                plan.refuse_topics(now, mark.new)  # the topics' source may have changed since this run read it
                self.commit(plan.begin(node, _node(self.tree, EPOCH), mark))

    def _work(self, step: _Step, schema: Node, mark: Mark, layout_name: str) -> bool:
        """Carry out the rest of the step; if nothing is left, its last batch, which sets the revision. True if all
        batches were committed; it stops at the first that is not.
        """
        writes = step.change(snapshot(self.tree, step.reads(layout_name)), layout_name)
        invariant(schema.stat is not None, "a marked schema has a version")
        version = -1 if schema.stat is None else schema.stat.version
        for batch in plan.batches(version, mark, writes):
            if not self.commit(batch):
                return False
        return bool(writes) or self.commit(plan.finish(schema, mark, self.tree_id))

    def commit(self, transaction: Transaction) -> bool:
        """Send one batch. False: it was refused or its outcome is unknown, so read and plan again."""
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
    """Return path -> node for these paths; `*` in a path stands for every child, in sorted order."""
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
