"""When the coordinator asks brokers whether they have left ZooKeeper, which answers count, and which nodes it follows
for that."""

from __future__ import annotations

from typing import Any, cast

from zkcoord.core.topic_answers import Broker, Cluster, Kind, Question
from zkcoord.errors import UnavailableError
from zkcoord.serving.asker import Asker
from zkcoord.serving.brokers_watch import ASK_MS, FOLLOWED, BrokersWatch
from zkcoord.serving.election import Election
from zkcoord.serving.kafka_nodes import KafkaNodes
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, CONTROLLER, DRAFT, MIGRATION
from zkcoord.tree.snapshot import Kind as NodeKind
from zkcoord.tree.snapshot import Node, Stat

STAT = Stat(version=0, czxid=1, ephemeral_owner=0)
HERE = Node(BROKERS, NodeKind.CHILDREN, STAT, children=("0",))
GONE = Node(BROKERS, NodeKind.CHILDREN, STAT)
OTHERS = (
    Node(MIGRATION, NodeKind.DATA, None),
    Node(CONTROLLER, NodeKind.DATA, STAT, b'{"brokerid":0,"kraftControllerEpoch":-1}'),
    Node(CLUSTER_ID, NodeKind.DATA, STAT, b'{"id":"c"}'),
)
ANSWER = Cluster("c", {0: Broker("h", 9092)})
SILENCE = UnavailableError("nobody answers")


def followed(tracker: Tracker) -> set[tuple[str, NodeKind]]:
    """All nodes that are wanted."""
    tracker.touch_all()
    return {(read.path, read.kind) for read in tracker.take(1)}


class Play:
    """A watch in one term. The test gives it nodes and answers."""

    def __init__(self, *, asks: bool = True) -> None:
        self.tracker = Tracker()
        self.asked: list[tuple[int, Question]] = []
        self.said: dict[str, str | None] = {}
        asker = Asker(cast("Any", self)) if asks else None
        self.watch = BrokersWatch(self.tracker, self.said.__setitem__, asker)

    def call(self, token: int, _name: str, question: Question) -> None:
        self.asked.append((token, question))

    def read(self, *nodes: Node) -> None:
        for node in nodes:
            self.watch.take(node)

    def answer(self, value: Cluster | None = ANSWER, *, token: int | None = None) -> None:
        error = SILENCE if value is None else None
        self.watch.called(CallDone(self.asked[-1][0] if token is None else token, value, error))


def test_nobody_is_asked_before_all_that_tells_of_a_move_is_read() -> None:
    play = Play()
    for node in (HERE, *OTHERS[:-1]):
        play.read(node)
        assert (play.watch.advance(0), play.asked, play.watch.leaving) == (None, [], False)
    play.read(OTHERS[-1])
    assert play.watch.advance(0) is None
    assert [question for _, question in play.asked] == [Question(Kind.CLUSTER)]


def test_one_question_is_under_way_and_the_next_one_comes_half_a_minute_after_it() -> None:
    play = Play()
    play.read(GONE, *OTHERS)
    play.watch.advance(1_000)
    for now_ms in (1_500, 2 * ASK_MS):
        assert (play.watch.advance(now_ms), len(play.asked)) == (None, 1)
    play.answer(None)
    assert play.watch.advance(1_500) == 1_000 + ASK_MS  # not at once: usually all brokers are away for a while
    assert len(play.asked) == 1
    play.watch.advance(1_000 + ASK_MS)
    assert len(play.asked) == 2


def test_an_answer_to_a_question_of_an_earlier_term_or_of_somebody_else_is_none() -> None:
    play = Play()
    play.watch.called(CallDone(7, ANSWER))  # nothing was read yet
    play.read(GONE, *OTHERS)
    play.watch.advance(0)
    play.answer(token=play.asked[-1][0] + 1)
    assert not play.watch.leaving
    play.answer()
    assert play.watch.leaving


def test_brokers_leave_by_an_answer_that_came_while_none_was_registered_and_until_one_is() -> None:
    play = Play()
    play.read(HERE, *OTHERS)
    play.watch.advance(0)
    play.answer()
    play.read(GONE)
    assert not play.watch.leaving  # all brokers may be away for a moment
    play.watch.advance(ASK_MS)
    play.answer()
    assert play.watch.leaving
    play.read(HERE)
    assert not play.watch.leaving


def test_where_no_brokers_are_named_nobody_is_asked() -> None:
    play = Play(asks=False)
    play.read(GONE, *OTHERS)
    assert (play.watch.advance(10 * ASK_MS), play.watch.leaving) == (None, False)


def test_a_term_that_ends_follows_nothing_more_and_says_no_more_that_brokers_leave() -> None:
    play = Play()
    play.read(GONE, *OTHERS)
    play.watch.advance(0)
    play.answer(Cluster("another", ANSWER.brokers))
    assert all(play.said[path] for path in (MIGRATION, CLUSTER_ID))
    play.watch.end()
    assert play.said == {MIGRATION: None, CLUSTER_ID: None}
    assert followed(play.tracker) == set()


def test_the_list_of_brokers_is_followed_on_when_nobody_needs_their_racks_any_more() -> None:
    tracker = Tracker()
    loop = cast("Loop", type("Standing", (), {"tracker": tracker}))
    nodes = KafkaNodes(loop, DRAFT, lambda _path, _why: None, None, cast("Election", None))
    nodes.brokers.use("g", wanted=True)
    nodes.brokers.use("g", wanted=False)
    assert {(path, kind) for path, kind, _ in FOLLOWED} <= followed(tracker)
    nodes.end()
    assert followed(tracker) == set()
