"""Migrates the tree's schema by revisions; each is a file in `migrations/versions/` (docs/protocol.md, section 3)."""

from zkcoord.migrate.dump import Dump
from zkcoord.migrate.engine import Report, current, downgrade, stamp, upgrade
from zkcoord.migrate.plan import Mark, first_revision_reads, first_revision_writes, new_tree_id, read_mark
from zkcoord.migrate.ports import BlockingTree
from zkcoord.migrate.rehearsal import Rehearsal
from zkcoord.migrate.revision import HEAD, Revision, checkout_folder, history, served
from zkcoord.migrate.template import template

__all__ = [
    "HEAD",
    "BlockingTree",
    "Dump",
    "Mark",
    "Rehearsal",
    "Report",
    "Revision",
    "checkout_folder",
    "current",
    "downgrade",
    "first_revision_reads",
    "first_revision_writes",
    "history",
    "new_tree_id",
    "read_mark",
    "served",
    "stamp",
    "template",
    "upgrade",
]
