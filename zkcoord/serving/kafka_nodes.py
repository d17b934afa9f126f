"""Everything that a coordinator follows of Kafka in one term: topics, brokers, and the source of the topics."""

from __future__ import annotations

from zkcoord.errors import invariant
from zkcoord.serving.asker import Asker
from zkcoord.serving.brokers import BrokerTable
from zkcoord.serving.brokers_watch import BrokersWatch, follows
from zkcoord.serving.controllers_watch import ControllersWatch
from zkcoord.serving.election import Election
from zkcoord.serving.kafka_roots import KafkaRoots
from zkcoord.serving.topic_mirror import TopicMirror
from zkcoord.serving.topics import Problem, TopicTable
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone
from zkcoord.tree.paths import Layout
from zkcoord.tree.plan import Term
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Node


class KafkaNodes:
    """The tables of one term, and the mirror behind them where topics come from Kafka's metadata."""

    def __init__(self, loop: Loop, layout: Layout, problem: Problem, asker: Asker | None, election: Election) -> None:
        """`asker` asks Kafka; None where topics come from ZooKeeper and no brokers were named. `election` is that of
        the term."""
        tracker = loop.tracker
        self.mirror: TopicMirror | None = None
        self._roots: KafkaRoots | None = None
        self._watch: BrokersWatch | None = None
        if layout.mirrored:
            invariant(asker is not None, "topics come from Kafka's metadata, and nobody asks Kafka")
        if layout.mirrored and asker is not None:
            self.mirror = TopicMirror(loop, layout, asker, problem, self._in_tables, lambda: self.topics.named)
        else:
            self._roots = KafkaRoots(tracker, problem)
            self._watch = BrokersWatch(tracker, problem, asker)
        self._controllers = ControllersWatch(loop, problem, election)
        self.topics = TopicTable(tracker, layout, problem, self._shared)
        self.brokers = BrokerTable(tracker, layout, problem, self._shared)

    def _shared(self, path: str) -> bool:
        """True if something beside the tables also follows this node."""
        return follows(path) if self.mirror is None else self.mirror.follows(path)

    def _in_tables(self, path: str) -> bool:
        """True if the table of topics wants this node, whether or not the mirror follows it."""
        return self.topics.follows(path)

    @property
    def leaving(self) -> bool:
        """True while topics come from ZooKeeper and Kafka's brokers leave it, or have left it."""
        return self._watch is not None and self._watch.leaving

    @property
    def silent(self) -> bool:
        """True while the KRaft controllers that move Kafka's brokers write nothing to ZooKeeper."""
        return self._controllers.silent

    @property
    def whole(self) -> bool:
        """True when a topic that is missing in the tree is missing in Kafka, too, as far as this coordinator knows."""
        return self.mirror is None or self.mirror.whole

    def take(self, node: Node) -> set[str] | None:
        """Take in a node that was read. Returns the groups that it may concern; None: it is about something else."""
        if self.mirror is not None:
            self.mirror.take(node)
        if self._watch is not None:
            self._watch.take(node)
        self._controllers.take(node)
        if self.topics.about(node):
            return self.topics.read(node)
        if self.brokers.about(node):
            return self.brokers.read(node)
        return set() if self._roots is not None and self._roots.take(node) else None

    def called(self, done: CallDone) -> None:
        """Take in an answer of Kafka."""
        for asking in (self.mirror, self._watch):
            if asking is not None:
                asking.called(done)

    def advance(self, term: Term, schema: tuple[Schema, int], now_ms: int) -> int | None:
        """Ask and write whatever is due. Returns when to be called again."""
        due = [self._controllers.advance(now_ms)]
        if self.mirror is not None:
            due.append(self.mirror.advance(term, schema, now_ms))
        if self._watch is not None:
            due.append(self._watch.advance(now_ms))
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def forget(self, group: str) -> None:
        """Forget the group: it is gone."""
        self.topics.forget(group)
        self.brokers.use(group, wanted=False)

    def end(self) -> None:
        """Stop following all nodes."""
        for following in (self._roots, self._watch, self._controllers):
            if following is not None:
                following.end()
        self.topics.end()
        if self.mirror is not None:
            self.mirror.end()
