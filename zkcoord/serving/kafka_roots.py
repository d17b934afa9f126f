"""The nodes that every Kafka in ZooKeeper mode creates. Without them there is no Kafka, and all groups wait."""

from __future__ import annotations

from zkcoord.serving.topics import Problem
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import BROKERS, KAFKA, TOPICS
from zkcoord.tree.snapshot import Node

MEANINGS = {BROKERS: "no broker of Kafka has ever registered here", TOPICS: "Kafka keeps no topics here"}
"""What the absence of each node means. Only the first missing one is reported, since both have one cause."""

ACT = "give the chroot of Kafka's brokers with ZooKeeper's address, or start Kafka (in ZooKeeper mode) here"


class KafkaRoots:
    """Follows these nodes of Kafka, and reports an absent one."""

    def __init__(self, tracker: Tracker, problem: Problem) -> None:
        self._tracker, self._problem = tracker, problem
        self._absent: set[str] = set()
        for path in MEANINGS:
            tracker.want(path, watch=True, scope=path)

    def take(self, node: Node) -> bool:
        """Take in a node that was read. Returns False if it is another node."""
        if node.path not in MEANINGS:
            return False
        if node.exists:
            self._absent.discard(node.path)
        else:
            self._absent.add(node.path)
        first = next((path for path in MEANINGS if path in self._absent), None)
        why = None if first is None else f"there is no {first} ({MEANINGS[first]}): {ACT}; consumers wait"
        self._problem(KAFKA, why)
        return True

    def end(self) -> None:
        """Stop following the nodes."""
        for path in MEANINGS:
            self._tracker.unwant(path)
        self._problem(KAFKA, None)
