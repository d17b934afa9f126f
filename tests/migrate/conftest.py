"""Three revisions: the real first one, one that marks every group, one that changes nothing."""

from pathlib import Path

import pytest

from tests.migrate.memory_tree import write_revision
from zkcoord.migrate import Revision, history

FIRST = Path(__file__).parents[2] / "migrations" / "versions" / "0001_first_nodes.py"

WRITE = "return tuple(SetNode(n.path, {0}, n.stat.version) for n in snapshot.values() if n.data != {0})"


@pytest.fixture
def revisions(tmp_path: Path) -> tuple[Revision, ...]:
    """0001 (real), 0002 (writes "new" into each group's record, and back "old"), 0003 (nothing)."""
    return three(tmp_path, "b'new'")


def three(tmp_path: Path, new: str) -> tuple[Revision, ...]:
    """These revisions; `new` is the bytes that 0002 writes, as Python."""
    (tmp_path / FIRST.name).write_text(FIRST.read_text(encoding="utf-8"), encoding="utf-8")
    write_revision(
        tmp_path,
        "0002",
        "0001",
        title="Groups are new.",
        reads='("/zkcoord/groups/*",)',
        upgrade=WRITE.format(new),
        downgrade=WRITE.format("b'old'"),
    )
    write_revision(tmp_path, "0003", "0002", title="Nothing changes.")
    return history(tmp_path)
