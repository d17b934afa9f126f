"""Reports that Kafka's brokers leave ZooKeeper while topics are read there: the topics would grow stale without a
report. A move by KIP-866 is seen in ZooKeeper. If the program was given bootstrap servers, it also asks them whether
they belong to this cluster and, while no broker is registered, whether they answer."""

from __future__ import annotations

from zkcoord.core.topic_answers import Cluster, Kind, Question
from zkcoord.serving.asker import Asker
from zkcoord.serving.topics import Problem
from zkcoord.shell.ports import CallDone
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.brokers_move import READS, WORDS, cluster_id_of, confused, move_of, registered, unregistered
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, MIGRATION
from zkcoord.tree.snapshot import Key, Node, Read, key_of
from zkcoord.tree.snapshot import Kind as NodeKind

ASK_MS = 30_000
"""ms between two questions to Kafka while no broker is registered. They are rare, since the usual cause is that all
brokers are down."""

BROKERS_LIST = key_of(BROKERS, NodeKind.CHILDREN)

FOLLOWED = (*READS, Read(CLUSTER_ID))


class BrokersWatch:
    """Follows, for one term, the nodes of Kafka that show it."""

    def __init__(self, tracker: Tracker, problem: Problem, asker: Asker | None) -> None:
        self._tracker, self._problem, self._asker = tracker, problem, asker
        self._nodes: dict[Key, Node] = {}
        self._token: int | None = None
        self._next_ms = 0
        self._told: Cluster | None = None  # the last answer
        self._unregistered: list[int] = []  # brokers that answered while none was registered
        for path, kind, _ in FOLLOWED:
            tracker.want(path, kind, watch=True, scope=path)

    @property
    def leaving(self) -> bool:
        """True while the brokers leave ZooKeeper, or have left it."""
        return self._why() is not None

    def take(self, node: Node) -> None:
        """Take in a node that was read, if it is followed here."""
        if any((node.path, node.kind) == (path, kind) for path, kind, _ in FOLLOWED):
            self._nodes[key_of(node.path, node.kind)] = node
            self._tell()

    def called(self, done: CallDone) -> None:
        """Take in an answer of Kafka. A failed one tells nothing."""
        if done.token == self._token:
            self._token = None
            self._told = done.value if isinstance(done.value, Cluster) else None
            here = registered(self._nodes[BROKERS_LIST])
            self._unregistered = [] if self._told is None or here else sorted(self._told.brokers)
            self._tell()

    def advance(self, now_ms: int) -> int | None:
        """Ask Kafka if it is due. Returns when to be called again."""
        if self._asker is None or self._token is not None or not self._all_read:
            return None
        if self._told is not None and registered(self._nodes[BROKERS_LIST]):
            return None
        if now_ms < self._next_ms:
            return self._next_ms
        self._next_ms = now_ms + ASK_MS
        self._token = self._asker.ask(Question(Kind.CLUSTER))
        return None

    @property
    def _all_read(self) -> bool:
        return len(self._nodes) == len(FOLLOWED)

    def _why(self) -> str | None:
        """Return how the brokers leave ZooKeeper. None: they do not leave it, or it is not known yet."""
        if not self._all_read:
            return None
        move = move_of([self._nodes[key_of(path, kind)] for path, kind, _ in READS])
        if move is not None:
            return WORDS[move]
        if self._unregistered and not registered(self._nodes[BROKERS_LIST]):
            return unregistered(self._unregistered)
        return None

    def _tell(self) -> None:
        self._problem(MIGRATION, self._why())
        self._problem(CLUSTER_ID, self._confusion())

    def _confusion(self) -> str | None:
        """Return that the brokers that were asked belong to another cluster. None: they do not, or it is not known."""
        node = self._nodes.get(CLUSTER_ID)
        named = None if node is None else cluster_id_of(node)
        if self._told is None or named is None or self._told.cluster_id == named:
            return None
        return confused(self._told.cluster_id, named)

    def end(self) -> None:
        """Stop following the nodes."""
        for path, kind, _ in FOLLOWED:
            self._tracker.unwant(path, kind)
        self._problem(MIGRATION, None)
        self._problem(CLUSTER_ID, None)


def follows(path: str) -> bool:
    """True for the list of brokers, which the table of brokers may follow, too."""
    return path == BROKERS
