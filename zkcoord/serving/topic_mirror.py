"""The coordinator's mirror of Kafka's topics: it follows the mirrored nodes in the tree, asks Kafka, and writes what
changed.

It asks one question at a time, and only while the whole mirror has been read and no write is under way. So each answer
is compared with the present nodes. `core/topic_mirror.py` decides what an answer means.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import TypeVar

from zkcoord.core.topic_answers import Answer, Broker, Question, Silent
from zkcoord.core.topic_answers import Kind as Asked
from zkcoord.core.topic_mirror import Change, Memory, Mirror, NameCluster, PutTopic, RemoveTopic, Topic, take
from zkcoord.core.topic_questions import next_question, question_between
from zkcoord.errors import ZkcoordError
from zkcoord.serving.asker import Asker
from zkcoord.serving.topics import Problem
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone
from zkcoord.tree.broker import broker_id
from zkcoord.tree.brokers_move import cluster_id_of
from zkcoord.tree.paths import CLUSTER_ID, EPOCH, SCHEMA, Layout
from zkcoord.tree.plan import Term
from zkcoord.tree.schema import Schema, encode_schema
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.topic_mirror import (
    MirrorRoot,
    decode_mirrored,
    decode_mirrored_broker,
    decode_root,
    parents_of,
    writes_of,
)
from zkcoord.tree.writes import CheckNode, SetNode, Transaction, Write, parts

MIRROR = "mirror"  # scope of the mirror's parents and brokers, and lane of its writes
KAFKA = "Kafka's metadata"  # name under which a problem with the answers is reported

IDLE_SHARE = 4
"""The pause after an answer, as a multiple of the time that the answer took. So lists and checks of all ids take at
most a fifth of the time, however large the cluster is. The small questions between them take at most as much."""


PAUSE_MS_MAX = 10_000
"""ms: the longest such pause. Without it one late answer would delay the next look by most of a minute."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class TopicMirror:
    """The mirror of one term. Only the coordinator writes below its parents."""

    def __init__(
        self,
        loop: Loop,
        layout: Layout,
        asker: Asker,
        problem: Problem,
        wanted: Callable[[str], bool],
        named: Callable[[], Set[str]] = frozenset,
    ) -> None:
        """`problem` is told what is wrong with Kafka's answers, or None. `wanted(path)` returns True if a table wants
        this topic. `named` returns the topics that groups subscribe to by name."""
        self._loop, self._layout, self._asker, self._problem = loop, layout, asker, problem
        self._wanted, self._named = wanted, named
        self._nodes: dict[str, Node] = {}
        self._topics: dict[str, Topic] = {}
        self._brokers: dict[int, Broker] = {}
        self._listed: dict[str, frozenset[str]] = {}  # parent -> names below it that are followed
        self._root = MirrorRoot()
        self._beside = ""  # id of the cluster whose brokers use this ZooKeeper, if known
        self._memory = Memory()
        self._token: int | None = None  # number of the question that has no answer yet
        self._kind = Asked.LIST  # kind of the last question
        self._asked_ms = 0
        self._answer: Answer | None = None  # an answer that was not taken in yet
        self._between = False  # True if the last question was a small one, between two others
        self._next_ms = 0  # when the next question for a list or for descriptions is due
        self._between_ms = 0  # when the next small question is due
        tracker = loop.tracker
        tracker.want(CLUSTER_ID, watch=True, scope=MIRROR)
        for parent in (layout.topics, layout.brokers):
            tracker.want(parent, scope=MIRROR, by_writes=True)
            tracker.want(parent, Kind.CHILDREN, watch=True, scope=parent)

    def follows(self, path: str) -> bool:
        """True for all nodes of the mirror, and for its parents."""
        parent, _, name = path.rpartition("/")
        return path in self._listed or name in self._listed.get(parent, ())

    @property
    def whole(self) -> bool:
        """True once every topic was mirrored. Before that, a topic that is missing here may exist in Kafka."""
        return self._root.whole

    def end(self) -> None:
        """Stop following all nodes."""
        tracker = self._loop.tracker
        tracker.unwant(CLUSTER_ID)
        for parent in (self._layout.topics, self._layout.brokers):
            tracker.unwant(parent)
            tracker.unwant(parent, Kind.CHILDREN)
            for name in self._listed.get(parent, ()):
                tracker.unwant(f"{parent}/{name}")
        self._problem(KAFKA, None)

    # what comes in

    def take(self, node: Node) -> None:
        """Take in a node that was read, if it is about the mirror."""
        topics, brokers = self._layout.topics, self._layout.brokers
        if node.path == CLUSTER_ID:
            self._beside = cluster_id_of(node) or ""
            return
        if node.path in (topics, brokers):
            if node.kind is Kind.CHILDREN:
                self._follow(node)
                return
            self._nodes[node.path] = node
            if node.path == topics:
                self._root = decode_root(node.data) if node.exists else MirrorRoot()
            return
        self._note(node)

    def _note(self, node: Node) -> None:
        """Note the present state of a topic or a broker."""
        parent, _, name = node.path.rpartition("/")
        if parent == self._layout.topics:
            _keep(self._topics, name, decode_mirrored(node.data) if node.exists else None)
        elif parent == self._layout.brokers and (number := broker_id(name)) is not None:
            _keep(self._brokers, number, decode_mirrored_broker(node.data) if node.exists else None)
        else:
            return
        _keep(self._nodes, node.path, node if node.exists else None)

    def _follow(self, listed: Node) -> None:
        tracker, topics = self._loop.tracker, self._layout.topics
        before, now = self._listed.get(listed.path, frozenset()), frozenset(listed.children)
        self._listed[listed.path] = now
        for name in sorted(before - now):
            path = f"{listed.path}/{name}"
            if not (listed.path == topics and self._wanted(path)):
                tracker.unwant(path)
            tracker.touch(path)  # a table that wants the topic, too, must learn of it
            self._note(Node(path, Kind.DATA, None))
        for name in sorted(now - before):
            path = f"{listed.path}/{name}"
            tracker.want(path, scope=path if listed.path == topics else MIRROR, by_writes=True)
            tracker.touch(path)

    def called(self, done: CallDone) -> None:
        """Take in an answer of Kafka."""
        if done.token != self._token:
            return  # asked in an earlier term
        self._token = None
        if isinstance(done.error, ZkcoordError):
            self._answer = Silent(self._kind, str(done.error))
        elif done.error is not None:
            self._answer = Silent(self._kind, f"asking Kafka failed: {done.error!r}")
        else:
            self._answer = done.value

    # what is decided

    def advance(self, term: Term, schema: tuple[Schema, int], now_ms: int) -> int | None:
        """Write the changes that an answer brings, or ask the next question. Returns when to be called again.

        `schema` is the present schema, with its node's version.
        """
        if self._token is not None or not self._settled(now_ms):
            return None
        if missing := parents_of(self._nodes, self._layout):
            self._commit(term, missing, "the parents of mirrored topics", now_ms)
            return None
        named = schema[0]
        mirror = Mirror(
            cluster_id=named.cluster_id,
            beside=self._beside,
            topics=self._topics,
            brokers=self._brokers,
            over=self._root.over,
            whole=self._root.whole,
        )
        if self._answer is not None:
            answer, self._answer = self._answer, None
            took_ms = 0 if isinstance(answer, Silent) else now_ms - self._asked_ms
            self._memory, changes = take(mirror, self._memory, answer, now_ms)
            self._plan(now_ms, min(IDLE_SHARE * took_ms, PAUSE_MS_MAX), silent=isinstance(answer, Silent))
            self._problem(KAFKA, self._memory.problem)
            if changes and self._write(term, changes, schema, now_ms):
                return None
        self._between = now_ms < self._next_ms
        if not self._between:
            asked: tuple[Question, Memory] | None = next_question(mirror, self._memory, now_ms)
        elif now_ms < self._between_ms:
            return min(self._next_ms, self._between_ms)
        else:
            asked = question_between(self._memory, self._named())
        if asked is None:
            return self._next_ms
        question, self._memory = asked
        self._kind, self._asked_ms = question.kind, now_ms
        self._token = self._asker.ask(question)
        return None

    def _plan(self, now_ms: int, pause_ms: int, *, silent: bool) -> None:
        """After an answer, set when the next questions are due. Each kind of question pauses for its own answers only.
        But after a broker that did not answer, the next question is one for a list."""
        due_ms = self._asked_ms if self._memory.urgent else self._asked_ms + self._asker.interval_ms
        paused_ms = max(due_ms, now_ms + pause_ms)
        if self._between and not silent:
            self._between_ms, self._next_ms = paused_ms, max(self._next_ms, due_ms)
        else:
            self._between_ms, self._next_ms = due_ms, paused_ms

    def _settled(self, now_ms: int) -> bool:
        """True when all of the mirror has been read, and no write to it is under way or put off."""
        above = (f"{self._layout.topics}/", f"{self._layout.brokers}/")
        scopes = self._loop.tracker.unclean()
        if not scopes.isdisjoint({MIRROR, self._layout.topics, self._layout.brokers, ""}):
            return False
        return self._loop.ready(MIRROR, now_ms) and not any(scope.startswith(above) for scope in scopes)

    def _write(self, term: Term, changes: tuple[Change, ...], schema: tuple[Schema, int], now_ms: int) -> bool:
        """Write these changes. Returns False if all of them are in the tree already."""
        named = [change for change in changes if isinstance(change, NameCluster)]
        if named:
            data = encode_schema(replace(schema[0], cluster_id=named[0].cluster_id))
            self._commit(term, [SetNode(SCHEMA, data, schema[1])], "the cluster that topics come from", now_ms)
            return True
        writes = writes_of(changes, self._nodes, self._layout)
        batches = list(parts(writes, lambda write: Transaction(writes=(write,)).payload_bytes()))
        ends = any(isinstance(c, RemoveTopic) or (isinstance(c, PutTopic) and c.replaces is not None) for c in changes)
        # an id must end before its topic does: the rest is decided again
        for batch in batches[:1] if ends else batches:
            self._commit(term, batch, "what Kafka tells of its topics", now_ms)
        return bool(batches)

    def _commit(self, term: Term, writes: list[Write], why: str, now_ms: int) -> None:
        checked = (CheckNode(EPOCH, term.epoch_version), *writes)
        self._loop.commit(Transaction(writes=checked, why=why), MIRROR, now_ms, MIRROR)


def _keep(known: dict[Key, Value], key: Key, value: Value | None) -> None:
    """Keep this value under the key. None: remove the key."""
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
