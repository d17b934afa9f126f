"""Kafka's topics as far as they were read: the list of topics, and some topics. Nothing is read or watched here."""

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
        self.changes = 0  # number of readings; the same number means the same answers
        self.listed: frozenset[str] | None = None  # None: topics have no parent node, or it was not read yet
        self._known: dict[str, tuple[TopicInfo, int] | None] = {}
        # topic -> info and czxid; None: the topic does not exist
        self._data: dict[str, bytes] = {}  # data of the topics in `_known`
        self._replicas: dict[str, tuple[bytes, Replicas]] = {}
        # topic -> its data and replicas, once they were asked for

    def take(self, node: Node) -> TopicInfo | None:
        """Take in a topic's node. Returns the topic; None: the topic does not exist.

        Raises CorruptError for a node that cannot be parsed; then the last readable answer still counts.
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
        """Forget everything about a topic."""
        for known in (self._known, self._data, self._replicas):
            known.pop(topic, None)

    def mark(self, topic: str, root_czxid: int) -> Mark | None:
        """The mark of this topic as it is now, with the first incarnation number. None: no such topic is known.

        A mirrored topic is identified only by its id: the czxid of the mirror's node says nothing about the topic.
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
        """True when the list does not name the topic, and the topic's own node, if it was read, does not exist,
        either."""
        return self.listed is not None and topic not in self.listed and self._known.get(topic) is None

    def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The partitions of those of these topics that have any, sorted by topic."""
        known = {topic: self._known.get(topic) for topic in sorted(topics)}
        return {topic: info[0].partitions for topic, info in known.items() if info and info[0].partitions}

    def replicas(self, topics: Iterable[str]) -> dict[str, Replicas]:
        """The replicas of these topics, which must have partitions. They are decoded only when asked for, since few
        groups need them."""
        for topic in topics:
            data = self._data[topic]
            if self._replicas.get(topic, (None,))[0] is not data:
                self._replicas[topic] = data, decode_replicas(data)
        return {topic: self._replicas[topic][1] for topic in topics}
