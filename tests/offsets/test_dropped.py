"""An earlier topic's offsets are dropped while a tool makes a group's two stores equal, on a tree in memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from tests.offsets.two_trees import P0, P1, Pair, drop_offsets, put
from zkcoord.core.offset_store import STORES
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Stamp, Tenure
from zkcoord.errors import UnavailableError
from zkcoord.offsets.equality import Equality
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.offsets.writing import readers_of
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.topic import Mark, encode_mark

EARLIER = Stamp(tenure=Tenure("aa", 5), incarnation=3)


class Kafka:
    """Commits of the earlier topic, made in an earlier tenure."""

    def __init__(self) -> None:
        self.commits: Commits = {p: KafkaCommit(offset=90, stamp=EARLIER) for p in (P0, P1)}

    def read(self, groups: Collection[str]) -> ReadCommits:
        return ReadCommits(found=dict.fromkeys(groups, self.commits), unknown={})

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        self.commits = {**self.commits, **commits}
        return CommitOutcome(done=frozenset(commits))


@pytest.mark.parametrize("goal", [store for store in STORES if store != "dual"])
def test_f335_an_offset_that_is_dropped_with_its_topic_is_not_made_again_from_the_commit_in_kafka(goal: str) -> None:
    """The tool had read the mark before the offsets. So the earlier topic's commit seemed to count, and the later topic
    was read from there."""
    for at in itertools.count(1):
        tree, kafka = Pair.of().memory(0), Kafka()
        put(tree, {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, store_name="dual"))})
        reads = tree.act_at_read(at, partial(drop_offsets, tree))
        equality = Equality(
            tree=tree, commits=kafka, layout=DRAFT, tree_id="aa", group="g", goal=goal, existing={P0, P1}
        )
        for _ in range(2):
            with suppress(UnavailableError):
                equality.look((), readers_of(tree.read, DRAFT, "g").guard, 1)
        assert at > reads() or not {DRAFT.offset("g", p) for p in (P0, P1)} & tree.nodes.keys(), at
        if at >= reads():
            break


def test_f335_between_two_multis_of_a_drop_no_offset_of_it_is_made_again() -> None:
    """A topic of many partitions is dropped in several multis, and the mark changes with the last one."""
    tree, kafka = Pair.of().memory(0), Kafka()
    put(tree, {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, store_name="dual"))})
    put(tree, {DRAFT.mark("g", "clicks"): encode_mark(Mark(incarnation=3, topic_id=None, czxid=7, root_czxid=1))})
    del tree.nodes[DRAFT.offset("g", P0)]
    equality = Equality(
        tree=tree, commits=kafka, layout=DRAFT, tree_id="aa", group="g", goal="kafka", existing={P0, P1}
    )
    assert equality.look((), readers_of(tree.read, DRAFT, "g").guard, 1) == []
    assert DRAFT.offset("g", P0) not in tree.nodes


def test_commits_that_a_tool_makes_name_the_topics_incarnation() -> None:
    """Otherwise they would count for a later topic of that name."""
    tree, kafka = Pair.of().memory(0), Kafka()
    put(tree, {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, store_name="dual"))})
    equality = Equality(
        tree=tree, commits=kafka, layout=DRAFT, tree_id="aa", group="g", goal="kafka", existing={P0, P1}
    )
    assert len(equality.look((), readers_of(tree.read, DRAFT, "g").guard, 1)) == 2
    made = {p: (each.offset, each.stamp and each.stamp.incarnation) for p, each in kafka.commits.items()}
    assert made == {P0: (100, 3), P1: (7, 3)}
