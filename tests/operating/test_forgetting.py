"""Which groups have commits in Kafka that go with them when they are deleted. No server."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.migrate.memory_tree import MemoryTree
from tests.offsets.test_in_kafka import Store
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DONE, PAUSE, GroupRecord, Request
from zkcoord.core.requests import ADOPTED
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.errors import UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import upgrade
from zkcoord.operating.forgetting import forget_commits, forget_in_kafka, refuse_handed_over
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import encode_record

P0, P1 = (TopicPartition("t", number) for number in range(2))


class Commits(Store):
    """A group's commits in Kafka, which nobody uses but zkcoord."""

    def users(self, group: str) -> list[str]:
        return []

    def forget(self, group: str) -> None:
        self.commits = {}


@pytest.mark.parametrize(("store", "step"), [("dual", 1), ("kafka", 2), ("zookeeper", 2)])
def test_a_group_that_has_ever_committed_to_kafka_is_not_deleted_without_its_commits_there(
    store: str, step: int
) -> None:
    """Without a node what stands in Kafka counts: a later group of that name that goes to `dual` would go on there."""
    tree = MemoryTree()
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name=store, store_step=step)))
    with pytest.raises(UsageError, match="group g has offsets in Kafka, too: give --bootstrap-servers"):
        forget_in_kafka(tree, DRAFT, "g", None)


@pytest.mark.parametrize("record", [None, GroupRecord()])
def test_a_group_that_has_never_committed_to_kafka_needs_none(record: GroupRecord | None) -> None:
    tree = MemoryTree()
    if record is not None:
        tree.set(DRAFT.record("g"), encode_record(record))
    forget_in_kafka(tree, DRAFT, "g", None)


def not_opened() -> KafkaClient:
    raise AssertionError("Kafka is not to be asked")


@pytest.mark.parametrize("state", list(MoveState))
def test_f275_of_a_group_that_is_in_another_tree_or_on_its_way_no_commit_is_removed(state: MoveState) -> None:
    """The deletion was refused, and its consumers over there had lost what they had committed since the checkpoint."""
    moved = Moved(state=state, tree="bb", address="zk2:2181/kafka", run="r1")
    tree = MemoryTree()
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", store_step=2, moved=moved)))
    with pytest.raises(UsageError, match=f"group g {moved.where()}: nothing is changed here"):
        forget_in_kafka(tree, DRAFT, "g", not_opened)


@pytest.mark.parametrize("dual_commit", [False, True])
def test_f275_of_a_group_that_was_adopted_no_commit_is_removed(dual_commit: bool) -> None:
    """The deletion was refused, and old members that read Kafka alone began by their reset policy."""
    adoption = Adoption(offsets="kafka", dual_commit=dual_commit, strategy="range", kafka="1.1")
    record = GroupRecord(store_name=adoption.store_name, store_step=1, adoption=adoption)
    tree = MemoryTree()
    tree.set(LEGACY.record("g"), encode_record(record))
    with pytest.raises(UsageError, match=f"group g: {ADOPTED}"):
        forget_in_kafka(tree, LEGACY, "g", not_opened)


@pytest.mark.parametrize(
    ("trees", "kept"),
    [(("bb", "bb"), True), (("bb", None), True), (("bb", "aa"), False), (("aa", "aa"), False), ((None, None), False)],
)
def test_f277_commits_of_another_tree_are_not_removed_with_a_groups_copy(
    trees: tuple[str | None, str | None], kept: bool
) -> None:
    """A backup was restored beside its tree: the copy's deletion took the commits of the group that reads on."""
    tree = MemoryTree()
    upgrade(tree, run_id="test", tree_id="aa")
    tree.set(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", store_step=2)))
    for partition in (P0, P1):
        tree.set(DRAFT.offset("g", partition), b"5")
    kafka = Commits()
    stamps = [None if name is None else Stamp(tenure=Tenure(name, 7)) for name in trees]
    kafka.commits = {p: KafkaCommit(offset=9, stamp=stamp) for p, stamp in zip((P0, P1), stamps, strict=True)}
    with pytest.raises(UsageError, match="its commits in Kafka were made from another tree") if kept else nullcontext():
        forget_commits(tree, DRAFT, "g", kafka)
    assert bool(kafka.commits) is kept


def test_f357_of_an_adopted_group_that_was_handed_over_it_is_said_that_it_is_released_instead() -> None:
    adoption = Adoption(offsets="zookeeper", strategy="range", kafka="1.1")
    pause = Request(run="r", handed_over=DONE)
    record = GroupRecord(store_name="kafka", store_step=2, adoption=adoption, requests={PAUSE: pause})
    tree = MemoryTree()
    tree.set(LEGACY.record("g"), encode_record(record))
    with pytest.raises(UsageError, match=f"group g: {ADOPTED}"):
        refuse_handed_over(tree, LEGACY, "g")
