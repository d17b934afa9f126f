"""Announced ranges in groups with old members: who claims a partition next does them as they were announced."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.batches import BatchApplication, Sink
from tests.sim.faults import cut, uncut
from tests.sim.mixed_scene import ADOPTION, MixedScene
from tests.sim.moments import Entry
from tests.sim.old_rules import is_old
from tests.sim.script import SESSION_MS, hold_calls, on_seeds
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES
from zkcoord.tree.paths import LEGACY, TOPICS
from zkcoord.tree.status import decode_status
from zkcoord.tree.topic import decode_mark
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, Transaction

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class OfOurs(Sink):
    """A sink of the ranges of topic `t`, which only consumers of ours process."""

    def _take(self, entry: Entry) -> None:
        if entry.partition.topic == "t" and not is_old(entry.process):
            super()._take(entry)


def announcing(seed: int, store: str, coordinators: int, partitions: int, **more: Any) -> tuple[MixedScene, Sink]:
    """A group in which consumers of ours announce their batches. Nobody has started yet."""
    adoption = ADOPTION if store == "zookeeper" else replace(ADOPTION, offsets="kafka", dual_commit=store == "dual")
    topics = {"t": partitions, "u": partitions + 1}
    scene = MixedScene(seed, topics, coordinators=coordinators, adoption=adoption, **more)
    if store != "zookeeper":
        scene.keep_in_kafka(dual_commit=adoption.dual_commit)
    scene.ours.announce(BatchApplication)
    sink = OfOurs(scene.world, lambda group, topic: 0)
    scene.world.rest_checks.append(sink.complete)
    return scene, sink


def await_batch(scene: MixedScene, name: str, among: Collection[int]) -> None:
    """Run until this consumer is in a batch, and has processed the range of one of these partitions of topic `t`."""
    working = scene.application(name)
    assert isinstance(working, BatchApplication)

    def in_a_batch() -> bool:
        done = (p for p in working._processed if p.topic == "t" and p.partition in among)
        return working._act == working._work and any(done)

    scene.world.run_until(in_a_batch, what="a batch of which something is processed")


def claimed_by_one_that_died(
    seed: int, store: str, coordinators: int, back_ms: int, *, held_before: bool = False
) -> tuple[MixedScene, Sink]:
    """One consumer dies in an announced batch. The next one dies when it has claimed a partition of the batch, and
    comes back after `back_ms`. old0 is there all the time. `held_before`: the next one had held this partition before
    the first one did."""
    scene, sink = announcing(seed, store, coordinators, partitions=2)
    if held_before:
        scene.start_ours("consumer1")
        scene.await_shared("consumer1")
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0", *(() if held_before else ("consumer1",)))
    scene.await_shared("old0", "consumer0", "consumer1")
    world = scene.world

    def claims(transaction: Transaction) -> bool:
        return transaction.why == "claim" and "/owners/t/" in str(transaction)

    await_batch(scene, "consumer0", range(2))
    scene.end("consumer0")
    world.strike("consumer1", claims, "after_applied_reply_lost", back_ms)
    world.run_until(lambda: world.struck, what="its claim, and its death")
    return scene, sink


def over(scene: MixedScene) -> bool:
    """True when nothing is left of the ranges that the dead consumers announced."""
    return len(scene.world.ensemble.names(LEGACY.channels_of(GROUP))) == 1


@on_seeds(4)
@pytest.mark.parametrize("coordinators", [0, 1])
@pytest.mark.parametrize("store", STORES)
def test_f217_a_range_is_done_as_announced_though_its_next_claimer_died_too_early(
    seed: int, store: str, coordinators: int
) -> None:
    """The dead consumer's channel stays until then. Before the fix, the coordinator removed it at the claim."""
    scene, sink = claimed_by_one_that_died(seed, store, coordinators, back_ms=1_000)
    scene.await_shared("old0", "consumer1")
    scene.world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()
    assert not coordinators or over(scene)


@on_seeds(6)
@pytest.mark.parametrize("store", STORES)
def test_f325_a_range_is_done_as_announced_though_its_dead_claimer_had_it_before(seed: int, store: str) -> None:
    """Before the fix, the coordinator used the new owner's old status, which said that it held the partition."""
    scene, sink = claimed_by_one_that_died(seed, store, coordinators=1, back_ms=1_000, held_before=True)
    scene.await_shared("old0", "consumer1")
    scene.calm()
    assert sink.again > 0
    assert over(scene)


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f235_a_range_is_done_as_announced_though_the_old_members_went_first(seed: int, store: str) -> None:
    """By then the group is coordinated, and the claim of the second dead consumer still exists. Before the fix, it
    counted as the claim of a grant."""
    scene, sink = claimed_by_one_that_died(seed, store, coordinators=1, back_ms=5 * SESSION_MS)
    scene.leave("old0")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    scene.await_shared("consumer1")
    scene.world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()
    assert over(scene)


def cut_off_in_a_batch(seed: int, store: str, loses: bool) -> None:
    """A living consumer of ours is cut off in an announced batch: its program hangs until the old members would give
    up, or (`loses`) its claim is deleted. By then the partition is the next one's, as another consumer of ours has
    joined."""
    scene, sink = announcing(seed, store, seed % 2, partitions=3)
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("old0", "consumer0", "consumer1")
    await_batch(scene, "consumer0", [1])
    hung = scene.application("consumer0")
    hung.hang()
    scene.start_ours("consumer2")
    if loses:
        scene.world.run_until(lambda: len(scene.rules.registered) == 4, what="it has joined")
        scene.world.ensemble.operate(DeleteNode(LEGACY.owner(GROUP, T1), ANY_VERSION))
    scene.world.run_until(lambda: claimed_by(scene, T1) == "consumer1", what="the next one has claimed it")
    scene.world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    hung.go_on()
    scene.await_shared("old0", "consumer0", "consumer1", "consumer2")
    scene.calm()


def claimed_by(scene: MixedScene, partition: TopicPartition) -> str:
    """The process that has claimed a partition."""
    claim = scene.rules.claims.get(partition)
    return "" if claim is None else claim.session.process


@on_seeds(2)
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_the_next_claimer_does_a_cut_off_living_consumers_range_as_announced(
    seed: int, store: str, loses: bool
) -> None:
    cut_off_in_a_batch(seed, store, loses)


def left_to_one_that_never_starts(
    seed: int, store: str, coordinators: int, *, coordinated: bool, goal: str = ""
) -> None:
    """consumer1 leaves a range of t-2 unfinished, and consumer2 claims the partition. Then consumer1 starts
    t-1, which consumer0 has given back, or (`coordinated`) what the last old member and consumer0 have left. `goal`:
    before that, the group is moved to this store, and the offset in the node was behind Kafka's."""
    scene, sink = announcing(seed, store, coordinators, partitions=3)
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("old0", "consumer0", "consumer1")
    working = scene.application("consumer1")
    if goal:
        scene.world.run_until(lambda: behind_kafka(scene, T2), what="a commit to Kafka")
    await_batch(scene, "consumer1", [2])
    let_go = hold_calls(scene.application("consumer0"))
    working.hang()
    scene.start_ours("consumer2")
    hold_calls(scene.application("consumer2"))
    scene.world.run_until(lambda: len(scene.rules.registered) == 4, what="it has joined")
    scene.world.ensemble.operate(DeleteNode(LEGACY.owner(GROUP, T2), ANY_VERSION))
    scene.world.run_until(lambda: claimed_by(scene, T2) == "consumer2", what="the next one has claimed it")
    had = {p for p, name in scene.readers().items() if name == "consumer1"}
    if coordinated:
        scene.leave("old0")
        scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
        if goal:
            scene.move_to(goal)
            working.go_on()
            scene.world.run_until(lambda: scene.memory("consumer1").store.name == goal, what="it has moved")
        scene.stop_ours("consumer0")
    let_go()
    working.go_on()

    def starts_another() -> bool:
        return any(name == "consumer1" and p not in had for p, name in scene.readers().items())

    scene.world.run_until(starts_another, what="another partition is started")
    assert claimed_by(scene, T2) == "consumer2"
    scene.end("consumer2")
    scene.await_shared(*([] if coordinated else ["old0", "consumer0"]), "consumer1")
    scene.world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f340_a_left_range_is_done_as_announced_though_its_next_claimer_never_starts(seed: int, store: str) -> None:
    """Before the fix, the status of who had left it had lost the range by then."""
    left_to_one_that_never_starts(seed, store, seed % 2, coordinated=False)


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f348_a_left_range_is_done_as_announced_though_the_old_members_went_before_its_claimer_had_started(
    seed: int, store: str
) -> None:
    """Before the fix, the range was lost in the store `kafka`: there the claim counted as a grant with the range."""
    left_to_one_that_never_starts(seed, store, 1, coordinated=True)


def behind_kafka(scene: MixedScene, partition: TopicPartition) -> bool:
    """True when the node of a partition has an earlier offset than its commit in Kafka."""
    commit = scene.log.commits.get(partition) if scene.log is not None else None
    return commit is not None and commit.offset > (scene.offset(partition) or 0)


@on_seeds(4)
def test_f354_a_left_range_is_done_as_announced_though_the_store_was_changed_and_the_node_is_behind_kafka(
    seed: int,
) -> None:
    """Before the fix, the old offset of the node ended the range: the next reader began at its start with another."""
    left_to_one_that_never_starts(seed, "kafka", 1, coordinated=True, goal="dual")


def cut_off_before_its_start(seed: int, store: str, claimed: bool) -> None:
    """consumer1 is cut off right before it claims t-2, or (`claimed`) right after that, and its claim is deleted. While
    it is away, consumer2 joins, announces a batch of t-2 and dies."""
    scene, sink = announcing(seed, store, seed % 2, partitions=3)
    world = scene.world

    def claims(transaction: Transaction) -> bool:
        return transaction.why == "claim" and LEGACY.owner(GROUP, T2) in str(transaction)

    def done() -> list[tuple[str, str, TopicPartition]]:
        return [(entry.process, entry.event, entry.partition) for entry in world.journal]

    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0")
    scene.await_shared("old0", "consumer0")
    scene.start_ours("consumer1")
    working = scene.application("consumer1")
    if claimed:
        world.run_until(lambda: claimed_by(scene, T2) == "consumer1", what="its claim")
        let_go = hold_calls(working)
        world.run_until(lambda: working.waiting > 0, what="its application is to start the partition")
    else:
        world.strike("consumer1", claims, "request_lost")
        world.run_until(lambda: world.struck, what="it is about to claim")
    (mine,) = (c for c, session in scene.rules.registered.items() if session.process == "consumer1")
    cut(world, world.processes["consumer1"])
    if claimed:
        world.ensemble.operate(DeleteNode(LEGACY.owner(GROUP, T2), ANY_VERSION))
    scene.start_ours("consumer2")
    world.run_until(lambda: ("consumer2", "read", T2) in done(), what="a range that is processed, and not committed")
    scene.end_with_sessions("consumer2")
    uncut(world, world.processes["consumer1"])
    if claimed:
        let_go()
    scene.await_shared("old0", "consumer0", "consumer1")
    assert mine in scene.rules.registered
    world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_f342_a_range_announced_while_the_next_claimer_is_cut_off_is_done_as_announced(
    seed: int, store: str, claimed: bool
) -> None:
    """Before the fix, the claimer used the statuses that it had read before it was cut off."""
    cut_off_before_its_start(seed, store, claimed)


def created_again_after_a_death(seed: int) -> None:
    """A consumer dies in a batch that begins at offset 0. Its topic is created again, the coordinator dies as soon as
    it has marked that, and an old member joins: nobody is left who would drop the dead consumer's range. The next
    consumer claims the partition at offset 0, too."""
    scene, sink = announcing(seed, "zookeeper", coordinators=1, partitions=2)
    world, ensemble, mark = scene.world, scene.world.ensemble, LEGACY.mark(GROUP, "t")
    sink._incarnation = lambda group, topic: scene.logs.births[topic]

    def marked() -> int:
        return decode_mark(ensemble.data(mark) or b"").incarnation

    scene.start_ours("consumer0")
    working = scene.application("consumer0")
    assert isinstance(working, BatchApplication)
    world.run_until(lambda: T0 in working._batch and working._act == working._work, what="its first batch of t-0")
    assert (working._batch[T0][0], marked()) == (0, 1)
    for name in ("consumer0", "coordinator0"):
        scene.end(name)
    path = f"{TOPICS}/t"
    data = ensemble.data(path) or b""
    ensemble.operate(DeleteNode(path, ANY_VERSION))
    ensemble.operate(CreateNode(path, data))
    scene.logs.empty("t")
    scene.rules.covered.clear()
    scene.start_ours("consumer1")
    world.strike("coordinator1", lambda txn: mark in {write.path for write in txn.writes}, "after", None)
    scene.start_coordinator("coordinator1")
    world.run_until(lambda: not world.processes["coordinator1"].running, what="the mark, and the coordinator's death")
    assert marked() == 2
    scene.start("old0", topics={"u": 1})
    scene.await_shared("old0", "consumer1")
    (mine,) = (c for c, session in scene.rules.registered.items() if session.process == "consumer1")

    def announced() -> int | None:
        found = decode_status(ensemble.data(f"{LEGACY.channels_of(GROUP)}/{mine}") or b"").batch.get(T0)
        return None if found is None else found.incarnation

    world.run_until(lambda: announced() is not None, what="a batch of its own")
    assert announced() == 2
    assert [entry for entry in world.journal if entry.event == "replay" and entry.partition == T0] == []


@on_seeds(2)
def test_a_range_of_an_earlier_topic_of_the_name_is_not_done_by_who_claims_beside_old_members(seed: int) -> None:
    created_again_after_a_death(seed)
