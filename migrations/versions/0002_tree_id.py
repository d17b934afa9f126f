"""The tree gets a random id, by which it differs from a copy of itself.

The engine draws the id, and writes it into the schema of any tree that has none. A downgrade leaves the id in the
schema: commits in Kafka name it, and programs at the revision before keep fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

revision = "0002"
down_revision = "0001"
serves_before = True


def reads(layout_name: str) -> tuple[str, ...]:
    """Return no paths: only the schema is needed, and the engine reads it."""
    return ()


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Return no writes: only the schema changes, and the engine writes it."""
    return ()


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Return no writes: the id stays."""
    return ()
