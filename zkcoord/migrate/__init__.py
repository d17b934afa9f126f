"""Moving the tree's schema by revisions: `migrations/versions/`, one file each (docs/protocol.md, section 3)."""

from zkcoord.migrate.engine import BlockingTree, current, upgrade
from zkcoord.migrate.plan import Mark, first_revision_reads, first_revision_writes, read_mark
from zkcoord.migrate.rehearsal import Rehearsal
from zkcoord.migrate.revision import HEAD, Revision, history

__all__ = [
    "HEAD",
    "BlockingTree",
    "Mark",
    "Rehearsal",
    "Revision",
    "current",
    "first_revision_reads",
    "first_revision_writes",
    "history",
    "read_mark",
    "upgrade",
]
