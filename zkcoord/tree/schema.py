"""The only place that reads and writes `/zkcoord/schema` and `/zkcoord/epoch` (revisions write their own bytes)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from zkcoord.errors import CorruptError, SchemaError, invariant
from zkcoord.tree.codec import INT64_MAX, beside, compact, corrupt, read_document
from zkcoord.tree.paths import FROM_ZOOKEEPER, Layout, layout_named
from zkcoord.tree.snapshot import Node

_EPOCH = re.compile(rb"\s*([0-9]{1,19})\s*")

SCHEMAS_KNOWN = 8
"""Number of remembered schemas. A coordinator asks for the schema at each step, and a tree rarely changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tree's revision, its layout, its id, and the migration under way (whose keys belong to the engine).

    `tree_id` is random, and made together with the tree. A copy of a tree gets another id, so that marks and commits of
    the original do not count in the copy. "": a tree of an earlier release, which has no id yet. `topics` is the source
    of its topics, `zookeeper` or `kafka`. `cluster_id` is the id of the Kafka cluster that they come from; "" before it
    is known, and with `zookeeper`.
    """

    revision: str
    layout: str
    tree_id: str = ""
    topics: str = FROM_ZOOKEEPER
    cluster_id: str = ""
    migration: Mapping[str, Any] | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)  # other keys that a revision wrote; they are kept

    @property
    def place(self) -> Layout:
        """The layout of this tree. Raises UsageError for a layout or a source of topics that this program does not
        know."""
        return layout_named(self.layout, self.topics)


def switch_command(source: str) -> str:
    """The command that switches a tree's topics to this source, as messages print it for people.

    >>> switch_command("kafka")
    'zkcoord migrate topics --to kafka --bootstrap-servers HOST:PORT'
    """
    return f"zkcoord migrate topics --to {source} --bootstrap-servers HOST:PORT"


def encode_schema(schema: Schema) -> bytes:
    """The schema's znode data.

    >>> encode_schema(Schema(revision="0002", layout="draft", tree_id="5e0b"))
    b'{"version":1,"revision":"0002","layout":"draft","tree_id":"5e0b","migration":null}'
    """
    migration = None if schema.migration is None else dict(schema.migration)
    named = {"tree_id": schema.tree_id} if schema.tree_id else {}
    if schema.topics != FROM_ZOOKEEPER:
        named |= {"topics": schema.topics, "cluster_id": schema.cluster_id}
    known = {"version": 1, "revision": schema.revision, "layout": schema.layout, **named, "migration": migration}
    return compact(beside(known, schema.unknown))


@lru_cache(maxsize=SCHEMAS_KNOWN)
def decode_schema(data: bytes) -> Schema:
    """The schema in `data`. Raises CorruptError if there is none. The caller checks whether it serves this revision and
    layout."""
    document = read_document("schema", data)
    document.version()
    migration = document.section("migration")
    return Schema(
        revision=document.text("revision"),
        layout=document.text("layout"),
        tree_id=document.text("tree_id", default=""),
        topics=document.text("topics", default=FROM_ZOOKEEPER),
        cluster_id=document.text("cluster_id", default=""),
        migration=None if document.fields.get("migration") is None else dict(migration.fields),
        unknown=document.unknown("version", "revision", "layout", "tree_id", "topics", "cluster_id", "migration"),
    )


def old_consumers(brokers: Node, registrations: Iterable[Node]) -> SchemaError | None:
    """Why the layout `draft` must not be set up. None: it may be.

    `registrations` are the nodes `/consumers/<g>/ids` of all children of `/consumers`. Tools of old consumers take
    every child of `/consumers` for a group, so the nodes of the layout `draft` break them.
    """
    found = [node.path for node in registrations if node.exists]
    if not brokers.exists or not found:
        return None
    return SchemaError(
        f"old consumers use this tree ({found[0]} is there), and the layout draft would break their tools: set up the "
        "layout that stands beside them, --layout legacy"
    )


@lru_cache(maxsize=SCHEMAS_KNOWN)
def is_newer(data: bytes) -> bool:
    """True when the schema in `data` can be parsed, but has a newer format than this program's.

    >>> is_newer(b'{"version":2}'), is_newer(b'{"version":1}'), is_newer(b"{")
    (True, False, False)
    """
    try:
        return read_document("schema", data).integer("version", low=1, default=1) > 1
    except CorruptError:
        return False


def encode_epoch(epoch: int) -> bytes:
    """The epoch's znode data: decimal text, for people. Writes check the node's version."""
    invariant(0 <= epoch <= INT64_MAX, f"an epoch is never {epoch}")
    return b"%d" % epoch


def decode_epoch(data: bytes) -> int:
    """The epoch in `data`. Raises CorruptError if there is none.

    >>> decode_epoch(b"3")
    3
    """
    match = _EPOCH.fullmatch(data)
    if match is None or int(match[1]) > INT64_MAX:
        raise corrupt("epoch", data, "not a number")
    return int(match[1])
