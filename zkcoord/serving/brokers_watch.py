"""Tells when Kafka's brokers leave ZooKeeper while topics are read there: they would grow stale without a word.

A move by KIP-866 is seen in ZooKeeper. Where the program was given bootstrap servers it also asks them: whether they
are of this cluster, and, while no broker is registered, whether they answer.
"""

from __future__ import annotations

from zkcoord.core.topic_mirror import Cluster, Kind, Question
from zkcoord.serving.asker import Asker
from zkcoord.serving.topics import Problem
from zkcoord.shell.ports import CallDone
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.brokers_move import READS, WORDS, cluster_id_of, confused, move_of, registered, unregistered
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, MIGRATION
from zkcoord.tree.snapshot import Key, Node, Read, key_of
from zkcoord.tree.snapshot import Kind as NodeKind

ASK_MS = 30_000
"""How often Kafka is asked while no broker is registered. All brokers being away at once is the usual cause."""

BROKERS_LIST = key_of(BROKERS, NodeKind.CHILDREN)

FOLLOWED = (*READS, Read(CLUSTER_ID))


class BrokersWatch:
    """Follows Kafka's own nodes that show it, for one term."""

    def __init__(self, tracker: Tracker, problem: Problem, asker: Asker | None) -> None:
        self._tracker, self._problem, self._asker = tracker, problem, asker
        self._nodes: dict[Key, Node] = {}
        self._token: int | None = None
        self._next_ms = 0
        self._asked = False  # whose cluster it is
        self._told: Cluster | None = None  # the last answer
        self._unregistered: list[int] = []  # brokers that answered while none was registered
        for path, kind, _ in FOLLOWED:
            tracker.want(path, kind, watch=True, scope=path)

    @property
    def leaving(self) -> bool:
        """True while the brokers leave ZooKeeper, or have left it."""
        return self._why() is not None

    def take(self, node: Node) -> None:
        """Take an answer in, if it is followed here."""
        if any((node.path, node.kind) == (path, kind) for path, kind, _ in FOLLOWED):
            self._nodes[key_of(node.path, node.kind)] = node
            self._tell()

    def called(self, done: CallDone) -> None:
        """Take an answer of Kafka in; none tells nothing."""
        if done.token == self._token:
            self._token = None
            self._told = done.value if isinstance(done.value, Cluster) else None
            alone = self._told is not None and not registered(self._nodes[BROKERS_LIST])
            self._unregistered = sorted(self._told.brokers) if alone and self._told is not None else []
            self._tell()

    def advance(self, now_ms: int) -> int | None:
        """Ask Kafka, if it is due. Returns when to come again."""
        if self._asker is None or self._token is not None or len(self._nodes) < len(FOLLOWED):
            return None
        if self._asked and registered(self._nodes[BROKERS_LIST]):
            return None
        if now_ms < self._next_ms:
            return self._next_ms
        self._asked, self._next_ms = True, now_ms + ASK_MS
        self._token = self._asker.ask(Question(Kind.CLUSTER))
        return None

    def _why(self) -> str | None:
        if len(self._nodes) < len(FOLLOWED):
            return None
        nodes = [self._nodes[key_of(path, kind)] for path, kind, _ in FOLLOWED]
        move = move_of(nodes[:3])
        if move is not None:
            return WORDS[move]
        if self._unregistered and not registered(nodes[2]):
            return unregistered(self._unregistered)
        return None

    def _tell(self) -> None:
        self._problem(MIGRATION, self._why())
        named = cluster_id_of(self._nodes[CLUSTER_ID]) if CLUSTER_ID in self._nodes else None
        other = self._told is not None and named is not None and self._told.cluster_id != named
        self._problem(CLUSTER_ID, confused(self._told.cluster_id, named) if other and self._told and named else None)

    def end(self) -> None:
        """Follow them no more."""
        for path, kind, _ in FOLLOWED:
            self._tracker.unwant(path, kind)
        self._problem(MIGRATION, None)
        self._problem(CLUSTER_ID, None)


def follows(path: str) -> bool:
    """True of the list of brokers, which a table may follow, too."""
    return path == BROKERS
