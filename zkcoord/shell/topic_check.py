"""Tells of subscribed topics that ZooKeeper does not list: a misspelled one would be waited for in silence."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.shell.loop import Events
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import TOPICS
from zkcoord.tree.snapshot import Node

SCOPE = "topics"
BELOW = f"{TOPICS}/"


class TopicCheck:
    """Looks once in each session. Watches nothing: that a topic comes to be is the coordinator's to see."""

    def __init__(self, group: str, topics: Sequence[str], events: Events) -> None:
        self._group, self._topics, self._events = group, tuple(topics), events
        self._told: set[str] = set()  # missing, when it was last looked for

    def begin(self, tracker: Tracker) -> None:
        """Have the topics read."""
        for topic in self._topics:
            tracker.want(f"{BELOW}{topic}", scope=SCOPE)

    def take(self, node: Node, tracker: Tracker) -> None:
        """Take in an answer, if it is about a topic."""
        if not node.path.startswith(BELOW):
            return
        tracker.unwant(node.path)
        topic = node.path.removeprefix(BELOW)
        if node.exists:
            self._told.discard(topic)
        elif topic not in self._told:
            self._told.add(topic)
            why = (
                f"there is no {node.path} in ZooKeeper: create the topic in Kafka, or correct its name, or the chroot"
                " (it must be that of Kafka's brokers); waiting for it"
            )
            self._events("topic_missing", {"group": self._group, "topic": topic, "why": why, "level": "warning"})
