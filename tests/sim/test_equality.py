"""Offsets must be equal in both stores before a group takes a step away from `dual`. The tool makes those equal that
nobody holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import parsed
from tests.sim.offset_log import LogStore
from tests.sim.store_scene import StoreScene, begin_in
from tests.sim.store_tool import ToolTree, tree_id
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import KAFKA, ZOOKEEPER
from zkcoord.core.tenure import CommitOutcome, KafkaCommit, Rule, Stamp, Tenure
from zkcoord.errors import UnavailableError
from zkcoord.offsets.equality import Equality
from zkcoord.offsets.ports import Commits, ReadCommits
from zkcoord.offsets.writing import RecordChangedError
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, CheckNode, DeleteNode, SetNode, Transaction

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORD = DRAFT.record(GROUP)
MEMBER = "g_consumer0-1-0"


class Racing(LogStore):
    """A Kafka in which another event happens just before the next commit arrives."""

    between: Callable[[], object] | None = None

    def commit(self, group: str, commits: Commits) -> CommitOutcome:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super().commit(group, commits)


def without_readers(*, topics: int = 2) -> StoreScene:
    """A group in `dual` that has read some records and is paused."""
    scene = begin_in(1, "dual", topics={"t": topics}, consumers=1)
    scene.world.run_for(3_000)
    scene.request("pause")
    scene.world.run_until(lambda: scene.answered("pause"), what="it is paused")
    scene.log.forget(list(scene.log.commits))
    return scene


def equality(scene: StoreScene, goal: str = KAFKA, kafka: LogStore | None = None, rule: Rule = Rule.TENURE) -> Equality:
    return Equality(
        tree=ToolTree(scene.world.ensemble),
        commits=kafka or LogStore(scene.log),
        layout=DRAFT,
        tree_id=tree_id(scene),
        group=GROUP,
        goal=goal,
        existing=frozenset(scene.partitions()),
        rule=rule,
    )


def guard(scene: StoreScene) -> list[CheckNode]:
    stat = scene.world.ensemble.stat(RECORD)
    assert stat is not None
    return [CheckNode(RECORD, stat.version)]


def different(scene: StoreScene, found: Equality, members: tuple[str, ...] = ()) -> list[TopicPartition]:
    return [each.partition for each in found.look(members, guard(scene), scene.world.now_ms)]


def set_node(scene: StoreScene, partition: TopicPartition, offset: int) -> None:
    path = DRAFT.offset(GROUP, partition)
    stat = scene.world.ensemble.stat(path)
    assert stat is not None
    scene.world.ensemble.operate(SetNode(path, b"%d" % offset, stat.version))


def in_tenure(scene: StoreScene, partition: TopicPartition, offset: int) -> None:
    """A commit in Kafka under the node's present tenure."""
    stat = scene.world.ensemble.stat(DRAFT.offset(GROUP, partition))
    assert stat is not None
    scene.log.commit(
        "", {partition: KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure(tree_id(scene), stat.mzxid)))}
    )


def test_free_partitions_are_made_equal_and_seen_so_at_the_next_look() -> None:
    scene = without_readers()
    before = [scene.node(p) for p in (T0, T1)]
    found = equality(scene)
    assert different(scene, found) == [T0, T1]
    assert different(scene, found) == []
    assert [scene.node(p) for p in (T0, T1)] == before == [scene.in_kafka(p) for p in (T0, T1)]
    assert [scene.ledger.counted(p) for p in (T0, T1)] == before


@pytest.mark.parametrize("goal", [KAFKA, ZOOKEEPER])
def test_an_offset_that_counts_in_kafka_alone_comes_into_its_node(goal: str) -> None:
    """The partition's owner died in the store `kafka`, and nobody has been granted the partition since."""
    scene = without_readers()
    in_tenure(scene, T0, scene.node(T0) + 100)
    counts, before = scene.node(T0) + 100, scene.log.commits[T0]
    found = equality(scene, goal)
    assert T0 in different(scene, found)
    assert different(scene, found) == []
    assert scene.node(T0) == counts == scene.ledger.counted(T0)
    assert (scene.log.commits[T0] == before) is (goal == ZOOKEEPER)  # Kafka is not read in the store `zookeeper`


def test_on_the_way_back_no_commit_of_old_members_is_left_where_these_count() -> None:
    """The commit is equal to the node now. But when the group comes back to Kafka later, it would go on from this
    commit."""
    scene = without_readers()
    scene.log.stranger_commits(T0, scene.node(T0))
    found = equality(scene, ZOOKEEPER, rule=Rule.OLD_IN_KAFKA)
    assert T0 in different(scene, found)
    assert different(scene, found) == []
    commit = LogStore(scene.log).read([GROUP]).of(GROUP)[T0]
    assert (commit.offset, commit.stamp is None) == (scene.node(T0), False)


@pytest.mark.parametrize("goal", [KAFKA, ZOOKEEPER])
def test_an_offset_without_a_node_comes_into_one(goal: str) -> None:
    scene = without_readers()
    path = DRAFT.offset(GROUP, T0)
    stat = scene.world.ensemble.stat(path)
    assert stat is not None
    scene.log.stranger_commits(T0, 77)
    scene.world.ensemble.operate(DeleteNode(path, stat.version))
    found = equality(scene, goal)
    assert T0 in different(scene, found)
    assert different(scene, found) == []
    assert (scene.node(T0), scene.in_kafka(T0)) == (77, 77)
    stat = scene.world.ensemble.stat(path)
    assert stat is not None and stat.version == 1  # the tenure is known only from the reply to a set


def test_an_offset_of_a_topic_without_any_node_comes_into_one() -> None:
    scene = without_readers(topics=1)
    ensemble = scene.world.ensemble
    for path in (DRAFT.offset(GROUP, T0), DRAFT.topic_offsets(GROUP, "t")):
        ensemble.operate(DeleteNode(path, ANY_VERSION))
    scene.log.stranger_commits(T0, 77)
    found = equality(scene)
    assert different(scene, found) == [T0]
    assert different(scene, found) == []
    assert scene.node(T0) == 77


def test_an_earlier_topics_commit_does_not_count_and_commits_name_the_present_topic() -> None:
    scene = without_readers()
    ensemble, mark = scene.world.ensemble, DRAFT.mark(GROUP, "t")
    ensemble.operate(
        SetNode(mark, json.dumps({**parsed(ensemble.data(mark) or b""), "incarnation": 2}).encode(), ANY_VERSION)
    )
    ensemble.operate(DeleteNode(DRAFT.offset(GROUP, T0), ANY_VERSION))
    earlier = KafkaCommit(offset=77, stamp=Stamp(tenure=Tenure(tree_id(scene), 1), incarnation=1))
    scene.log.commit("", {T0: earlier})
    assert different(scene, equality(scene)) == [T1]
    assert scene.log.commits[T0] == earlier
    stamp = scene.log.commits[T1].stamp
    assert stamp is not None and stamp.incarnation == 2


@pytest.mark.parametrize("goal", [KAFKA, ZOOKEEPER])
def test_a_partition_without_any_offset_does_not_hold_up_a_step(goal: str) -> None:
    scene = without_readers()
    path = DRAFT.offset(GROUP, T0)
    stat = scene.world.ensemble.stat(path)
    assert stat is not None
    scene.world.ensemble.operate(SetNode(path, b"", stat.version))
    assert T0 not in different(scene, equality(scene, goal))


@pytest.mark.parametrize("owner_commits", ["before Kafka is read", "after Kafka is read"])
def test_an_offset_is_equal_by_either_reading_of_its_node_since_its_owner_commits_all_the_time(
    owner_commits: str,
) -> None:
    scene = without_readers()
    in_tenure(scene, T0, scene.node(T0))
    in_tenure(scene, T1, scene.node(T1))

    class Busy(LogStore):
        def read(self, groups: Collection[str]) -> ReadCommits:
            found = super().read(groups)
            set_node(scene, T0, scene.node(T0) + 10)
            in_tenure(scene, T0, scene.node(T0))
            return found if owner_commits == "after Kafka is read" else super().read(groups)

    assert different(scene, equality(scene, kafka=Busy(scene.log))) == []


def test_on_the_way_back_to_zookeeper_nothing_is_asked_of_kafka_but_what_counts() -> None:
    scene = without_readers()
    scene.log.stranger_commits(T0, 9_000)
    assert different(scene, equality(scene, ZOOKEEPER)) == []


def test_a_members_partitions_are_left_to_it() -> None:
    scene = begin_in(1, "dual", topics={"t": 2}, consumers=1)
    scene.log.forget(list(scene.log.commits))
    member = scene.member("consumer0")
    kafka = Racing(scene.log)
    found = equality(scene, kafka=kafka)
    written = len(scene.world.ensemble.log)
    assert different(scene, found, (member,)) == [T0, T1]
    assert len(scene.world.ensemble.log) == written
    in_tenure(scene, T0, scene.node(T0))
    assert different(scene, found, (member,)) == [T1]
    scene.log.forget([T0])  # it was seen to be equal once
    assert different(scene, found, (member,)) == [T1]


def test_f119_a_partition_granted_while_made_equal_keeps_its_owners_offset() -> None:
    """The tool's commit comes after the owner's start, and after the owner's own commit."""
    scene = without_readers()
    offset = scene.node(T0)
    kafka = Racing(scene.log)

    def owner_starts_and_commits() -> None:
        set_node(scene, T0, offset)
        set_node(scene, T0, offset + 50)
        in_tenure(scene, T0, offset + 50)

    kafka.between = owner_starts_and_commits
    found = equality(scene, kafka=kafka)
    assert different(scene, found) == [T0, T1]
    assert scene.in_kafka(T0) == offset  # the tool's commit replaced the owner's, and does not count
    assert scene.ledger.counted(T0) == offset + 50
    assert different(scene, found, (MEMBER,)) == [T0]
    assert scene.ledger.counted(T0) == offset + 50


@pytest.mark.parametrize("owners", [("", MEMBER), (MEMBER, "")])
def test_a_partition_held_at_either_reading_is_left_alone(owners: tuple[str, str]) -> None:
    scene = without_readers()
    path, ensemble = DRAFT.owner(GROUP, T0), scene.world.ensemble

    def owned_by(owner: str) -> None:
        ensemble.operate(SetNode(path, f"{owner}-0".encode() if owner else b"", ANY_VERSION))

    class Passing(LogStore):
        def read(self, groups: Collection[str]) -> ReadCommits:
            owned_by(owners[1])
            return super().read(groups)

    owned_by(owners[0])
    assert different(scene, equality(scene, kafka=Passing(scene.log)), (MEMBER,)) == [T0, T1]
    assert (scene.in_kafka(T0), scene.in_kafka(T1)) == (None, scene.node(T1))


def test_a_commit_of_an_earlier_tenure_is_not_equal_though_its_offset_is() -> None:
    scene = without_readers()
    for partition in (T0, T1):
        in_tenure(scene, partition, scene.node(partition))
    set_node(scene, T0, scene.node(T0))
    found = equality(scene)
    assert different(scene, found) == [T0]
    assert different(scene, found) == []


def test_nothing_is_committed_of_what_somebody_else_has_set_meanwhile() -> None:
    scene = without_readers()

    class Raced(ToolTree):
        def commit(self, transaction: Transaction) -> CommitDone:
            set_node(scene, T0, scene.node(T0) + 1)
            return super().commit(transaction)

    found = equality(scene)
    found.tree = Raced(scene.world.ensemble)
    assert different(scene, found) == [T0, T1]
    assert scene.log.commits == {}


def test_nothing_is_written_once_somebody_changed_the_record() -> None:
    scene = without_readers()
    stale = guard(scene)
    scene.edit_record(weights={"t-0": 2})
    with pytest.raises(RecordChangedError, match="somebody changed its record"):
        equality(scene).look((), stale, scene.world.now_ms)
    assert scene.in_kafka(T0) is None


def test_offsets_of_a_topic_that_is_gone_are_left_as_they_are() -> None:
    scene = without_readers()
    found = equality(scene)
    found.existing = frozenset({T1})
    assert different(scene, found) == [T1]
    assert different(scene, found) == []
    assert scene.in_kafka(T0) is None


def test_a_partition_that_kafka_refuses_is_told_with_its_reason() -> None:
    scene = without_readers()
    scene.log.intrude(scene.world.now_ms + 1_000)
    found = equality(scene)
    assert different(scene, found) == [T0, T1]
    (first, _) = found.look((), guard(scene), scene.world.now_ms)
    assert "consumers of Kafka's own protocol use the group id" in first.why
    assert (first.zookeeper, first.kafka, first.counts) == (scene.node(T0), None, scene.node(T0))


def test_a_reason_is_told_until_the_commit_works() -> None:
    scene = without_readers()
    kafka = Racing(scene.log)
    kafka.between = lambda: scene.log.go_away(scene.world.now_ms + 1_000)
    found = equality(scene, kafka=kafka)
    assert [each.why for each in found.look((), guard(scene), scene.world.now_ms)] == ["no broker answers"] * 2
    scene.log.heal()
    assert [each.why for each in found.look((), guard(scene), scene.world.now_ms)] == ["", ""]


def test_a_node_that_nobody_can_read_is_told_and_left_to_an_operator() -> None:
    scene = without_readers()
    path = DRAFT.offset(GROUP, T0)
    stat = scene.world.ensemble.stat(path)
    assert stat is not None
    scene.world.ensemble.operate(SetNode(path, b"many", stat.version))
    found = equality(scene, ZOOKEEPER)
    (first,) = found.look((), guard(scene), scene.world.now_ms)
    assert (first.partition, first.zookeeper) == (T0, None)
    assert first.why.endswith("an operator must set it to a number")
    assert scene.world.ensemble.data(path) == b"many"


def test_a_kafka_that_does_not_answer_is_an_error_and_changes_nothing() -> None:
    scene = without_readers()
    scene.log.go_away(scene.world.now_ms + 1_000)
    written = len(scene.world.ensemble.log)
    with pytest.raises(UnavailableError):
        equality(scene).look((), guard(scene), scene.world.now_ms)
    assert len(scene.world.ensemble.log) == written
