"""The offsets that a tool sets in Kafka, too, when it writes offset nodes: they depend on the group's store. No
server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Rule, Stamp, Tenure
from zkcoord.errors import UnavailableError
from zkcoord.offsets.in_kafka import set_in_kafka
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.offsets.reading import Kept, kept_by
from zkcoord.tree.paths import DRAFT, LEGACY, Layout

OURS, OTHERS, NOBODYS = (TopicPartition("t", number) for number in range(3))  # by who committed to Kafka
NODES = Adoption(offsets="zookeeper", strategy="range", kafka="0.11")
ALONE = replace(NODES, offsets="kafka")
BOTH = replace(ALONE, dual_commit=True)


class Store:
    """A group's commits in Kafka: one of zkcoord's, and one of another program."""

    def __init__(self, refuses: bool = False) -> None:
        self.commits: Commits = {
            OURS: KafkaCommit(offset=9, stamp=Stamp(tenure=Tenure("", 5))),
            OTHERS: KafkaCommit(offset=9),
        }
        self.made: Commits = {}
        self._refuses = refuses

    def read(self, groups: Collection[str]) -> ReadCommits:
        return ReadCommits(found=dict.fromkeys(groups, self.commits), unknown={})

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        self.made = commits
        if self._refuses:
            return CommitOutcome(unknown=dict.fromkeys(commits, UnavailableError("no answer")))
        return CommitOutcome(done=frozenset(commits))


@pytest.mark.parametrize(
    ("layout", "record", "kept"),
    [
        (DRAFT, None, Kept(Rule.ZOOKEEPER, "zookeeper", False, False)),
        (DRAFT, DEFAULT_RECORD, Kept(Rule.ZOOKEEPER, "zookeeper", False, False)),
        (DRAFT, GroupRecord(store_name="dual"), Kept(Rule.TENURE, "dual", False, False)),
        (DRAFT, GroupRecord(store_name="kafka"), Kept(Rule.TENURE, "kafka", False, True)),
        (LEGACY, None, Kept(Rule.OLD_DUAL, "old", True, False)),
        (LEGACY, GroupRecord(adoption=NODES), Kept(Rule.ZOOKEEPER, "zookeeper", False, False)),
        (LEGACY, GroupRecord(adoption=BOTH), Kept(Rule.OLD_DUAL, "zookeeper", True, True)),
        (LEGACY, GroupRecord(store_name="dual", adoption=BOTH), Kept(Rule.TENURE, "dual", True, True)),
        (LEGACY, GroupRecord(store_name="kafka", adoption=BOTH), Kept(Rule.TENURE, "kafka", False, True)),
        (LEGACY, GroupRecord(store_name="dual", adoption=NODES), Kept(Rule.TENURE, "dual", False, False)),
        (LEGACY, GroupRecord(store_name="kafka", adoption=ALONE), Kept(Rule.OLD_IN_KAFKA, "kafka", False, True)),
        (LEGACY, GroupRecord(store_name="zookeeper", adoption=ALONE), Kept(Rule.ZOOKEEPER, "zookeeper", False, False)),
    ],
)
def test_a_record_tells_how_a_group_keeps_its_offsets(layout: Layout, record: GroupRecord | None, kept: Kept) -> None:
    assert kept_by(layout, record) == kept


@pytest.mark.parametrize(
    ("layout", "record", "followed"),
    [
        (DRAFT, DEFAULT_RECORD, ()),
        (DRAFT, GroupRecord(store_name="dual"), ()),  # in `dual` no consumer starts at another program's commit
        (DRAFT, GroupRecord(store_name="kafka"), (OTHERS,)),
        (LEGACY, None, (OURS, OTHERS)),
        (LEGACY, GroupRecord(store_name="dual", adoption=BOTH), (OURS, OTHERS)),
        (LEGACY, GroupRecord(store_name="kafka", adoption=BOTH), (OTHERS,)),
        (LEGACY, GroupRecord(store_name="kafka", adoption=ALONE), (OURS, OTHERS, NOBODYS)),
    ],
)
def test_kafka_is_set_where_somebody_goes_on_from_what_stands_there(
    layout: Layout, record: GroupRecord | None, followed: tuple[TopicPartition, ...]
) -> None:
    store = Store()
    set_in_kafka(store, "g", kept_by(layout, record), {OURS: 1, OTHERS: 2, NOBODYS: 3})
    wanted = {OURS: KafkaCommit(offset=1), OTHERS: KafkaCommit(offset=2), NOBODYS: KafkaCommit(offset=3)}
    assert store.made == {partition: wanted[partition] for partition in followed}


def test_a_commit_that_nobody_answers_ends_it_before_a_node_is_written() -> None:
    with pytest.raises(UnavailableError, match="no answer"):
        set_in_kafka(Store(refuses=True), "g", kept_by(DRAFT, GroupRecord(store_name="kafka")), {OTHERS: 2})
