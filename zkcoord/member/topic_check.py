"""Reports subscribed topics that ZooKeeper does not list, and a wildcard that takes no listed topic. Otherwise a
consumer would wait in silence for a misspelled topic."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.view import Wildcard
from zkcoord.errors import CorruptError
from zkcoord.shell.role import Events
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT, Layout
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.topic_filter import taken

SCOPE = "topics"
BUT_WHERE = {
    False: "or the chroot (that of Kafka's brokers)",
    True: "or the coordinator's --bootstrap-servers",
}
"""What else may be wrong where the topic exists. The key says whether the coordinator mirrors the topics."""

IDLE_MS = 10_000
"""ms that a member with a wildcard must have held nothing before it reads the list of topics, which may be long."""


class TopicCheck:
    """Looks once in each session. It watches nothing: the coordinator sees when a topic is created."""

    def __init__(self, group: str, topics: Sequence[str], wildcard: Wildcard | None, events: Events) -> None:
        self._group, self._topics, self._wildcard, self._events = group, tuple(topics), wildcard, events
        self._layout = DRAFT  # the tree's layout, once it is known
        self._told: set[str] = set()  # missing, when it was last looked for; a wildcard by its regex
        self._idle_since_ms: int | None = None
        self._looks = False  # True while the list is still to be read in this session

    def begin(self, tracker: Tracker, layout: Layout) -> None:
        """The consumer registers in a tree of this layout: have the topics read."""
        self._layout = layout
        self._idle_since_ms, self._looks = None, self._wildcard is not None
        for topic in self._topics:
            tracker.want(layout.topic(topic), scope=SCOPE)

    def member(self, tracker: Tracker, now_ms: int, *, idle: bool) -> None:
        """Read the list of topics if the member has held nothing for `IDLE_MS`. Called at least every sixth of the
        session timeout."""
        if not self._looks:
            return
        if not idle:
            self._looks = False
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        elif now_ms >= self._idle_since_ms + IDLE_MS:
            self._looks = False
            tracker.want(self._layout.topics, Kind.CHILDREN, scope=SCOPE)

    def take(self, node: Node, tracker: Tracker) -> None:
        """Take in a node that was read, if it is about topics."""
        if node.path == self._layout.topics and self._wildcard is not None:
            tracker.unwant(node.path, Kind.CHILDREN)
            self._match(self._wildcard, node.children)
        if not node.path.startswith(self._layout.topic("")):
            return
        tracker.unwant(node.path)
        topic = node.path.removeprefix(self._layout.topic(""))
        if node.exists:
            self._told.discard(topic)
        elif topic not in self._told:
            self._told.add(topic)
            why = f"no {node.path}: create the topic in Kafka, or correct its name, {self._but_where}"
            self._events("topic_missing", {"group": self._group, "topic": topic, "why": why, "level": "warning"})

    @property
    def _but_where(self) -> str:
        return BUT_WHERE[self._layout.mirrored]

    def _match(self, wildcard: Wildcard, topics: Sequence[str]) -> None:
        regex, black_list = wildcard.regex, wildcard.black_list
        try:
            if any(taken(regex, [topic], black_list=black_list) for topic in topics):
                self._told.discard(regex)
                return
            none = f"includes {regex!r}, which none of the" if not black_list else f"excludes {regex!r}, which all"
            why = (
                f"the consumer {none} {len(topics)} topics in ZooKeeper's {self._layout.topics} match (Kafka's internal"
                f" ones do not count): create one in Kafka, or correct the regex, {self._but_where}; waiting for one"
            )
        except CorruptError as error:
            why = f"{error}: nothing is given to this consumer; correct the regex"
        if regex not in self._told:
            self._told.add(regex)
            fields = {"exclude" if black_list else "include": regex}
            self._events("topic_missing", {"group": self._group, **fields, "why": why, "level": "warning"})
