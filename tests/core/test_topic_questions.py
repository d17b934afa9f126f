"""The questions to Kafka for the mirror of its topics, and the repeated ones after an answer that told nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.mirror_play import ABSENT, B1, NOTHING, STEP_MS, Play, T, U, grown
from zkcoord.core.topic_answers import Broker, Cluster, Kind, Listed, Silent, Told, shape_of
from zkcoord.core.topic_mirror import CONFIRM_MS, DESCRIBE_MAX, PutBroker, PutTopic, RemoveBroker, Topic
from zkcoord.core.topic_questions import CLUSTER_MS, NAMED_MAX, RETRIED_MAX, question_between


@pytest.mark.parametrize("first", [T, NOTHING, ABSENT])
def test_f170_a_growth_that_a_late_broker_does_not_tell_is_asked_for_again_at_once(
    first: Topic | Told,
) -> None:
    """Otherwise, with thousands of topics, its turn would come only after many seconds."""
    many = {f"a{n:05}": U for n in range(3 * DESCRIBE_MAX)}
    play = Play(t=T, **many)
    play.listed(t=T, **many)
    after = grown(T, range(3))
    play.listed(t=after, **many)
    assert "t" in play.described()
    assert play.told(t=first) == ()
    assert not play.memory.urgent  # the next poll is early enough
    play.later(STEP_MS)
    play.listed(t=after, **many)
    assert "t" in play.described()
    assert play.told(t=after) == (PutTopic("t", after),)
    assert play.memory.due == frozenset()


def test_a_topic_with_another_id_is_asked_for_behind_each_list_until_it_counts() -> None:
    """Otherwise, with thousands of topics, its turn would come only after many seconds. Meanwhile the new topic would
    be read from old offsets."""
    many = {f"a{n:05}": U for n in range(3 * DESCRIBE_MAX)}
    play = Play(t=T, **many)
    play.listed(t=T, **many)
    other = replace(T, topic_id="idT2")
    play.told(t=other)
    play.later(CONFIRM_MS)
    play.listed(t=T, **many)
    assert "t" in play.described()
    assert play.told(t=other) == (PutTopic("t", other, replaces="idT"),)


def test_a_topic_that_a_list_lacks_is_asked_for_by_name_behind_it() -> None:
    """Otherwise, with thousands of topics, its turn would come only after many seconds. Meanwhile the deleted topic
    would stay in the mirror."""
    many = {f"a{n:05}": U for n in range(3 * DESCRIBE_MAX)}
    play = Play(t=T, **many)
    play.listed(**many)
    assert "t" in play.described()


@pytest.mark.parametrize("told", [Told(None, U.partitions), NOTHING, ABSENT])
def test_a_topic_that_cannot_be_mirrored_makes_no_question_urgent(told: Told) -> None:
    """The topic is asked for with each poll, and not between two polls."""
    play = Play(t=T)
    for number in range(4):
        play.listed(t=T, n=U)
        assert play.memory.urgent is (number == 0)
        play.told(n=told)
        assert not play.memory.urgent


def test_a_topic_that_is_neither_listed_nor_mirrored_any_more_is_asked_for_no_more() -> None:
    play = Play(t=T)
    play.listed(t=T, n=U)
    play.described()
    play.listed(t=T)
    play.told(n=NOTHING)
    assert not play.memory.urgent
    assert play.memory.due == frozenset()


def test_topics_that_tell_nothing_keep_no_others_from_being_asked_for() -> None:
    silent = {f"a{n:05}": U for n in range(2 * DESCRIBE_MAX)}
    play = Play(t=T)
    play.listed(t=T, **silent)
    for _ in range(3):
        names = play.described()
        assert len(names) <= DESCRIBE_MAX
        play.told(**dict.fromkeys(names, NOTHING))
    play.listed(t=T, new=U, **silent)
    names = play.described()
    assert "new" in names
    assert len(set(names) - {"new"}) >= RETRIED_MAX
    asked = set(names)
    for _ in range(4):
        play.told(**dict.fromkeys(names, NOTHING))
        play.listed(t=T, new=U, **silent)
        names = play.described()
        asked |= set(names)
    assert asked == {"t", "new", *silent}


# the questions of a poll


def test_lists_alternate_with_checks_of_all_ids_in_turn() -> None:
    many = {f"a{n:05}": U for n in range(DESCRIBE_MAX + 1)}
    play = Play(**many)
    play.listed(**many)
    play.take(Cluster("c", play.mirror.brokers))
    seen: list[str] = []
    for _ in range(2):
        assert play.question().kind is Kind.LIST
        play.listed(**many)
        question = play.question()
        assert question.kind is Kind.DESCRIBE
        seen += question.topics
        play.told(**{name: many[name] for name in question.topics})
    assert sorted(seen) == sorted(many)


def test_brokers_are_asked_for_when_a_list_names_a_new_one_and_now_and_then() -> None:
    play = Play(t=T)
    play.listed(t=T)
    assert play.question().kind is Kind.CLUSTER
    play.take(Cluster("c", {1: B1}))
    assert play.question().kind is not Kind.CLUSTER
    play.take(Listed("c", frozenset({1, 2}), {"t": shape_of(T.partitions)}))
    assert play.question().kind is Kind.CLUSTER
    play.take(Cluster("c", {1: B1}))
    play.later(CLUSTER_MS)
    assert play.question().kind is Kind.CLUSTER


def test_a_broker_goes_when_no_partition_has_a_replica_there() -> None:
    play = Play(t=T)
    play.mirror = replace(play.mirror, brokers={1: B1, 2: B1})
    play.listed(t=T)
    new = Broker("h3", 9092)
    assert play.take(Cluster("c", {3: new})) == (PutBroker(3, new), RemoveBroker(2))


# the questions between two polls


def test_between_two_questions_what_has_news_is_asked_for_and_the_topics_that_groups_name() -> None:
    play = Play(t=T, u=U)
    assert question_between(play.memory, {"t"}) is None  # no list of this cluster has come
    play.listed(t=T, u=U)
    play.take(Cluster("c", play.mirror.brokers))
    assert question_between(play.memory, frozenset()) is None
    asked = question_between(play.memory, {"t", "nowhere"})
    assert asked is not None and asked[0] == (Kind.DESCRIBE, ("nowhere", "t"))
    play.listed(t=T, u=grown(U, range(2)))
    found = question_between(play.memory, {"t"})
    assert found is not None and found[0].topics == ("u", "t")
    play.told(u=NOTHING)  # asking for it again can wait
    found = question_between(play.memory, {"t"})
    assert found is not None and found[0].topics == ("t",)


def test_of_many_topics_that_groups_name_each_is_asked_for_in_turn() -> None:
    named = [f"a{n:05}" for n in range(2 * NAMED_MAX + 5)]
    play = Play(t=T)
    play.listed(t=T)
    seen: list[str] = []
    for _ in range(3):
        asked = question_between(play.memory, set(named))
        assert asked is not None and len(asked[0].topics) <= NAMED_MAX
        seen += asked[0].topics
        play.memory = asked[1]
    assert seen == named
    assert play.memory.named == ""


def test_a_question_between_two_others_changes_none_of_them() -> None:
    many = {f"a{n:05}": U for n in range(3 * DESCRIBE_MAX)}
    one, other = Play(t=T, **many), Play(t=T, **many)
    for play in (one, other):
        play.listed(t=T, **many)
        play.take(Cluster("c", play.mirror.brokers))
    questions = []
    for play in (one, other):
        for _ in range(8):
            if play is other:
                asked = question_between(play.memory, {"t", "a00001"})
                assert asked is not None
                play.memory = asked[1]
                play.told(t=T, a00001=U)
            question = play.question()
            questions.append(question)
            if question.kind is Kind.LIST:
                play.listed(t=T, **many)
            else:
                play.told(**{name: T if name == "t" else U for name in question.topics})
    assert questions[:8] == questions[8:]


def test_a_topic_of_which_nothing_was_told_is_asked_for_at_once_when_a_list_has_news_of_it() -> None:
    play = Play(t=T)
    play.listed(t=T, n=U)
    play.told(n=NOTHING)
    assert not play.memory.urgent
    play.listed(t=T, n=U)
    assert not play.memory.urgent
    play.listed(t=T, n=grown(U, range(2)))
    assert play.memory.urgent


def test_behind_a_question_without_an_answer_the_next_one_waits_for_its_poll_and_is_for_a_list() -> None:
    play = Play(t=T)
    assert play.question().kind is Kind.LIST
    play.take(Silent(Kind.LIST, "Kafka is away"))
    assert play.question().kind is Kind.LIST
    play.listed(t=T, n=U)
    assert play.memory.urgent
    play.take(Silent(Kind.DESCRIBE, "Kafka is away"))
    assert not play.memory.urgent


@pytest.mark.parametrize("answer", [Silent(Kind.CLUSTER, "Kafka is away"), Cluster("", {})])
def test_lists_do_not_wait_for_a_broker_that_does_not_describe_the_cluster(answer: Silent | Cluster) -> None:
    play = Play(t=T)
    play.listed(t=T)
    assert play.question().kind is Kind.CLUSTER
    play.take(answer)
    assert play.question().kind is Kind.LIST
    play.listed(t=T)
    play.later(CLUSTER_MS - 1)
    assert play.question().kind is not Kind.CLUSTER
    play.later(1)
    assert play.question().kind is Kind.CLUSTER


def test_of_several_problems_the_latest_is_told() -> None:
    play = Play(t=T)
    play.take(Silent(Kind.DESCRIBE, "describing fails"))
    play.take(Silent(Kind.LIST, "listing fails"))
    assert (play.memory.problem or "").startswith("listing fails")
    play.take(Silent(Kind.DESCRIBE, "describing fails again"))
    assert (play.memory.problem or "").startswith("describing fails again")
