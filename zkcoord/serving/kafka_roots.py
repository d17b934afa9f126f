"""The nodes that every Kafka in ZooKeeper mode makes. Without them there is no Kafka, and every group waits in vain."""

from __future__ import annotations

from zkcoord.serving.topics import Problem
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import BROKERS, KAFKA, TOPICS
from zkcoord.tree.snapshot import Node

MEANINGS = {BROKERS: "no broker of Kafka has ever registered here", TOPICS: "Kafka keeps no topics here"}
"""What the absence of each node means; the first one is told: one cause is one problem."""

ACT = "give the chroot of Kafka's brokers with ZooKeeper's address, or start Kafka (in ZooKeeper mode) here"


class KafkaRoots:
    """Follows Kafka's own nodes, and tells while one is absent."""

    def __init__(self, tracker: Tracker, problem: Problem) -> None:
        self._tracker, self._problem = tracker, problem
        self._absent: set[str] = set()
        for path in MEANINGS:
            tracker.want(path, watch=True, scope=path)

    def take(self, node: Node) -> bool:
        """Take an answer in; False when it is about another node."""
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
        """Follow them no more."""
        for path in MEANINGS:
            self._tracker.unwant(path)
        self._problem(KAFKA, None)
