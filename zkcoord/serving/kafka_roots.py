"""The nodes that every Kafka in ZooKeeper mode makes. Without them there is no Kafka, and every group waits in vain."""

from __future__ import annotations

from zkcoord.serving.topics import Problem
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.snapshot import Node

KAFKA = {BROKERS: "no broker of Kafka has ever registered here", TOPICS: "Kafka keeps no topics here"}

ACT = "give the chroot of Kafka's brokers with ZooKeeper's address, or start Kafka (in ZooKeeper mode) here"


class KafkaRoots:
    """Follows Kafka's own nodes, and tells while one is absent."""

    def __init__(self, tracker: Tracker, problem: Problem) -> None:
        self._tracker, self._problem = tracker, problem
        self._absent: set[str] = set()
        for path in KAFKA:
            tracker.want(path, watch=True, scope=path)

    def take(self, node: Node) -> bool:
        """Take an answer in; False when it is about another node."""
        if node.path not in KAFKA:
            return False
        (self._absent.discard if node.exists else self._absent.add)(node.path)
        whys = [
            f"there is no {path} ({so}): {ACT}; consumers wait" for path, so in KAFKA.items() if path in self._absent
        ]
        self._problem("/brokers", whys[0] if whys else None)  # the first: one cause is one problem
        return True

    def end(self) -> None:
        """Follow them no more."""
        for path in KAFKA:
            self._tracker.unwant(path)
        self._problem("/brokers", None)
