"""Failure cases of the stores `dual` and `kafka`: a third party beside ZooKeeper and the application."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.offset_log import LATE_MS_MAX, Fate
from tests.sim.script import on_seeds
from tests.sim.store_scene import CHECKPOINT_MS, StoreScene, begin_in
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import ANY_VERSION, SetNode, Transaction

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FATES = [Fate.LATE, Fate.LOST, Fate.REPLY_LOST]


def holder(scene: StoreScene, partition: TopicPartition = P0) -> str:
    """The process that holds the partition."""
    return next(name for name in scene.world.processes if name.startswith("c") and partition in held(scene, name))


def held(scene: StoreScene, name: str) -> list[TopicPartition]:
    """The partitions that a consumer's process owns."""
    return scene.owned(name) if name.startswith("consumer") and scene.registered(name) else []


def kill(scene: StoreScene, name: str) -> None:
    """A process dies, and does not come back."""
    scene.process(name).restarts = False
    scene.process(name).kill()


def reads_on(scene: StoreScene, partition: TopicPartition = P0) -> None:
    """Wait until more records of the partition are committed."""
    before = scene.ledger.counted(partition) or 0
    scene.world.run_until(lambda: (scene.ledger.counted(partition) or 0) > before + 100, what="commits go on")


@on_seeds(4)
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f109_a_start_waits_for_a_kafka_that_is_away_and_is_no_strike(seed: int, store: str) -> None:
    scene = begin_in(seed, store, topics={"t": 4})
    world = scene.world
    away_ms = world.now_ms + 20_000
    scene.log.go_away(away_ms)
    kill(scene, "consumer0")
    world.run_until(lambda: bool(world.events("start_refused")), what="a start is refused")
    assert all("broker" in told.fields["why"] for told in world.events("start_refused"))
    world.run_until(lambda: world.now_ms > away_ms, what="Kafka is back")
    scene.settle()
    assert not scene.state().get("quarantine")
    scene.calm()


@on_seeds(4)
def test_f110_a_commit_lost_by_kafka_costs_repeats_since_the_checkpoint_only(seed: int) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    world, path = scene.world, scene.world.layout.offset(GROUP, P0)
    begun_ms = world.now_ms + 1
    world.run_until(lambda: world.now_ms > begun_ms + CHECKPOINT_MS + 5_000, 60_000, "an old tenure")
    checkpoint = scene.node(P0)
    assert scene.writes_to(path, begun_ms) >= 1
    reads_on(scene)
    committed = scene.ledger.counted(P0) or 0
    assert checkpoint <= scene.node(P0) < committed
    name, since_ms = holder(scene), world.now_ms
    kill(scene, name)
    scene.log.expire(scene.partitions())
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms)), what="another one starts it")
    assert checkpoint <= scene.journal("start", P0, since_ms)[0].start < committed
    scene.calm()


@on_seeds(4)
def test_f110_a_released_offset_is_in_its_node_when_kafka_forgets_it(seed: int) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4}, consumers=1)
    world = scene.world
    reads_on(scene)
    scene.leave("consumer0")
    world.run_until(lambda: not scene.registered("consumer0"), what="it has left")
    scene.process("consumer0").kill()
    released = {p: scene.ledger.counted(p) for p in scene.partitions()}
    assert released == {p: scene.node(p) for p in scene.partitions()}
    scene.log.expire(scene.partitions())
    begun_ms = world.now_ms
    scene.join("heir")
    scene.settle()
    assert {entry.partition: entry.start for entry in scene.journal("start", None, begun_ms)} == released
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f111_a_commit_of_a_dead_owner_that_lands_late_does_not_count(seed: int, store: str) -> None:
    scene = begin_in(seed, store, topics={"t": 4})
    world, name = scene.world, holder(scene)
    reads_on(scene)
    scene.log.fates.append((name, "commit", Fate.LATE))
    world.run_until(lambda: not scene.log.fates, what="it is on its way")
    kill(scene, name)
    scene.settle("others took over")
    reads_on(scene)
    until_ms = world.now_ms + LATE_MS_MAX
    world.run_until(lambda: world.now_ms > until_ms, 60_000, "it has landed")
    reads_on(scene)
    scene.calm()


@on_seeds(2)
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("dies", [False, True])
def test_f111_a_commit_without_an_answer_counts_by_its_node_whatever_lands_late(
    seed: int, fate: Fate, dies: bool
) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    world, name = scene.world, holder(scene)
    reads_on(scene)
    begun_ms = world.now_ms
    scene.log.fates += [(name, "commit", fate)] * 2
    world.run_until(lambda: bool(world.events("kafka_commits_failed", begun_ms)), what="it has no answer")
    if dies:
        kill(scene, name)
        scene.settle("others took over")
    until_ms = world.now_ms + LATE_MS_MAX
    world.run_until(lambda: world.now_ms > until_ms, 60_000, "whatever was late has landed")
    reads_on(scene)
    if not dies:
        assert world.events("kafka_commits_work", begun_ms)
    scene.calm()


@on_seeds(4)
def test_f112_a_stranger_behind_is_followed_and_one_ahead_is_written_over(seed: int) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    world = scene.world
    reads_on(scene)
    begun_ms, back = a_stranger_goes_back(scene)
    world.run_until(lambda: bool(world.events("foreign_offset", begun_ms)), what="it is seen")
    starts_again(scene, begun_ms, back)
    assert scene.node(P0) >= back
    reads_on(scene)
    begun_ms = world.now_ms
    scene.log.stranger_commits(P0, 900_000)
    world.run_until(lambda: bool(world.events("offset_overwritten", begun_ms)), what="it is seen")
    reads_on(scene)
    assert not scene.journal("start", P0, begun_ms)
    scene.calm()


@on_seeds(4)
def test_f112_a_stranger_is_followed_though_its_group_is_moved_before_kafka_has_answered(seed: int) -> None:
    """The change of the store waits for the commit under way. If the nodes were set before, they would count, and the
    rewind would be lost."""
    scene = begin_in(seed, "kafka", topics={"t": 3})  # one for each member: no other commit takes the fate
    world = scene.world
    reads_on(scene)
    begun_ms, back = a_stranger_goes_back(scene)
    scene.log.fates.append((holder(scene), "commit", Fate.REPLY_LOST))
    world.run_until(lambda: taken_over(scene, back), what="it is committed as the reader's own")
    scene.move("dual")
    assert world.events("foreign_offset", begun_ms)
    starts_again(scene, begun_ms, back)
    reads_on(scene)
    scene.calm()


def a_stranger_goes_back(scene: StoreScene) -> tuple[int, int]:
    """Somebody else commits an offset that is 50 records lower. Returns the time and the offset."""
    begun_ms, back = scene.world.now_ms, (scene.in_kafka(P0) or 0) - 50
    scene.log.stranger_commits(P0, back)
    return begun_ms, back


def starts_again(scene: StoreScene, since_ms: int, offset: int) -> None:
    """Wait for the partition's next start, which must be at this offset."""
    scene.world.run_until(lambda: bool(scene.journal("start", P0, since_ms)), what="it starts again")
    assert scene.journal("start", P0, since_ms)[0].start == offset


def taken_over(scene: StoreScene, offset: int) -> bool:
    """True when a consumer has committed this offset to Kafka with its tenure."""
    commit = scene.log.commits[P0]
    return commit.offset == offset and commit.stamp is not None


@on_seeds(4)
def test_f113_beside_kafkas_own_consumers_offsets_go_to_zookeeper_and_theirs_are_ignored(
    seed: int,
) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    world = scene.world
    reads_on(scene)
    begun_ms = world.now_ms
    scene.log.intrude(begun_ms + 30_000)
    scene.log.stranger_commits(P0, 900_000)
    client = scene.client(holder(scene))

    def events(name: str) -> list[str]:
        return [told.client for told in world.events(name, begun_ms)]

    world.run_until(lambda: client in events("kafka_commits_failed"), what="Kafka refuses")
    node, seen_ms = scene.node(P0), world.now_ms
    scene.log.stranger_commits(P0, 7)
    world.run_until(lambda: scene.node(P0) > node + 200, what="its node is set")
    assert not [told for told in world.events("foreign_offset", seen_ms) if told.client == client]
    world.run_until(lambda: client in events("kafka_commits_work"), 40_000, "Kafka takes commits again")
    assert events("kafka_commits_failed").count(client) == 1
    reads_on(scene)
    scene.calm()


def switches(transaction: Transaction) -> bool:
    """True for an acknowledgement of the change of the store."""
    return "offset-store" in transaction.why


@on_seeds(2)
@pytest.mark.parametrize("when", ["before", "after", "request_lost", "reply_lost"])
@pytest.mark.parametrize("step", [("zookeeper", "dual"), ("dual", "kafka"), ("kafka", "dual"), ("dual", "zookeeper")])
def test_f114_a_change_of_the_store_survives_the_loss_of_any_of_its_writes(
    seed: int, when: str, step: tuple[str, str]
) -> None:
    scene = begin_in(seed, step[0], topics={"t": 4})
    world = scene.world
    reads_on(scene)
    world.strike("consumer0", switches, when)
    if when == "request_lost":  # somebody sets an offset in between
        world.strike("consumer1", switches, "before")
    scene.move(step[1])
    assert not [strike for strike in world._strikes if strike[0] == "consumer0"]
    scene.settle()
    reads_on(scene)
    scene.calm()


@on_seeds(4)
def test_f112_a_reader_in_kafka_restarts_at_a_node_that_somebody_set(seed: int) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    world, path = scene.world, scene.world.layout.offset(GROUP, P0)
    reads_on(scene)
    begun_ms = world.now_ms
    world.ensemble.operate(SetNode(path, b"11", ANY_VERSION))
    world.run_until(lambda: bool(scene.journal("start", P0, begun_ms)), 3_000, "it starts again")
    assert scene.journal("start", P0, begun_ms)[0].start == 11
    reads_on(scene)
    scene.move("dual")
    before = scene.world.asked.copy()
    reads_on(scene)  # no watch on the node is left that each commit would fire
    reads_on(scene)
    assert [asked[2] for asked in scene.world.asked[len(before) :]].count(path) <= 1
    scene.calm()


@on_seeds(4)
def test_f112_a_group_that_was_set_back_in_kafka_while_nobody_read_it_goes_on_there(seed: int) -> None:
    """Kafka's own reset tool does so: for Kafka, a group without members is empty."""
    scene = begin_in(seed, "kafka", topics={"t": 4}, consumers=1)
    world = scene.world
    reads_on(scene)
    scene.leave("consumer0")
    world.run_until(lambda: not scene.registered("consumer0"), what="it has left")
    scene.process("consumer0").kill()
    scene.log.stranger_commits(P0, 9)
    scene.log.stranger_commits(P1, 900_000)
    begun_ms = world.now_ms
    scene.join("heir")
    world.run_until(lambda: 9 in [e.start for e in scene.journal("start", P0, begun_ms)], what="it starts there")
    scene.settle()
    reads_on(scene)
    reads_on(scene, P1)
    assert max(e.start for e in scene.journal("start", P1, begun_ms)) < 900_000
    scene.calm()


@on_seeds(2)
def test_f114_a_change_of_the_store_sets_the_nodes_to_what_kafka_had(seed: int) -> None:
    scene = begin_in(seed, "kafka", topics={"t": 4})
    reads_on(scene)
    for name in ("consumer0", "consumer1", "consumer2"):
        scene.application(name).commits = False
    begun_ms = scene.world.now_ms
    scene.world.run_until(lambda: scene.world.now_ms > begun_ms + 5_000, what="no commit is under way")
    counted = {p: scene.ledger.counted(p) for p in scene.partitions()}
    assert scene.node(P0) < (counted[P0] or 0)
    scene.move("dual", "zookeeper")
    assert {p: scene.node(p) for p in scene.partitions()} == counted
    scene.calm()
