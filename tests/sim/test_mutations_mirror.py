"""The simulator can fail: if a rule of the mirror of Kafka's topics is taken away, a storm or a scene fails.

Only failures of checkers and assertions count: a mutated product that merely stops working proves no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import test_failures_mirror as scenes
from tests.sim import test_failures_strangers as strangers
from tests.sim.mutations import Case, Patch, Play, must_be_missed
from tests.sim.test_mirror_storms import mirrored_storm
from zkcoord.core import topic_mirror
from zkcoord.core.topic_answers import Answer, Described, Listed, Silent, Told
from zkcoord.core.topic_mirror import CONFIRM_MS, Change, Memory, Mirror, PutTopic, RemoveTopic, Topic
from zkcoord.serving import topic_mirror as serving

Taken = tuple[Memory, tuple[Change, ...]]


def _judged(patch: Patch, judge: Callable[[Any, str, Topic, Told], Change | None]) -> None:
    """Judge a mirrored topic first by this function; if it returns None, by the product's own rule."""
    original = topic_mirror._Judge.changed

    def changed(self: Any, name: str, known: Topic, told: Told) -> Change | None:
        return judge(self, name, known, told) or original(self, name, known, told)

    patch.setattr(topic_mirror._Judge, "changed", changed)


def without_confirmation(patch: Patch) -> None:
    """An absence, and another id, count at once."""
    patch.setattr(topic_mirror._Judge, "_confirmed", lambda self, name, says, within_ms: True)


def one_answer_replaces_an_id(patch: Patch) -> None:
    """Another id counts with the first answer that tells it; absences are confirmed."""
    original = topic_mirror._Judge._confirmed

    def confirmed(self: Any, name: str, says: str, within_ms: int) -> bool:
        return within_ms == CONFIRM_MS or original(self, name, says, within_ms)

    patch.setattr(topic_mirror._Judge, "_confirmed", confirmed)


def what_no_list_has_counts(patch: Patch) -> None:
    """A new topic, and another id, count whatever partitions and replicas the last list has."""
    patch.setattr(topic_mirror._Judge, "_as_listed", lambda self, name, told: True)


def a_list_deletes(patch: Patch) -> None:
    """A topic that a list lacks is removed."""
    original = serving.take

    def take(mirror: Mirror, memory: Memory, answer: Answer, now_ms: int) -> Taken:
        after, changes = original(mirror, memory, answer, now_ms)
        if not isinstance(answer, Listed) or answer.cluster_id != mirror.cluster_id:
            return after, changes
        gone = sorted(mirror.topics.keys() - answer.shapes.keys())
        return after, (*changes, *(RemoveTopic(name, mirror.topics[name].topic_id) for name in gone))

    patch.setattr(serving, "take", take)


def an_old_id_returns(patch: Patch) -> None:
    """Nobody remembers which ids are over."""
    _mirrors(patch, lambda mirror, answer: replace(mirror, over=()))


def lists_without_topics_count(patch: Patch) -> None:
    """A list that names no topic is as any other one."""
    patch.setattr(topic_mirror, "EMPTY_MS", 0)


def partitions_shrink(patch: Patch) -> None:
    """Under one id an answer with fewer partitions counts."""

    def judge(judge: Any, name: str, known: Topic, told: Told) -> Change | None:
        fewer = told.partitions and told.topic_id == known.topic_id and told.partitions.keys() < known.partitions.keys()
        return PutTopic(name, replace(known, partitions=told.partitions or {})) if fewer else None

    _judged(patch, judge)


def no_cluster_is_compared(patch: Patch) -> None:
    """Whatever cluster answers is the tree's."""

    def mirror_of(mirror: Mirror, answer: Answer) -> Mirror:
        told = None if isinstance(answer, Described | Silent) else answer.cluster_id
        return replace(mirror, cluster_id=told) if mirror.cluster_id and told else mirror

    _mirrors(patch, mirror_of)


def no_cluster_beside_is_compared(patch: Patch) -> None:
    """A new tree takes the first answer's cluster for its own."""
    _mirrors(patch, lambda mirror, answer: replace(mirror, beside=""))


def an_answer_without_an_id_counts(patch: Patch) -> None:
    """No id is taken for another id."""

    def changed(answer: Answer) -> Answer:
        if not isinstance(answer, Described):
            return answer
        told = {
            n: one._replace(topic_id=one.topic_id or "none") if one.partitions else one for n, one in _items(answer)
        }
        return Described(told)

    _answers(patch, changed)


def _items(answer: Described) -> list[tuple[str, Told]]:
    return sorted(answer.topics.items())


def _answers(patch: Patch, change: Callable[[Answer], Answer]) -> None:
    """Replace the function that takes answers in."""
    original = serving.take

    def take(mirror: Mirror, memory: Memory, answer: Answer, now_ms: int) -> Taken:
        return original(mirror, memory, change(answer), now_ms)

    patch.setattr(serving, "take", take)


def _mirrors(patch: Patch, change: Callable[[Mirror, Answer], Mirror]) -> None:
    """Replace the function that compares answers with the mirror."""
    original = serving.take

    def take(mirror: Mirror, memory: Memory, answer: Answer, now_ms: int) -> Taken:
        return original(change(mirror, answer), memory, answer, now_ms)

    patch.setattr(serving, "take", take)


def judged(play: Play) -> Play:
    """The same scene, but every exception except an assertion's fails the test, since it says nothing about the
    rule."""

    def played(seed: int) -> None:
        try:
            play(seed)
        except AssertionError:  # a checker's error is an assertion, too
            raise
        except Exception as error:
            pytest.fail(f"the mutated product broke by itself: {error!r}")

    return played


MISSED: Mapping[str, Case] = {
    each.mutate.__name__: each
    for each in (
        Case(without_confirmation, scenes.test_f152_brokers_that_lag_for_a_while_delete_no_offset_and_stop_nobody),
        Case(one_answer_replaces_an_id, scenes.test_f225_one_answer_of_another_cluster_among_this_ones_changes_nothing),
        Case(
            what_no_list_has_counts,
            strangers.test_f225_another_clusters_description_between_two_lists_is_not_taken_in,
        ),
        Case(a_list_deletes, mirrored_storm.__wrapped__, 12),
        Case(an_old_id_returns, scenes.test_f154_an_id_that_was_replaced_never_returns_however_often_a_broker_tells_it),
        Case(
            lists_without_topics_count,
            strangers.test_f268_while_brokers_name_no_topic_at_all_groups_read_on_and_no_offset_goes,
        ),
        Case(partitions_shrink, mirrored_storm.__wrapped__, 12),
        Case(no_cluster_is_compared, mirrored_storm.__wrapped__, 12),
        Case(
            no_cluster_beside_is_compared,
            scenes.test_f223_a_new_tree_takes_no_topics_from_another_cluster_than_that_of_its_zookeeper,
        ),
        Case(an_answer_without_an_id_counts, mirrored_storm.__wrapped__, 12),
    )
}


@pytest.mark.parametrize("name", MISSED)
def test_a_rule_of_the_mirror_is_missed(name: str) -> None:
    case = MISSED[name]
    must_be_missed(case.mutate, judged(case.play), case.seeds)
