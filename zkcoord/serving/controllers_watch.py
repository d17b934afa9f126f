"""Reports that Kafka's brokers are being moved to KRaft, and that the controllers that move them write nothing to
ZooKeeper.

Brokers that still use ZooKeeper learn of no change then, and one that is restarted knows nothing. The coordinator
reports this wherever its topics come from: a move may be given up as long as some broker uses ZooKeeper.
"""

from __future__ import annotations

from zkcoord.serving.election import Election
from zkcoord.serving.topics import Problem
from zkcoord.shell.loop import Loop
from zkcoord.tree.brokers_move import READS, SILENT, SILENT_MS, BrokersMove, Written, move_of, written
from zkcoord.tree.paths import CONTROLLER
from zkcoord.tree.snapshot import Key, Node, key_of

LANE = "controllers"  # lane of the coordinator's writes to its own node
FOLLOWED = tuple(key_of(path, kind) for path, kind, _ in READS)
SCOPES = tuple(path for path, _, _ in READS)


class ControllersWatch:
    """Follows, for one term, the nodes that show it. `silent`: the controllers have written nothing for SILENT_MS."""

    def __init__(self, loop: Loop, problem: Problem, election: Election) -> None:
        """`election` knows this coordinator's own node, in which tools read that the controllers are silent."""
        self._loop, self._problem, self._election = loop, problem, election
        self._nodes: dict[Key, Node] = {}
        self._moving = False  # True when these nodes show a move, once all are read
        self._written: Written | None = None  # None: no brokers are being moved, or it is not known
        self.silent = False
        for path, kind, _ in READS:
            loop.tracker.want(path, kind, watch=True, scope=path)

    def take(self, node: Node) -> None:
        """Take in a node that was read, if it is followed here."""
        key = key_of(node.path, node.kind)
        if key in FOLLOWED:
            self._nodes[key] = node
            if len(self._nodes) == len(FOLLOWED):
                self._moving = move_of([self._nodes[key] for key in FOLLOWED]) is BrokersMove.MOVING

    def advance(self, now_ms: int) -> int | None:
        """Judge what was read, and report a change. Returns when to be called again."""
        tracker = self._loop.tracker
        if len(self._nodes) < len(FOLLOWED) or not all(map(tracker.clean, SCOPES)):
            return None
        self._written = written(self._written, self._nodes[FOLLOWED[0]], now_ms) if self._moving else None
        due_ms = None if self._written is None else self._written.since_ms + SILENT_MS
        self.silent = due_ms is not None and now_ms >= due_ms
        self._problem(CONTROLLER, SILENT if self.silent else None)
        self._say(now_ms)
        return None if self.silent else due_ms

    def _say(self, now_ms: int) -> None:
        loop, saying = self._loop, self._election.saying_silent(silent=self.silent)
        if saying is not None and loop.tracker.watches(self._election.own_path) and loop.ready(LANE, now_ms):
            loop.commit(saying, LANE, now_ms, LANE)

    def end(self) -> None:
        """Stop following the nodes."""
        for path, kind, _ in READS:
            self._loop.tracker.unwant(path, kind)
        self._problem(CONTROLLER, None)
