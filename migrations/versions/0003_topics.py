"""The schema may say that the tree's topics come from Kafka's metadata.

Nothing is made. Programs at the revision before know only Kafka's own nodes, and must not serve a tree whose topics
come from elsewhere: they would take topics for deleted that are not, and drop their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

revision = "0003"
down_revision = "0002"
serves_before = True


def reads(layout_name: str) -> tuple[str, ...]:
    """Nothing but the schema, which the engine reads."""
    return ()


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Nothing beside the schema."""
    return ()


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Nothing. (The engine refuses it while topics come from Kafka's metadata.)"""
    return ()
