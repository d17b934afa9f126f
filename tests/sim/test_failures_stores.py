"""Failure cases of groups whose offsets stand in Kafka, too (docs/failures.md)."""

from __future__ import annotations

import pytest

from tests.sim.application import Application
from tests.sim.offset_log import TIMEOUT_MS, Fate
from tests.sim.script import on_seeds
from tests.sim.store_scene import CHECKPOINT_MS, StoreScene, begin_in
from tests.sim.test_replay import ask
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import ANY_VERSION, SetNode

IN_KAFKA = pytest.mark.parametrize("store", ["dual", "kafka"])
P0 = TopicPartition("t", 0)
A_WHILE_MS = 6_000


def equal(scene: StoreScene) -> bool:
    """True when Kafka has all offsets that count, in the present tenure."""
    return not list(scene.ledger._at_rest())


def owner(scene: StoreScene, partition: TopicPartition) -> str:
    """The process that reads the partition."""
    return scene.field.holdings["g", partition].client.partition("#")[0]


def kill_owner(scene: StoreScene, partition: TopicPartition) -> int:
    """End the consumer that reads the partition for good, and wait until another one reads it. Returns the time of the
    kill."""
    killed_ms = scene.world.now_ms
    scene.world.stop(owner(scene, partition))
    scene.world.run_until(lambda: bool(scene.journal("start", partition, since_ms=killed_ms)), what="a successor")
    return killed_ms


@IN_KAFKA
@on_seeds(1)
def test_f28_a_rewind_in_zookeeper_wins_over_every_commit_in_kafka(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    assert (scene.in_kafka(P0) or 0) > 1
    reader, path = scene.application(owner(scene, P0)), world.layout.offset("g", P0)
    world.run_until(lambda: reader.positions[P0] > scene.node(P0), what="it has something to commit")
    rewound_ms = world.now_ms
    reader._read = lambda partition, *, draining: None  # type: ignore[method-assign]  # until its commit was refused
    world.ensemble.operate(SetNode(path, b"1", ANY_VERSION))
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms=rewound_ms)), what="it is started again")
    del reader._read  # type: ignore[method-assign]
    assert scene.journal("start", P0, since_ms=rewound_ms)[0].start == 1
    kill_owner(scene, P0)
    scene.calm()


@IN_KAFKA
@on_seeds(1)
def test_f52_a_rebalance_waits_for_the_broker_and_what_is_read_is_read_on_and_committed(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    away_ms = world.now_ms
    scene.log.go_away(away_ms + 60_000)
    world.run_for(A_WHILE_MS)
    nodes = {p: scene.node(p) for p in scene.partitions()}
    world.run_for(A_WHILE_MS)
    assert all(scene.node(p) > nodes[p] for p in nodes), "commits go on in ZooKeeper"
    scene.join("late")
    world.run_for(A_WHILE_MS)
    assert not [entry for entry in scene.journal("start", since_ms=away_ms) if entry.process == "late"]
    scene.log.heal()
    scene.settle()
    scene.calm()
    assert equal(scene)


@on_seeds(2)
def test_f120_a_commit_that_a_former_owner_makes_late_is_never_believed(seed: int) -> None:
    scene = begin_in(seed, "kafka", consumers=2)
    world = scene.world
    world.run_for(A_WHILE_MS)
    zombie = owner(scene, P0)
    scene.log.fates += [(zombie, "commit", Fate.LATE)] * 3
    world.run_for(1_500)  # a commit is under way
    late = [commits[P0] for _, who, name, commits in scene.log.requests if name == "commit" and P0 in commits][-1]
    world.pause(zombie)
    taken_ms = world.now_ms
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms=taken_ms)), what="a successor")
    world.run_for(20_000)
    world.resume(zombie)
    scene.log.commit("zombie", {P0: late})  # the late commit lands last
    counts = scene.ledger.counted(P0)
    assert counts == scene.node(P0) and counts >= scene.journal("start", P0, since_ms=taken_ms)[0].start
    scene.settle()
    kill_owner(scene, P0)
    scene.calm()


@on_seeds(2)
def test_f121_an_expired_commit_costs_the_time_since_the_checkpoint_and_no_reset(seed: int) -> None:
    scene = begin_in(seed, "kafka")
    world = scene.world
    world.run_for(2 * CHECKPOINT_MS)
    application = scene.application(owner(scene, P0))
    application.commits = False  # no later commit repairs it
    world.run_for(TIMEOUT_MS)
    scene.log.expire(scene.partitions())
    checkpoint = scene.node(P0)
    killed_ms = kill_owner(scene, P0)
    assert scene.journal("start", P0, since_ms=killed_ms)[0].start == checkpoint
    assert not scene.journal("reset", P0, since_ms=killed_ms)
    scene.calm()


@on_seeds(1)
def test_f121_a_resting_offset_is_committed_again_before_it_expires(seed: int) -> None:
    scene = begin_in(seed, "kafka")
    world = scene.world
    world.run_for(A_WHILE_MS)
    world.drain_from_ms = world.now_ms  # no new records
    world.run_for(A_WHILE_MS)
    expired: list[TopicPartition] = []
    scene.log.on_change.append(lambda change: expired.append(change.partition) if change.how == "expired" else None)
    scene.log.retention_ms = 2 * CHECKPOINT_MS
    world.run_for(10 * CHECKPOINT_MS)
    scene.log.read()
    assert not expired
    assert equal(scene)


@IN_KAFKA
@on_seeds(1)
def test_f122_beside_a_consumer_of_kafkas_own_protocol_offsets_go_to_zookeeper(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    began_ms = world.now_ms
    scene.log.intrude(began_ms + 4 * A_WHILE_MS)
    world.run_for(A_WHILE_MS)
    nodes = {p: scene.node(p) for p in scene.partitions()}
    world.run_for(2 * A_WHILE_MS)
    assert all(scene.node(p) > nodes[p] for p in nodes)
    told = scene.world.events("kafka_commits_failed", since_ms=began_ms)
    assert len(told) == len({event.client for event in told}) == 3, told
    killed_ms = kill_owner(scene, P0)
    assert scene.journal("start", P0, since_ms=killed_ms)[0].start >= nodes[P0]
    world.run_for(4 * A_WHILE_MS)
    scene.calm()
    assert equal(scene)


@on_seeds(2)
def test_f123_another_programs_commit_is_followed_backwards(seed: int) -> None:
    scene = begin_in(seed, "kafka")
    world = scene.world
    world.run_for(A_WHILE_MS)
    reader = scene.application(owner(scene, P0))
    reader.commits = False  # a commit between its look and its own commit would be overwritten unseen
    world.run_for(1_000)
    behind, set_ms = scene.node(P0) // 2, world.now_ms
    scene.log.stranger_commits(P0, behind)
    reader.commits = True
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms=set_ms)), what="it is read again from there")
    assert scene.journal("start", P0, since_ms=set_ms)[0].start == behind
    scene.calm()
    assert equal(scene)


@on_seeds(2)
def test_f137_each_new_owner_does_not_follow_a_set_back_anew_while_kafka_takes_no_commits(
    seed: int,
) -> None:
    scene = begin_in(seed, "kafka", consumers=1)
    world = scene.world
    world.run_for(A_WHILE_MS)
    scene.log.fates += [(f"consumer{n}", "commit", Fate.LOST) for n in range(4)] * 1_000
    world.run_for(TIMEOUT_MS)
    behind, set_ms = scene.node(P0) // 2, world.now_ms
    scene.log.stranger_commits(P0, behind)

    def followed() -> int:
        return [start.start for start in scene.journal("start", P0, since_ms=set_ms)].count(behind)

    for n in range(1, 4):
        world.stop(f"consumer{n - 1}")
        scene.join(f"consumer{n}")
        world.run_until(lambda n=n: len(scene.journal("start", P0, since_ms=set_ms)) >= n, what="a successor")
        world.run_for(3 * TIMEOUT_MS)
    assert followed() <= 1
    scene.log.fates.clear()
    world.run_until(lambda: followed() >= 1, what="it is followed once Kafka takes commits")
    scene.calm()
    assert followed() <= 2
    assert equal(scene)


@IN_KAFKA
@on_seeds(1)
def test_f123_another_programs_commit_that_is_ahead_is_overwritten(store: str, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    set_ms = world.now_ms
    scene.log.stranger_commits(P0, 1_000_000)
    world.run_until(lambda: (scene.in_kafka(P0) or 1_000_000) < 1_000_000, what="it is overwritten")
    assert not scene.journal("start", P0, since_ms=set_ms)
    killed_ms = kill_owner(scene, P0)
    assert scene.journal("start", P0, since_ms=killed_ms)[0].start < 1_000_000
    scene.calm()


@on_seeds(2)
def test_f123_in_dual_another_programs_commit_is_overwritten_by_the_next_one(seed: int) -> None:
    scene = begin_in(seed, "dual")
    world = scene.world
    world.run_for(A_WHILE_MS)
    set_ms = world.now_ms
    scene.log.stranger_commits(P0, 3)
    world.run_until(lambda: (scene.in_kafka(P0) or 0) > 3, what="it is overwritten")
    assert not scene.journal("start", P0, since_ms=set_ms)
    scene.calm()
    assert equal(scene)


@IN_KAFKA
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.REPLY_LOST, Fate.LATE, Fate.PARTIAL])
@on_seeds(1)
def test_f124_a_commit_without_an_answer_goes_to_zookeeper(store: str, fate: Fate, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    name = owner(scene, P0)
    scene.log.fates.append((name, "commit", fate))
    world.run_until(lambda: not scene.log.fates, what="a commit that fails")
    world.run_for(TIMEOUT_MS + A_WHILE_MS)
    kill_owner(scene, P0)
    scene.calm()
    assert equal(scene)


@IN_KAFKA
@pytest.mark.parametrize("removed", [False, True])
@on_seeds(1)
def test_f125_commits_for_an_earlier_topic_of_that_name_do_not_count(store: str, removed: bool, seed: int) -> None:
    scene = begin_in(seed, store)
    world = scene.world
    world.run_for(A_WHILE_MS)
    created_ms = world.now_ms
    scene.delete_topic("t")
    if removed:  # brokers remove the commits, perhaps much later
        scene.log.delete_topic("t")
    scene.create_topic("t", 4)
    world.run_until(lambda: bool(scene.journal("start", P0, since_ms=created_ms)), what="the new topic is read")
    scene.settle()
    kill_owner(scene, P0)
    scene.calm()
    assert equal(scene)


@IN_KAFKA
@on_seeds(1)
def test_f143_a_dead_members_channel_goes_though_its_ranges_were_of_a_topic_that_is_deleted(
    store: str, seed: int
) -> None:
    scene = begin_in(seed, store, batches=True)
    world = scene.world
    reader = owner(scene, P0)
    status = scene.field.channel(
        "g", next(name for _, name in scene.field.registrations if name.startswith(f"g_{reader}-"))
    )
    world.run_until(lambda: b'"t-0"' in (world.ensemble.data(status) or b""), what="it announces a range of it")
    world.stop(reader)
    scene.delete_topic("t")
    scene.log.delete_topic("t")
    world.run_until(lambda: world.ensemble.data(status) is None, what="its channel is removed")
    scene.calm()


@on_seeds(2)
def test_a_commit_to_kafka_is_answered_as_soon_as_kafka_answers_though_nothing_else_comes_in(seed: int) -> None:
    scene = begin_in(seed, "kafka")
    world = scene.world
    world.run_for(A_WHILE_MS)
    name = owner(scene, P0)
    application = scene.application(name)
    application.commits, application._read = False, lambda partition, *, draining: None  # type: ignore[method-assign]
    offset = application.positions[P0]
    world.run_until(lambda: equal(scene), what="Kafka has all")
    world.run_for(A_WHILE_MS)
    note(application, P0, offset)
    began_ms = world.now_ms
    ask(scene, name, "commit", {P0: offset + 1}).result()
    assert world.now_ms - began_ms < TIMEOUT_MS / 2
    assert scene.in_kafka(P0) == offset + 1


def note(application: Application, partition: TopicPartition, offset: int) -> None:
    """The application processes one more record."""
    application._note("read", partition, offset, offset + 1)
    application.positions[partition] = offset + 1
