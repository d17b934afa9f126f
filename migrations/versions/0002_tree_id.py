"""The tree gets a random id, by which it differs from a copy of itself.

The engine draws it, and writes it into the schema of any tree that has none. The way back leaves it there: commits in
Kafka name it, and programs at the revision before keep what they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import Write

revision = "0002"
down_revision = "0001"
serves_before = True


def reads(layout_name: str) -> tuple[str, ...]:
    """Nothing but the schema, which the engine reads."""
    return ()


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Nothing beside the schema."""
    return ()


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Nothing: the id stays."""
    return ()
