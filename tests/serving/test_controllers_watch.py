"""When KRaft controllers count as silent, and what a coordinator reports then. The test gives it the nodes."""

from __future__ import annotations

from typing import cast

from zkcoord.serving.controllers_watch import ControllersWatch
from zkcoord.serving.election import Election
from zkcoord.shell.loop import Loop
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.brokers_move import SILENT, SILENT_MS
from zkcoord.tree.paths import BROKERS, CONTROLLER, MIGRATION
from zkcoord.tree.snapshot import Kind, Node, Stat

STAT = Stat(version=0, czxid=1, ephemeral_owner=0)
KRAFT = Node(CONTROLLER, Kind.DATA, STAT, b'{"brokerid":3000,"kraftControllerEpoch":1}')
HERE = Node(BROKERS, Kind.CHILDREN, STAT, children=("0",))
GONE = Node(BROKERS, Kind.CHILDREN, STAT)
ABSENT = Node(MIGRATION, Kind.DATA, None)
OF_ZOOKEEPER = Node(CONTROLLER, Kind.DATA, STAT, b'{"brokerid":0,"kraftControllerEpoch":-1}')


def until(offset: int) -> Node:
    """The controllers' node, with the metadata offset up to which they have written."""
    return Node(MIGRATION, Kind.DATA, STAT, b'{"kraft_controller_id":3000,"kraft_metadata_offset":%d}' % offset)


class Play:
    """A watch in one term, whose coordinator has nothing to write."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.said: dict[str, str | None] = {}
        loop = cast("Loop", type("Standing", (), {"tracker": self.tracker}))
        election = cast("Election", type("Quiet", (), {"saying_silent": staticmethod(lambda *, silent: None)}))
        self.watch = ControllersWatch(loop, self.said.__setitem__, election)
        self._requests = 0

    def read(self, *nodes: Node) -> None:
        """These nodes are the answers to the open reads."""
        for node in nodes:
            self.tracker.touch(node.path, node.kind)
        self._requests += 1
        self.tracker.take(self._requests)
        for node in self.tracker.answered(self._requests, nodes):
            self.watch.take(node)

    def at(self, now_ms: int) -> tuple[int | None, bool]:
        """The time of the next look, and whether the controllers are silent."""
        due_ms = self.watch.advance(now_ms)
        assert self.said.get(CONTROLLER) == (SILENT if self.watch.silent else None)
        return due_ms, self.watch.silent


def test_f242_it_is_silence_only_while_brokers_are_moved_and_after_half_a_minute() -> None:
    play = Play()
    assert play.at(0) == (None, False)  # nothing was read yet
    play.read(until(7), KRAFT, HERE)
    assert play.at(1_000) == (1_000 + SILENT_MS, False)
    play.read(until(7))  # the controllers fail, and write the same offset
    assert play.at(SILENT_MS) == (1_000 + SILENT_MS, False)
    assert play.at(1_000 + SILENT_MS) == (None, True)
    play.read(until(8))
    assert play.at(40_000) == (40_000 + SILENT_MS, False)
    play.read(GONE)  # no broker uses ZooKeeper, so the controllers need not write to it
    assert play.at(80_000) == (None, False)
    play.read(HERE)  # brokers go back to ZooKeeper
    assert play.at(90_000) == (90_000 + SILENT_MS, False)
    assert play.at(90_000 + SILENT_MS) == (None, True)
    play.read(ABSENT, OF_ZOOKEEPER)  # somebody took the migration back
    assert play.at(200_000) == (None, False)


def test_nothing_is_judged_by_a_node_that_has_changed_and_is_not_read_yet() -> None:
    play = Play()
    play.read(until(7), KRAFT, HERE)
    play.at(0)
    play.tracker.touch(MIGRATION)  # as after a broken connection
    assert play.at(SILENT_MS) == (None, False)
    play.read(until(8))
    assert play.at(SILENT_MS + 1) == (2 * SILENT_MS + 1, False)


def test_a_term_that_ends_says_nothing_more_and_follows_nothing() -> None:
    play = Play()
    play.read(until(7), KRAFT, HERE)
    play.at(0)
    assert play.at(SILENT_MS) == (None, True)
    play.watch.end()
    assert play.said == {CONTROLLER: None}
    play.tracker.touch_all()
    assert play.tracker.take(99) == []
