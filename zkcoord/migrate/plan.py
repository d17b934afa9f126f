"""The writes of a migration as pure functions: its first batch, the batches between, its last. Nothing is read here.

A migration is a term of office (docs/protocol.md, section 3). Its first batch raises the epoch, which deposes the
coordinator, and marks the schema, so that no coordinator stands for election. After that the version of the schema's
node fences the migration: every batch checks the version, and a run that takes over an interrupted migration changes
it. The last batch sets the revision.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zkcoord.errors import CorruptError, SchemaError, UsageError, invariant
from zkcoord.migrate.revision import history
from zkcoord.tree.paths import EPOCH, FROM_ZOOKEEPER, SCHEMA, layout_named
from zkcoord.tree.schema import Schema, decode_epoch, decode_schema, encode_epoch, encode_schema, switch_command
from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import CheckNode, CreateNode, SetNode, Transaction, Write, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A migration in progress, as the schema names it: the old and the new revision (or source of topics), and the
    run."""

    old: str
    new: str
    run: str

    def document(self) -> dict[str, Any]:
        """Return the value of `migration` in the schema."""
        return {"from": self.old, "to": self.new, "run": self.run}


def first_revision_reads(layout_name: str) -> tuple[str, ...]:
    """Return the paths that `first_revision_writes` needs in its snapshot."""
    return history()[0].reads(layout_named(layout_name).name)


KAFKA_TOPICS_SINCE = "0003"
"""The first revision with which topics may come from Kafka's metadata. Programs of earlier revisions do not know this
source."""


def first_revision_writes(
    snapshot: Mapping[str, Node], layout_name: str, tree_id: str, topics: str = FROM_ZOOKEEPER
) -> tuple[Write, ...]:
    """Return the writes of one multi that makes a new tree: they create the missing nodes of the first revision.

    `tree_id`: the id that the tree gets; `topics`: the source of its topics.
    """
    writes = history()[0].upgrade(snapshot, layout_named(layout_name).name)
    return with_schema(writes, lambda schema: from_source(replace(schema, tree_id=tree_id), topics))


def from_source(schema: Schema, topics: str, cluster_id: str = "") -> Schema:
    """Return the schema of a new tree with this source of topics. For Kafka its revision is at least
    KAFKA_TOPICS_SINCE, so that programs that do not know this source refuse the tree.

    `cluster_id`: the id of the topics' cluster; "": Kafka's first answer will tell it. (The revision can be raised here
    because the revisions after the first, up to KAFKA_TOPICS_SINCE, create no nodes.)
    """
    if topics == FROM_ZOOKEEPER:
        return schema
    return replace(schema, topics=topics, cluster_id=cluster_id, revision=max(schema.revision, KAFKA_TOPICS_SINCE))


def new_tree_id() -> str:
    """Return a random id for a tree."""
    return secrets.token_hex(8)


def with_schema(writes: Sequence[Write], change: Callable[[Schema], Schema]) -> tuple[Write, ...]:
    """Return the first revision's writes, with `change` applied to the schema that they create."""
    return tuple(
        write._replace(data=encode_schema(change(decode_schema(write.data))))
        if isinstance(write, CreateNode) and write.path == SCHEMA
        else write
        for write in writes
    )


def read_schema(node: Node) -> Schema | None:
    """Return the schema in the node; None if the node does not exist. CorruptError names its path."""
    if not node.exists:
        return None
    try:
        return decode_schema(node.data)
    except CorruptError as error:
        raise CorruptError(f"{SCHEMA}: {error}; an operator must restore it") from error


def read_mark(schema: Schema) -> Mark | None:
    """Return the migration in progress, or None; SchemaError if this program does not know its keys."""
    if schema.migration is None:
        return None
    values = [schema.migration.get(key) for key in ("from", "to", "run")]
    if not all(isinstance(value, str) for value in values):
        raise SchemaError(f"{SCHEMA}: the migration in progress is of an unknown kind: {dict(schema.migration)}")
    old, new, run = map(str, values)
    return Mark(old=old, new=new, run=run)


def refuse_other(under_way: Mark | None, mark: Mark) -> None:
    """Raise SchemaError if a migration other than the mark's is in progress: only the same migration may be taken
    over."""
    if under_way is not None and (under_way.old, under_way.new) != (mark.old, mark.new):
        raise SchemaError(
            f"another migration is in progress, {under_way.old} -> {under_way.new} (run {under_way.run}): end it first"
        )


def refuse_topics(schema: Schema, revision: str) -> None:
    """Raise UsageError for a revision that does not know the source of the tree's topics."""
    if schema.topics != FROM_ZOOKEEPER and revision < KAFKA_TOPICS_SINCE:
        raise UsageError(
            f"the tree's topics come from {schema.topics!r}, which revision {revision} does not know: run "
            f"`{switch_command(FROM_ZOOKEEPER)}` first"
        )


def begin(schema: Node, epoch: Node, mark: Mark) -> Transaction:
    """Return the first batch: a new epoch, and the mark. It replaces the mark of another run of the same migration,
    which is so taken over. SchemaError if another migration is in progress."""
    before = read_schema(schema)
    fresh = before is None or before.migration is None
    refuse_other(None if before is None else read_mark(before), mark)
    return Transaction(
        writes=_new_term(schema, epoch, lambda found: replace(found, migration=mark.document())),
        why=f"{'begin' if fresh else 'resume'} {mark.old} -> {mark.new}",
    )


def stamp(schema: Node, epoch: Node, revision: str) -> Transaction:
    """Return the only batch of a stamp: a new epoch, and the schema with the revision and without a mark."""
    return Transaction(
        writes=_new_term(schema, epoch, lambda found: replace(found, revision=revision, migration=None)),
        why=f"stamp {revision}",
    )


def _new_term(schema: Node, epoch: Node, change: Callable[[Schema], Schema]) -> tuple[Write, ...]:
    """Return the writes that raise the epoch, which deposes the coordinator, and that change the schema."""
    before = read_schema(schema)
    if before is None or schema.stat is None or epoch.stat is None:
        raise SchemaError(f"{EPOCH if before else SCHEMA} is missing: an operator must restore it")
    try:
        number = decode_epoch(epoch.data)
    except CorruptError as error:
        raise CorruptError(f"{EPOCH}: {error}; an operator must restore it") from error
    return (
        SetNode(EPOCH, encode_epoch(number + 1), epoch.stat.version),
        SetNode(SCHEMA, encode_schema(change(before)), schema.stat.version),
    )


def batches(schema_version: int, mark: Mark, writes: Sequence[Write]) -> Iterator[Transaction]:
    """Return the revision's writes in batches; each batch begins with a check of the schema's version."""
    invariant(
        all(write.path not in (SCHEMA, EPOCH) for write in writes),
        f"revision {mark.new} writes the schema or the epoch: that is the engine's",
    )
    for batch in parts(writes, lambda write: Transaction(writes=(write,)).payload_bytes()):
        yield Transaction(writes=(CheckNode(SCHEMA, schema_version), *batch), why=f"revision {mark.new}")


def finish(schema: Node, mark: Mark, tree_id: str) -> Transaction:
    """Return the last batch: the tree gets the new revision, and coordinators may stand for election again.

    A tree without an id gets `tree_id`.
    """
    before = read_schema(schema)
    if before is None or schema.stat is None:
        raise SchemaError(f"{SCHEMA} is missing: an operator must restore it")
    done = replace(before, revision=mark.new, migration=None, tree_id=before.tree_id or tree_id)
    return Transaction(
        writes=(SetNode(SCHEMA, encode_schema(done), schema.stat.version),), why=f"end {mark.old} -> {mark.new}"
    )
