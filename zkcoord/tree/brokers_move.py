"""The only place that reads the nodes that a move of Kafka's brokers to KRaft (KIP-866) writes into ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from zkcoord.tree.broker import broker_id
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, CONTROLLER, FROM_KAFKA, MIGRATION
from zkcoord.tree.schema import Schema, switch_command
from zkcoord.tree.snapshot import Kind, Node, Read

READS = (Read(MIGRATION), Read(CONTROLLER), Read(BROKERS, Kind.CHILDREN))

MEND = f"run `{switch_command(FROM_KAFKA)}`, and start its coordinators as it says"

SILENT_MS = 30_000
"""ms without a write after which the controllers count as silent. Controllers write every second or two, and a new
leader begins within seconds."""

KEEP_STILL = "take no step of the move, on or back, and restart no broker; see the log of the controller that leads"

SILENT = (
    f"the KRaft controllers have told ZooKeeper nothing for {SILENT_MS // 1000} s, nor Kafka's brokers that still use "
    f"it: {KEEP_STILL}, and docs/kraft.md (When the controllers do not write to ZooKeeper)"
)


class BrokersMove(Enum):
    """The state of the move."""

    MOVING = "moving"  # a KRaft controller leads, and some brokers still use ZooKeeper
    MOVED = "moved"  # no broker uses ZooKeeper any more; the controller may still write topics, or not


WORDS = {
    BrokersMove.MOVING: "Kafka's brokers are being moved to KRaft: after the last step nobody writes /brokers/topics "
    f"any more. Before it {MEND}",
    BrokersMove.MOVED: "Kafka's brokers have left ZooKeeper for KRaft: what stands in /brokers/topics is stale, or "
    f"will be after the last step of the move. Now {MEND}",
}


def move_of(nodes: Sequence[Node]) -> BrokersMove | None:
    """The state of the move, by the answers to `READS`. None: none has begun, or it was taken back."""
    migration, controller, brokers = nodes
    if _number(migration, "kraft_controller_id") < 0 and _number(controller, "kraftControllerEpoch") < 0:
        return None
    return BrokersMove.MOVING if registered(brokers) else BrokersMove.MOVED


def registered(brokers: Node) -> bool:
    """True when the list of brokers names one, so that it uses this ZooKeeper."""
    return any(broker_id(name) is not None for name in brokers.children)


def written_until(migration: Node) -> int:
    """The offset in the controllers' log up to which they have written to ZooKeeper, by their own node; -1: none.

    A failing controller also writes the node again and again, with the same offset (F238).
    """
    return _number(migration, "kraft_metadata_offset")


@dataclass(frozen=True, slots=True)
class Written:
    """The controllers have written to ZooKeeper up to the offset `until`, and nothing after it since `since_ms`."""

    until: int
    since_ms: int


def written(before: Written | None, migration: Node, now_ms: int) -> Written:
    """Return the controllers' state by their present node; `before` itself if they have written nothing since."""
    until = written_until(migration)
    return Written(until, now_ms) if before is None or until != before.until else before


def cluster_id_of(node: Node) -> str | None:
    """The cluster's id in Kafka's own node. None: nobody has written one."""
    named = _document(node).get("id")
    return named if isinstance(named, str) else None


def cluster_of(schema: Schema | None, node: Node) -> str | None:
    """The cluster whose topics the tree has. None: nobody has written it.

    The schema names it if topics come from Kafka; otherwise Kafka's own node does (`node`, of CLUSTER_ID).
    """
    if schema is not None and schema.topics == FROM_KAFKA:
        return schema.cluster_id or None
    return cluster_id_of(node)


def unregistered(numbers: Sequence[int]) -> str:
    """Say that these brokers answer, and do not use this ZooKeeper."""
    named = ", ".join(map(str, numbers))
    return f"Kafka answers (brokers {named}), and no broker is in {BROKERS}: topics here may be stale. Now {MEND}"


def confused(told: str, named: str) -> str:
    """Say that ZooKeeper and the bootstrap servers belong to two clusters."""
    return (
        f"the bootstrap servers are of the cluster {told!r}, {CLUSTER_ID} says {named!r}: correct --bootstrap-servers, "
        "or ZooKeeper's address and chroot"
    )


def _number(node: Node, key: str) -> int:
    value = _document(node).get(key)
    return value if type(value) is int else -1


def _document(node: Node) -> Mapping[str, object]:
    try:
        found = json.loads(node.data) if node.exists and node.data else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
