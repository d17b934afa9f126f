"""Changes of the mirror of Kafka's topics, for one answer of Kafka after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.mirror_play import ABSENT, B1, NOTHING, STEP_MS, Play, T, U, grown
from zkcoord.core.topic_answers import Cluster, Kind, Listed, Silent, Told, shape_of
from zkcoord.core.topic_mirror import (
    ABSENT_MS,
    CONFIRM_MS,
    EMPTY_MS,
    OVER_MAX,
    RETURN_MS,
    Complete,
    NameCluster,
    PutTopic,
    RemoveTopic,
    Topic,
    over_with,
)

# another id


OTHER = replace(T, topic_id="idT2")


def test_another_id_counts_when_a_second_answer_a_second_later_says_the_same() -> None:
    play = Play(t=T)
    play.listed(t=T)
    assert play.told(t=OTHER) == ()
    play.later(CONFIRM_MS)
    play.listed(t=T)
    assert play.told(t=OTHER) == (PutTopic("t", OTHER, replaces="idT"),)
    assert play.mirror.over == (("t", "idT"),)


@pytest.mark.parametrize(
    "missing", ["time", "a list", "the same id", "nothing of the earlier one between", "partitions"]
)
def test_another_id_does_not_count_without(missing: str) -> None:
    play = Play(t=T)
    play.listed(t=T)
    play.told(t=OTHER)
    play.later(CONFIRM_MS - (missing == "time"))
    if missing != "a list":
        play.listed(t=T)
    if missing == "nothing of the earlier one between":
        play.told(t=T)
    second = replace(OTHER, topic_id="idT3") if missing == "the same id" else OTHER
    assert play.told(t=replace(second, partitions={}) if missing == "partitions" else second) == ()
    assert play.mirror.topics == {"t": T}


@pytest.mark.parametrize("stranger", [{0: (9,), 1: (9,)}, {0: (1,)}], ids=["other replicas", "other partitions"])
def test_f225_another_id_with_other_partitions_or_replicas_than_the_list_has_never_counts(
    stranger: dict[int, tuple[int, ...]],
) -> None:
    """A broker of another cluster gives this description again and again."""
    play = Play(t=T)
    for _ in range(4):
        play.listed(t=T)
        assert play.told(t=replace(OTHER, partitions=stranger)) == ()
        play.later(CONFIRM_MS)


def replaced() -> Play:
    """`OTHER` has replaced `T`."""
    play = Play(t=OTHER)
    play.mirror = replace(play.mirror, over=(("t", "idT"),))
    return play


def test_f266_a_replaced_id_counts_again_after_ten_minutes_of_equal_answers() -> None:
    play = replaced()
    for _ in range(RETURN_MS // CONFIRM_MS):
        play.listed(t=T)
        assert play.told(t=T) == ()
        play.later(CONFIRM_MS)
    play.listed(t=T)
    assert play.told(t=T) == (PutTopic("t", T, replaces="idT2"),)
    play.listed(t=T)
    assert play.told(t=OTHER) == ()  # now the id of `OTHER` is over


@pytest.mark.parametrize("otherwise", [OTHER, replace(T, topic_id="idT3"), ABSENT], ids=["known", "third", "absent"])
def test_f266_one_answer_that_says_otherwise_starts_the_ten_minutes_anew(otherwise: Topic | Told) -> None:
    play = replaced()
    play.listed(t=T)
    play.told(t=T)
    play.later(RETURN_MS)
    play.listed(t=T)
    play.told(t=otherwise)
    assert play.told(t=T) == ()
    play.later(RETURN_MS - 1)
    play.listed(t=T)
    assert play.told(t=T) == ()


# absence


def test_an_absence_counts_when_all_answers_have_told_it_for_ten_seconds() -> None:
    play = Play(t=T, u=U)
    for _ in range(ABSENT_MS // STEP_MS):
        play.listed(u=U)
        assert play.told(t=ABSENT) == ()
        play.later(STEP_MS)
    play.listed(u=U)
    assert play.told(t=ABSENT) == (RemoveTopic("t", "idT"),)
    assert play.mirror.over == (("t", "idT"),)


@pytest.mark.parametrize("knows", ["a list", "a list alone", "a description"])
def test_f265_one_answer_that_knows_the_topic_starts_the_time_of_an_absence_anew(knows: str) -> None:
    play = Play(t=T, u=U)
    play.listed(u=U)
    play.told(t=ABSENT)
    play.later(ABSENT_MS)
    if knows == "a list":
        play.listed(t=T, u=U)
        play.told(t=ABSENT)
    elif knows == "a list alone":
        play.listed(t=T, u=U)
        play.take(Silent(Kind.DESCRIBE, "Kafka is away"))
    else:
        play.told(t=T)
    play.listed(u=U)
    assert play.told(t=ABSENT) == ()
    play.later(ABSENT_MS - 1)
    play.listed(u=U)
    assert play.told(t=ABSENT) == ()


def test_a_list_without_a_topic_and_an_answer_that_tells_nothing_of_it_take_nothing_away() -> None:
    play = Play(t=T)
    for _ in range(30):
        assert play.listed() == ()
        assert play.told(t=NOTHING) == ()
        play.later(STEP_MS)


def test_f268_lists_without_any_topic_count_for_nothing_for_five_minutes_and_it_is_told() -> None:
    """All brokers have just restarted, and were told only of each other."""
    play = Play(t=T)
    play.listed(t=T)
    for _ in range(EMPTY_MS // CONFIRM_MS):
        assert (play.listed(), play.told(t=ABSENT)) == ((), ())
        assert "names no topic at all" in (play.memory.problem or "")
        play.later(CONFIRM_MS)
    play.listed()
    assert play.told(t=ABSENT) == ()
    assert play.memory.problem is None
    play.later(ABSENT_MS)
    play.listed()
    assert play.told(t=ABSENT) == (RemoveTopic("t", "idT"),)  # so its last topic was really deleted


def test_f268_a_list_that_has_a_topic_starts_the_five_minutes_anew() -> None:
    play = Play(t=T)
    play.listed()
    play.later(EMPTY_MS)
    play.listed(t=T)
    play.listed()
    assert play.memory.problem is not None


def deleted(*over: str) -> Play:
    """The mirror has no topic `t`, and these ids of `t` are over."""
    play = Play(u=U)
    play.mirror = replace(play.mirror, over=tuple(("t", one) for one in over))
    return play


def comes_back_after(play: Play, after_ms: int, *, every_ms: int) -> None:
    """All answers have topic `t`. It is mirrored once they have done so for `after_ms`, and not before."""
    for _ in range(after_ms // every_ms):
        play.listed(t=T, u=U)
        assert play.told(t=T) == ()
        play.later(every_ms)
    play.listed(t=T, u=U)
    assert play.told(t=T) == (PutTopic("t", T),)


def test_a_topic_that_was_removed_comes_back_when_all_answers_have_told_it_for_ten_seconds() -> None:
    comes_back_after(deleted("idT0", "idT"), ABSENT_MS, every_ms=STEP_MS)


@pytest.mark.parametrize("lacks", ["a list", "a list alone", "a description"])
def test_f171_a_broker_that_still_tells_a_deleted_topic_brings_it_not_back(lacks: str) -> None:
    play = deleted("idT")
    play.listed(t=T, u=U)
    play.told(t=T)
    play.later(ABSENT_MS)
    if lacks == "a list":
        play.listed(u=U)
        assert play.told(t=T) == ()
    elif lacks == "a list alone":
        play.listed(u=U)
    else:
        play.told(t=ABSENT)
    play.listed(t=T, u=U)
    assert play.told(t=T) == ()


def test_a_new_topic_of_an_old_name_comes_at_once_and_only_the_last_old_one_soon() -> None:
    play = deleted("idT", "idT0")
    for _ in range(3):
        play.listed(t=T, u=U)
        assert play.told(t=T) == ()
        play.later(ABSENT_MS)
    play.listed(t=OTHER, u=U)
    assert play.told(t=OTHER) == (PutTopic("t", OTHER),)


def test_f266_an_earlier_topic_fills_an_empty_name_after_ten_minutes_of_equal_answers() -> None:
    comes_back_after(deleted("idT", "idT0"), RETURN_MS, every_ms=CONFIRM_MS)


# topics that grow, and new topics


def test_a_topic_that_grew_keeps_its_id_and_one_that_is_told_with_fewer_partitions_keeps_them() -> None:
    play = Play(t=T)
    play.listed(t=grown(T, range(3)))
    assert play.told(t=grown(T, range(3))) == (PutTopic("t", grown(T, range(3))),)
    assert play.told(t=grown(T, range(1))) == ()


@pytest.mark.parametrize("answer", [ABSENT, NOTHING, Told("idN", {}), Told(None, {0: (1,)})])
def test_a_new_topic_is_not_mirrored_before_an_answer_tells_its_id_and_partitions(answer: Told) -> None:
    play = Play(t=T)
    play.listed(t=T, n=U)
    assert play.told(n=answer) == ()
    assert play.told(n=U) == (PutTopic("n", U),)


# answers that must not count


def test_of_another_cluster_nothing_counts_and_what_was_suspected_is_forgotten() -> None:
    play = Play(t=T)
    play.listed(t=T)
    play.told(t=OTHER)
    play.later(CONFIRM_MS)
    assert play.listed("d", t=T) == ()
    assert "--bootstrap-servers" in (play.memory.problem or "")
    assert play.told(t=OTHER) == ()  # no list of this cluster has come since
    play.listed(t=T)
    assert play.memory.problem is None
    assert play.told(t=OTHER) == ()
    assert play.take(Cluster("d", {})) == ()


@pytest.mark.parametrize("told", [ABSENT, grown(T, range(3)), OTHER], ids=["absent", "grown", "another id"])
def test_a_description_before_the_first_list_counts_for_nothing_and_is_not_remembered(told: Topic | Told) -> None:
    """A description does not name its cluster."""
    play = Play(t=T)
    before = play.memory
    assert (play.told(t=told), play.memory) == ((), before)


@pytest.mark.parametrize("cluster_id", ["c", ""])
def test_a_list_of_a_broker_without_a_controller_counts_for_nothing(cluster_id: str) -> None:
    play = Play(t=T)
    play.listed(t=T)
    lists = play.memory.lists
    assert play.listed(cluster_id, whole=False) == ()
    assert (play.memory.lists, play.memory.problem is None) == (lists, False)


def test_silence_changes_nothing_and_is_told_until_the_same_question_is_answered() -> None:
    play = Play(t=T)
    play.listed(t=T)
    assert play.take(Silent(Kind.DESCRIBE, "Kafka is away")) == ()
    assert play.memory.problem == "Kafka is away; topics stay as they are known"
    play.listed(t=T)
    assert play.memory.problem is not None
    play.told(t=T)
    assert play.memory.problem is None


def test_a_topic_without_an_id_is_told_and_the_telling_ends_with_its_id() -> None:
    play = Play(t=T)
    play.listed(t=T, n=U)
    play.told(n=Told(None, {0: (1,)}))
    assert "no id of topic n" in (play.memory.problem or "")
    play.told(n=U)
    assert play.memory.problem is None


# the first answers


def test_the_first_list_names_the_cluster_and_nothing_else() -> None:
    play = Play(whole=False)
    play.mirror = replace(play.mirror, cluster_id="")
    assert play.listed(t=T) == (NameCluster("c"),)
    assert play.told(t=T) == ()
    assert play.memory.lists == 0


def test_f223_a_new_tree_names_no_other_cluster_than_that_of_its_zookeeper() -> None:
    play = Play(whole=False)
    play.mirror = replace(play.mirror, cluster_id="", beside="mine")
    assert play.listed("other", t=T) == ()
    told = play.memory.problem or ""
    assert "of the cluster 'other'" in told and "names 'mine'" in told and "--bootstrap-servers" in told
    assert play.listed("mine", t=T) == (NameCluster("mine"),)
    assert play.memory.problem is None


@pytest.mark.parametrize("missing", ["", "time", "a topic", "the brokers", "a topic of the list before"])
def test_the_mirror_is_whole_when_all_of_two_lists_is_mirrored_and_brokers_were_told(missing: str) -> None:
    play = Play(whole=False, t=T)
    play.listed(t=T)
    if missing != "the brokers":
        play.take(Cluster("c", {1: B1}))
    play.later(CONFIRM_MS - (missing == "time"))
    if missing == "a topic of the list before":
        play.listed(t=T, n=U)
    more = {"n": U} if missing == "a topic" else {}
    assert play.listed(t=T, **more) == (() if missing else (Complete(),))


def test_a_list_that_names_other_brokers_puts_the_whole_mirror_off_until_they_are_told() -> None:
    play = Play(whole=False, t=T)
    play.listed(t=T)
    play.take(Cluster("c", {1: B1}))
    play.later(CONFIRM_MS)
    assert play.take(Listed("c", frozenset({1, 9}), {"t": shape_of(T.partitions)})) == ()


def test_of_ids_that_are_over_the_latest_are_kept() -> None:
    over = tuple((f"t{n}", "x") for n in range(OVER_MAX))
    assert over_with(over, [("t1", "x"), ("new", "y")]) == (*over[2:], ("t1", "x"), ("new", "y"))


# any answers


TOPICS = st.builds(
    Topic,
    topic_id=st.sampled_from(["id1", "id2", "id3"]),
    partitions=st.sampled_from([{0: (1,)}, {0: (1,), 1: (1,)}]),
)
AGREED = st.tuples(st.just("agreed"), TOPICS | st.just(ABSENT))
STEPS = st.one_of(
    AGREED,
    AGREED,  # as often as all others together, so that several topics of one name follow each other
    AGREED,
    st.tuples(st.just("list"), TOPICS | st.just(ABSENT)),
    st.tuples(st.just("tell"), TOPICS | st.sampled_from([ABSENT, NOTHING])),
    st.tuples(st.just("wait"), st.sampled_from([STEP_MS, CONFIRM_MS, ABSENT_MS])),
)


@example([("agreed", Topic(topic_id=f"id{number}", partitions={0: (1,)})) for number in (1, 2, 3, 1)])
@settings(deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=12))
def test_no_replaced_topic_id_comes_back_whatever_is_answered(
    steps: list[tuple[str, Topic | Told | int]],
) -> None:
    """`agreed`: all answers are equal for longer than any wait of the mirror."""
    play, replaced, listed = Play(), set[str](), ""
    single: list[tuple[str, Topic | Told | int]] = []
    for what, said in steps:
        around = [("list", said), ("tell", said), ("wait", ABSENT_MS)]
        single += [*around, *around[:2]] if what == "agreed" else [(what, said)]
    for what, said in single:
        before = play.mirror.topics.get("t")
        if isinstance(said, int):
            play.later(said)
            continue
        if what == "list":
            listed = shape_of(said.partitions or {})
            changes = play.listed(t=said) if isinstance(said, Topic) else play.listed()
        else:
            changes = play.told(t=said)
        for change in changes:
            if isinstance(change, PutTopic):
                assert change.topic.topic_id not in replaced
                if before is not None and before.topic_id == change.topic.topic_id:
                    assert before.partitions.keys() < change.topic.partitions.keys()
                else:
                    assert shape_of(change.topic.partitions) == listed
                    replaced |= {change.replaces} if change.replaces else set()
