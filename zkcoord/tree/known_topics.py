"""Kafka's topics as far as they were read: the list of them, and some of them. Nothing here reads or watches."""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.core.racks import Replicas
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic import MIRRORED_CZXID, Mark, TopicInfo, decode_replicas, topic_of


class KnownTopics:
    """The topics that were read."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.changes = 0  # counts what was read; equal numbers, equal answers
        self.listed: frozenset[str] | None = None  # None: there is no parent of topics, or it was not read yet
        self._known: dict[str, tuple[TopicInfo, int] | None] = {}  # topic -> info and czxid; None: there is none
        self._data: dict[str, bytes] = {}  # of what is known
        self._replicas: dict[str, tuple[bytes, Replicas]] = {}  # topic -> data, and what stands there, once asked for

    def take(self, node: Node) -> TopicInfo | None:
        """Take a topic's node in; return the topic, None: there is no such topic.

        CorruptError for a node that nobody can parse; the last readable answer still holds.
        """
        topic = node.path[len(self.layout.topics) + 1 :]
        if node.stat is None:
            self._known[topic] = None
            return None
        self._known.setdefault(topic, None)
        info = topic_of(topic, node.data)
        self._known[topic], self._data[topic] = (info, node.stat.czxid), node.data
        return info

    def drop(self, topic: str) -> None:
        """Forget all that is known of a topic."""
        for known in (self._known, self._data, self._replicas):
            known.pop(topic, None)

    def mark(self, topic: str, root_czxid: int) -> Mark | None:
        """The mark of this topic as it is now, as its first incarnation; None: no such topic is known.

        A mirrored topic is known by its id alone: the czxid of the mirror's node tells nothing of the topic.
        """
        known = self._known.get(topic)
        if known is None:
            return None
        info, czxid = known
        czxid = MIRRORED_CZXID if self.layout.mirrored else czxid
        return Mark(incarnation=1, topic_id=info.topic_id, czxid=czxid, root_czxid=root_czxid)

    def marks(self, topics: Iterable[str], root_czxid: int) -> dict[str, Mark]:
        """The marks of those of these topics that are known."""
        marks = {topic: self.mark(topic, root_czxid) for topic in topics}
        return {topic: mark for topic, mark in marks.items() if mark is not None}

    def deleted(self, topic: str) -> bool:
        """True when the list says that there is no such topic, and a topic that was asked for was not found either."""
        return self.listed is not None and topic not in self.listed and self._known.get(topic) is None

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The partitions of those of these topics that have any, in the topics' order."""
        known = {topic: self._known.get(topic) for topic in sorted(topics)}
        return {topic: info[0].partitions for topic, info in known.items() if info and info[0].partitions}

    def replicas(self, topics: Iterable[str]) -> dict[str, Replicas]:
        """The replicas of these topics, of which there are partitions: decoded when asked for, which few groups do."""
        for topic in topics:
            data = self._data[topic]
            if self._replicas.get(topic, (None,))[0] is not data:
                self._replicas[topic] = data, decode_replicas(data)
        return {topic: self._replicas[topic][1] for topic in topics}
