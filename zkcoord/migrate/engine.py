"""Moves a tree to a revision: reads, asks the plan, sends one batch, reads again.

Nothing is remembered between two batches: a refused or unknown one means read again and plan again, so that a run which
broke off anywhere is resumed by the next one. Who may write is decided by the schema's mark alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zkcoord.errors import FencedError, SchemaError, UnavailableError, UsageError, invariant
from zkcoord.migrate import plan
from zkcoord.migrate.plan import Mark
from zkcoord.migrate.revision import HEAD, Revision, history, reach
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import DRAFT, EPOCH, KAFKA, LEGACY, SCHEMA, layout_named
from zkcoord.tree.schema import Schema, old_consumers
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import Transaction

ROUNDS_MAX = 20
"""How often in a row a batch may be refused, or its outcome be unknown, before a person must look."""

Report = Callable[[Transaction], None]


class BlockingTree(Protocol):
    """What a migration needs of ZooKeeper; each call waits for its answer or raises UnavailableError or UsageError."""

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]: ...

    def commit(self, transaction: Transaction) -> CommitDone: ...

    def sync(self) -> None: ...


def current(tree: BlockingTree) -> Schema | None:
    """The tree's revision and layout, and the migration in progress; None: there is no zkcoord tree yet."""
    return plan.read_schema(_node(tree, SCHEMA))


def upgrade(
    tree: BlockingTree,
    *,
    run_id: str,
    goal: str = HEAD,
    layout: str | None = None,
    revisions: Sequence[Revision] | None = None,
    report: Report = lambda _: None,
) -> tuple[str, ...]:
    """Bring the tree to `goal`; returns the revisions that it took, oldest first (none: it was there).

    `layout`: of a new tree (None: draft); of an existing one it must be the same. `run_id` is this run's alone, and
    should tell people whose. A migration that broke off is finished first. `report` is told of each batch carried out.
    SchemaError: the tree is newer than this program, or has another layout. FencedError: another run took over.
    UnavailableError: the tree changes faster than it can be migrated.
    """
    known = tuple(history() if revisions is None else revisions)
    target = reach(known, goal)
    taken: list[str] = []
    run = _Run(tree=tree, run_id=run_id, report=report)
    schema = current(tree)
    if schema is None:
        layout_name = layout_named(layout or DRAFT.name).name
        schema = run.first(known[0], layout_name)
        taken.append(known[0].revision)
    if layout is not None and layout_named(layout).name != schema.layout:
        raise SchemaError(f"the tree has the layout {schema.layout!r}, not {layout!r}; a tree keeps its layout")
    layout_name = layout_named(schema.layout).name
    at = _position(known, schema)
    if at > target and plan.read_mark(schema) is None:
        raise UsageError(f"the tree is at revision {schema.revision}, {goal} lies before it: upgrade goes forward only")
    while at < target or plan.read_mark(schema) is not None:
        revision = _next(known, schema, at)
        schema = run.revision(revision, schema, layout_name)
        taken.append(revision.revision)
        at = _position(known, schema)
    return tuple(taken)


def _position(known: Sequence[Revision], schema: Schema) -> int:
    names = [revision.revision for revision in known]
    if schema.revision not in names:
        raise SchemaError(
            f"the tree is at revision {schema.revision}, which this program (up to {names[-1]}) does not know: "
            "use the newer program"
        )
    return names.index(schema.revision)


def _next(known: Sequence[Revision], schema: Schema, at: int) -> Revision:
    """The revision after the tree's; of a migration in progress it must be the one that the mark names."""
    mark = plan.read_mark(schema)
    if mark is None:
        return known[at + 1]
    if at + 1 < len(known) and (mark.old, mark.new) == (schema.revision, known[at + 1].revision):
        return known[at + 1]
    raise SchemaError(
        f"the migration {mark.old} -> {mark.new} (run {mark.run}) is in progress and this program cannot finish it: "
        "resume it with the program that began it"
    )


def _node(tree: BlockingTree, path: str) -> Node:
    return tree.read([Read(path)])[0]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One operator's run. Invariant: `refused` counts the batches since the last one that was committed."""

    tree: BlockingTree
    run_id: str
    report: Report
    refused: int = field(default=0)

    def first(self, revision: Revision, layout_name: str) -> Schema:
        """Create the first nodes, or find that somebody else did."""
        if not layout_named(layout_name).adopts:
            self._refuse_beside_old_consumers()
        while True:
            batch = plan.first_batch(revision, snapshot(self.tree, revision.reads(layout_name)), layout_name)
            schema = current(self.tree)
            if schema is not None:
                return schema
            invariant(batch is not None, f"revision {revision.revision} makes no schema")
            if batch is not None:
                self._commit(batch)

    def _refuse_beside_old_consumers(self) -> None:
        brokers, listed = self.tree.read([Read(KAFKA), Read(LEGACY.groups, Kind.CHILDREN)])
        ids = self.tree.read([Read(LEGACY.ids(group)) for group in listed.children]) if listed.children else ()
        refusal = old_consumers(brokers, ids)
        if refusal is not None:
            raise refusal

    def revision(self, revision: Revision, schema: Schema, layout_name: str) -> Schema:
        """Carry one revision out from wherever it stands; returns the schema after it."""
        mark = Mark(old=schema.revision, new=revision.revision, run=self.run_id)
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
                rounds += self._work(revision, node, mark, layout_name)
                invariant(rounds < ROUNDS_MAX, f"revision {mark.new} asks for writes again after all were carried out")
            elif begun or now.revision != mark.old:
                raise FencedError(f"another run took the migration {mark.old} -> {mark.new} over: {now.migration}")
            else:
                self._commit(plan.begin(node, _node(self.tree, EPOCH), mark))

    def _work(self, revision: Revision, schema: Node, mark: Mark, layout_name: str) -> bool:
        """What of the revision remains; when nothing does, its end. True when all of it was carried out.

        A batch that is not committed ends the round.
        """
        seen = snapshot(self.tree, revision.reads(layout_name))
        writes = revision.upgrade(seen, layout_name)
        invariant(schema.stat is not None, "a marked schema has a version")
        version = -1 if schema.stat is None else schema.stat.version
        for batch in plan.batches(version, mark, writes):
            if not self._commit(batch):
                return False
        return bool(writes) or self._commit(plan.finish(schema, mark))

    def _commit(self, transaction: Transaction) -> bool:
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
                "stop what writes there, then run `zkcoord migrate upgrade` again"
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
