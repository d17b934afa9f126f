"""The mirror in one term: which answers it takes, and what it writes for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from zkcoord.core.topic_answers import Answer, Cluster, Described, Kind, Listed, Question, Told, shape_of
from zkcoord.core.topic_mirror import CONFIRM_MS, Topic
from zkcoord.errors import UnavailableError
from zkcoord.serving.asker import Asker
from zkcoord.serving.topic_mirror import IDLE_SHARE, KAFKA, PAUSE_MS_MAX, TopicMirror
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone
from zkcoord.tree.paths import EPOCH, layout_named
from zkcoord.tree.plan import Term
from zkcoord.tree.schema import Schema
from zkcoord.tree.snapshot import Kind as NodeKind
from zkcoord.tree.snapshot import Node, Stat
from zkcoord.tree.topic_mirror import MirrorRoot, encode_root, encode_topic
from zkcoord.tree.writes import CheckNode, SetNode, Transaction

LAYOUT = layout_named("draft", "kafka")
SCHEMA = Schema(revision="0003", layout="draft", topics="kafka", cluster_id="c"), 0
STAT = Stat(version=0, czxid=1, ephemeral_owner=0)
TERM = Term(epoch=1, epoch_version=1, marks={})
T = Told("idT", {0: (1,)})
BIG = Told("idB", dict.fromkeys(range(3000), (1, 2, 3)))


class Tree:
    """A loop whose tree never changes. It keeps the transactions that are sent."""

    def __init__(self) -> None:
        self.sent: list[Transaction] = []
        self.unwanted: list[str] = []
        self.touched: list[str] = []
        self.dirty = frozenset[str]()
        self.tracker = self

    def want(self, *_: object, **__: object) -> None: ...

    def touch(self, path: str, *_: object) -> None:
        self.touched.append(path)

    def unwant(self, path: str, *_: object) -> None:
        self.unwanted.append(path)

    def unclean(self) -> frozenset[str]:
        return self.dirty

    def ready(self, _lane: str, _now_ms: int) -> bool:
        return True

    def commit(self, transaction: Transaction, *_: object) -> None:
        self.sent.append(transaction)


class Play:
    """A mirror with the topic `t`. The test answers its questions."""

    def __init__(self, wanted: str = "", interval_ms: int = 400, named: frozenset[str] = frozenset()) -> None:
        self.tree, self.asked, self.now_ms = Tree(), list[tuple[int, Question]](), 1_000
        asker = Asker(cast("Any", self), interval_ms=interval_ms)
        self.said: dict[str, str | None] = {}
        loop = cast("Loop", self.tree)
        self.mirror = TopicMirror(
            loop, LAYOUT, asker, self.said.__setitem__, lambda path: path == wanted, lambda: named
        )
        topic = b'{"version":3,"topic_id":"idT","partitions":{"0":[1]}}'
        for node in (
            Node(LAYOUT.topics, NodeKind.DATA, STAT, encode_root(MirrorRoot(whole=True))),
            Node(LAYOUT.brokers, NodeKind.DATA, STAT),
            Node(LAYOUT.topics, NodeKind.CHILDREN, STAT, children=("t",)),
            Node(LAYOUT.topic("t"), NodeKind.DATA, STAT, topic),
        ):
            self.mirror.take(node)

    def call(self, token: int, _name: str, question: Question) -> None:
        self.asked.append((token, question))

    def advance(self) -> int | None:
        return self.mirror.advance(TERM, SCHEMA, self.now_ms)

    def answer(self, **told: Told) -> int | None:
        """Answer the open question with these topics. Returns the result of `advance`."""
        token, question = self.asked[-1]
        shapes = {name: shape_of(one.partitions or {}) for name, one in told.items()}
        answers: dict[Kind, Answer] = {
            Kind.LIST: Listed("c", frozenset(), shapes),
            Kind.CLUSTER: Cluster("c", {}),
            Kind.DESCRIBE: Described({name: told[name] for name in question.topics}),
        }
        self.mirror.called(CallDone(token, answers[question.kind]))
        return self.advance()

    def silent(self) -> int | None:
        """Let the open question fail. Returns the result of `advance`."""
        self.mirror.called(CallDone(self.asked[-1][0], None, UnavailableError("Kafka is away")))
        return self.advance()

    def until(self, kind: Kind, **told: Told) -> None:
        """Answer questions until one of this kind is open."""
        for _ in range(10):
            self.now_ms = max(self.now_ms, self.advance() or 0)
            self.advance()
            if self.asked[-1][1].kind is kind:
                return
            self.answer(**told)
        raise AssertionError(f"no question of the kind {kind}")


def test_an_ended_id_is_noted_in_its_own_multi_among_several() -> None:
    """If it were in another multi, the first multi could be refused and the others carried out."""
    play = Play()
    other = Told("idT2", T.partitions)
    play.until(Kind.DESCRIBE, t=T)
    play.answer(t=other)
    play.now_ms += CONFIRM_MS
    big = {f"a{number:02}": BIG for number in range(20)}
    play.until(Kind.LIST, t=other)
    play.answer(t=T, **big)
    play.until(Kind.DESCRIBE, t=T, **big)
    play.answer(t=other, **big)
    [first] = play.tree.sent
    assert first.writes[0] == CheckNode(EPOCH, TERM.epoch_version)
    assert any(isinstance(write, SetNode) and write.path == LAYOUT.topics for write in first.writes)
    assert LAYOUT.topic("t") not in [write.path for write in first.writes]  # it did not fit, and comes later


def test_f267_a_topic_too_large_for_its_replicas_is_not_written_again_and_again() -> None:
    play = Play()
    large = Told("idL", dict.fromkeys(range(60_000), (1, 2, 3)))
    play.mirror.take(Node(LAYOUT.topics, NodeKind.CHILDREN, STAT, children=("large", "t")))
    data = encode_topic(Topic(topic_id="idL", partitions=large.partitions or {}))
    play.mirror.take(Node(LAYOUT.topic("large"), NodeKind.DATA, STAT, data))
    play.until(Kind.DESCRIBE, t=T, large=large)
    asked = len(play.asked)
    assert play.answer(t=T, large=large) is not None  # the change comes again, and the questions go on
    play.until(Kind.DESCRIBE, t=T, large=large)
    assert (play.tree.sent, len(play.asked) > asked) == ([], True)


def test_an_answer_to_a_question_of_an_earlier_term_is_none_to_this_ones() -> None:
    play = Play()
    play.advance()
    [(token, _)] = play.asked
    play.mirror.called(CallDone(token - 1, Listed("c", frozenset(), {})))
    play.advance()
    assert len(play.asked) == 1  # the first question is still open
    play.answer(t=T)
    assert play.mirror.whole


@pytest.mark.parametrize("interval_ms", [1, 400, 2_000])
def test_the_next_question_comes_an_interval_after_the_last_one(interval_ms: int) -> None:
    play = Play(interval_ms=interval_ms)
    play.until(Kind.DESCRIBE, t=T)
    asked_ms = play.now_ms
    assert play.answer(t=T) == asked_ms + interval_ms


@pytest.mark.parametrize(("took_ms", "pause_ms"), [(500, IDLE_SHARE * 500), (9_000, PAUSE_MS_MAX)])
def test_the_next_question_waits_four_times_the_answers_time_within_a_bound(took_ms: int, pause_ms: int) -> None:
    play = Play()
    play.until(Kind.DESCRIBE, t=T)
    play.now_ms += took_ms
    assert play.answer(t=T) == play.now_ms + pause_ms


def test_a_topic_that_leaves_the_mirror_is_followed_while_a_group_wants_it() -> None:
    for wanted in ("", LAYOUT.topic("t")):
        play = Play(wanted)
        play.mirror.take(Node(LAYOUT.topics, NodeKind.CHILDREN, STAT, children=()))
        assert play.tree.unwanted == ([] if wanted else [LAYOUT.topic("t")])
        assert play.tree.touched[1:] == [LAYOUT.topic("t")]  # after the touch of its creation


@pytest.mark.parametrize("scope", [LAYOUT.topic("t"), LAYOUT.topics, LAYOUT.brokers, f"{LAYOUT.brokers}/1", ""])
def test_nobody_is_asked_while_something_of_the_mirror_is_still_to_be_read(scope: str) -> None:
    play = Play()
    play.tree.dirty = frozenset({scope})
    assert (play.advance(), play.asked) == (None, [])
    play.tree.dirty = frozenset({"/brokers/topics/another", "/zkcoord"})
    play.advance()
    assert len(play.asked) == 1


def test_a_question_without_an_answer_costs_no_pause_and_a_list_is_asked_for_next() -> None:
    play = Play()
    play.until(Kind.DESCRIBE, t=T)
    play.now_ms += 9_000
    play.silent()
    assert [question.kind for _, question in play.asked[-2:]] == [Kind.DESCRIBE, Kind.LIST]


def test_a_term_that_ends_says_no_more_what_is_wrong_with_answers() -> None:
    play = Play()
    play.advance()
    play.silent()
    assert "Kafka is away" in (play.said[KAFKA] or "")
    play.mirror.end()
    assert play.said == {KAFKA: None}


def test_while_a_list_is_paused_for_the_topics_that_groups_name_are_asked_for_at_each_poll() -> None:
    play = Play(named=frozenset({"t"}))
    play.until(Kind.DESCRIBE, t=T)
    play.answer(t=T)
    play.until(Kind.LIST, t=T)
    play.now_ms += 500
    play.answer(t=T)  # the next list may come only after a pause of 2 s
    paused_ms, times = play.now_ms + IDLE_SHARE * 500, list[int]()
    while play.now_ms < paused_ms - 400:
        assert play.asked[-1][1] == Question(Kind.DESCRIBE, ("t",))
        times.append(play.now_ms)
        play.now_ms = play.answer(t=T) or 0
        play.advance()
    assert times == [paused_ms - 2_000 + 400 * n for n in range(4)]


def test_a_question_between_two_others_pauses_as_long_as_its_own_answer_takes() -> None:
    play = Play(named=frozenset({"t"}))
    play.until(Kind.LIST, t=T)
    play.now_ms += 2_000
    play.answer(t=T)
    assert play.asked[-1][1] == Question(Kind.DESCRIBE, ("t",))
    play.now_ms += 300
    assert play.answer(t=T) == play.now_ms + IDLE_SHARE * 300


def test_behind_a_question_between_that_has_no_answer_the_paused_one_comes_at_the_next_poll() -> None:
    play = Play(named=frozenset({"t"}))
    play.until(Kind.LIST, t=T)
    play.now_ms += 2_000
    play.answer(t=T)  # the next question for brokers may come only after a pause of 8 s
    assert play.asked[-1][1] == Question(Kind.DESCRIBE, ("t",))
    polled_ms = play.now_ms + 400
    play.now_ms += 100
    assert play.silent() == polled_ms
    play.now_ms = polled_ms
    play.advance()
    assert play.asked[-1][1].kind is Kind.CLUSTER
