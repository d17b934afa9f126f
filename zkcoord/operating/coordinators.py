"""The coordinators that stand for election, and the request to resign."""

from __future__ import annotations

import time
from typing import Any

from zkcoord.errors import UsageError
from zkcoord.group_report import TreeReport, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.operating.requesting import TURN_SECONDS, by_version, who_and_when
from zkcoord.tree.candidate import asked_to_resign, describe, protocols_of, with_resign
from zkcoord.tree.paths import CANDIDATES
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import SetNode, Write

ELECTION_SECONDS = 30.0


def coordinator_documents(tree: BlockingTree, above: TreeReport) -> list[dict[str, Any]]:
    """Return what each coordinator's node says, by number."""
    return [_document(node, above.coordinator, above.epoch) for node in candidates(tree)]


def _document(node: Node, serving: str | None, epoch: int | None) -> dict[str, Any]:
    number = node.path.rpartition("/")[2]
    said = describe(node.data)
    resigning = asked_to_resign(node.data) is not None
    serves = number == serving
    return {
        "coordinator": number,
        "state": "resigning" if resigning else "serving" if serves else "standing by",
        "epoch": epoch if serves else None,
        **{key: said.get(key) for key in ("host", "pid", "version")},
        "protocols": "-".join(map(str, protocols_of(node.data))),
        "since": said.get("since"),
    }


def candidates(tree: BlockingTree) -> list[Node]:
    """Return the candidates' nodes, by number."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    names = sorted(listed.children, key=lambda name: (len(name), name))
    nodes = tree.read([Read(f"{CANDIDATES}/{name}") for name in names]) if names else ()
    return [node for node in nodes if node.exists]


def ask_to_resign(tree: BlockingTree, path: str, number: int) -> int:
    """Set `resign` in the candidate's node. Return the node's czxid."""

    def attempt() -> tuple[int, Write | None]:
        (node,) = tree.read([Read(path)])
        if node.stat is None:
            raise UsageError(f"there is no coordinator {number}; `zkcoord coordinators list` shows them")
        if asked_to_resign(node.data) is not None:
            return node.stat.czxid, None
        return node.stat.czxid, SetNode(path, with_resign(node.data, who_and_when()), node.stat.version)

    return by_version(tree, path, "resign", attempt)


def successor(tree: BlockingTree, address: str) -> str | None:
    """Return the coordinator that serves, as soon as there is one; None if there is none after `ELECTION_SECONDS`. An
    election takes milliseconds."""
    end = time.monotonic() + ELECTION_SECONDS
    while (now := read_tree(tree, address).coordinator) is None and time.monotonic() < end:
        time.sleep(TURN_SECONDS)
    return now
