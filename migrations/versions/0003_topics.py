"""The schema may say that the tree's topics come from Kafka's metadata.

No node is created. Programs at the revision before know only Kafka's own nodes. They must not serve a tree whose topics
come from another source: they would think that existing topics were deleted, and drop their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

revision = "0003"
down_revision = "0002"
serves_before = True


def reads(layout_name: str) -> tuple[str, ...]:
    """Return no paths: only the schema is needed, and the engine reads it."""
    return ()


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Return no writes: only the schema changes, and the engine writes it."""
    return ()


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Return no writes. (The engine refuses a downgrade while topics come from Kafka's metadata.)"""
    return ()
