"""The first nodes: root, epoch, schema, and the parents of coordinators, group records and groups.

On a tree that old consumers use already, `/consumers` is not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import CreateNode, DeleteNode, Write

revision = "0001"
down_revision = None

OWN = ("/zkcoord", "/zkcoord/epoch", "/zkcoord/schema", "/zkcoord/coordinators", "/zkcoord/groups")
BESIDE = {"draft": ("/consumers", "/consumers/groups"), "legacy": ("/consumers", "/zkcoord/channels")}


def reads(layout_name: str) -> tuple[str, ...]:
    """Return the paths of all nodes that this revision creates, parents first."""
    return OWN + BESIDE[layout_name]


def upgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Create the nodes that are missing."""
    schema = {"version": 1, "revision": revision, "layout": layout_name, "migration": None}
    data = {"/zkcoord/epoch": b"0", "/zkcoord/schema": json.dumps(schema, separators=(",", ":")).encode("ascii")}
    theirs = "/consumers" if layout_name == "legacy" else ""
    missing = [path for path in reads(layout_name) if not snapshot[path].exists]
    return tuple(CreateNode(path, data.get(path, b""), shared=path == theirs) for path in missing)


def downgrade(snapshot: Mapping[str, Node], layout_name: str) -> tuple[Write, ...]:
    """Delete zkcoord's own nodes, children first. `/consumers` stays.

    This fails while nodes of groups or coordinators exist: ZooKeeper deletes no node that has children.
    """
    own = [path for path in reversed(reads(layout_name)) if path.startswith("/zkcoord")]
    ordered = sorted(own, key=lambda path: -path.count("/"))
    found = [snapshot[path] for path in ordered]
    return tuple(DeleteNode(node.path, node.stat.version) for node in found if node.stat is not None)
