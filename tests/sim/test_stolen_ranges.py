"""Announced ranges in groups with old members, when somebody has deleted the claim of the consumer that announced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.batches import BatchApplication
from tests.sim.faults import cut, uncut
from tests.sim.mixed_scene import MixedScene
from tests.sim.script import QUIET, hold_calls, on_seeds
from tests.sim.test_mixed_ranges import T1, T2, announcing, await_batch, claimed_by
from tests.sim.world import World
from zkcoord.core.member.requests import AnnounceRequest
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import STORES
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, DeleteNode

U1 = TopicPartition("u", 1)
PATIENT = replace(QUIET, session_timeout_ms=30_000)
LONG = 1_000
"""Records of a range that is longer than those that applications announce."""


def hears(scene: MixedScene, name: str, *, hears: bool) -> None:
    """From now on a consumer hears nothing from ZooKeeper, though its own writes arrive; or it hears everything."""
    process = scene.world.processes[name]
    (store,) = (store for store in process.stores if store.wire is not None)
    assert store.wire is not None
    store.wire.down = hears
    store.refresh()


def deleted(scene: MixedScene, partition: TopicPartition) -> None:
    """Somebody deletes the claim of a partition."""
    scene.world.ensemble.operate(DeleteNode(LEGACY.owner(GROUP, partition), ANY_VERSION))


def announces(scene: MixedScene, name: str, partition: TopicPartition) -> None:
    """A program announces a range of a partition, longer than others', and processes it once that is announced."""
    working, future = scene.application(name), Future[None]()
    start = working.positions[partition]
    ranges = {partition: (start, start + LONG)}

    def process(done: Future[None]) -> None:
        if done.exception() is None and working.allowed(partition):
            working._note("read", partition, start, start + LONG)

    future.add_done_callback(process)
    request = AnnounceRequest(ranges, {partition: working.starts[partition]})
    scene.world.processes[name].inbox.put(Request("announce", request, future))


def reads_on(scene: MixedScene, let_go: Callable[[], None]) -> None:
    """The application of consumer2 starts t-2, processes a range of it, and waits for ever for its commit."""
    working = scene.application("consumer2")
    assert isinstance(working, BatchApplication)
    ask = working._ask

    def never_commits(name: str, argument: Any, then: Callable[[], None]) -> None:
        if name != "commit":
            ask(name, argument, then)
        else:
            working._future = Future()

    working._ask = never_commits  # type: ignore[method-assign]
    let_go()
    world = scene.world
    world.run_until(lambda: ("consumer2", "read", T2) in done(world), what="a range that is processed")


def done(world: World, since: int = 0) -> Iterator[tuple[str, str, TopicPartition]]:
    """What applications did: process, event, partition. `since`: without so many entries."""
    return ((entry.process, entry.event, entry.partition) for entry in world.journal[since:])


def announced_without_its_claim(seed: int, store: str, *, started: bool) -> None:
    """The claim of t-2 was deleted, which consumer1 has not seen when it announces a range of it. consumer2, which has
    the partition by now, has read the statuses, or (`started`) reads the partition already. Later it dies, and
    consumer3 comes."""
    scene, sink = announcing(seed, store, seed % 2, partitions=3, options=PATIENT)
    world = scene.world
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("old0", "consumer0", "consumer1")
    late = scene.application("consumer1")
    world.run_until(lambda: late._act == late._plan and T2 in late.positions, what="it is about to announce")
    late.hang()
    world.run_for(1_000)  # it has read everything
    hears(scene, "consumer1", hears=False)
    deaf_ms = world.now_ms
    scene.start_ours("consumer2")
    let_go = hold_calls(scene.application("consumer2"))
    world.run_until(lambda: len(scene.rules.registered) == 4, what="it has joined")
    deleted(scene, T2)
    world.run_until(lambda: scene.application("consumer2").waiting > 0, what="it has read the statuses")
    assert claimed_by(scene, T2) == "consumer2"
    if started:
        reads_on(scene, let_go)
    announces(scene, "consumer1", T2)

    def sent() -> bool:
        found = (t for t in world.tried if t.time_ms >= deaf_ms and t.client.startswith("consumer1"))
        return any(t.transaction.why == "announce" for t in found)

    world.run_until(sent, what="its announcement")
    if not started:
        reads_on(scene, let_go)
    hears(scene, "consumer1", hears=True)
    late.go_on()
    scene.end_with_sessions("consumer2")
    scene.start_ours("consumer3")
    scene.await_shared("old0", "consumer0", "consumer1", "consumer3")
    assert claimed_by(scene, T2) == "consumer3"
    world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_f352_a_range_that_is_announced_without_its_claim_is_seen_by_the_next_reader_or_refused(
    seed: int, store: str, started: bool
) -> None:
    """Before the fix, two ranges began at one offset, and a later reader took the one that nobody had processed."""
    announced_without_its_claim(seed, store, started=started)


def claimed_with_a_later_range(seed: int, store: str) -> None:
    """consumer1, which had been granted partitions, leaves a range of t-2 unfinished. consumer2, which has joined
    beside the old member, does it, and dies in its next range, together with the old member."""
    scene, sink = announcing(seed, store, 1, partitions=3)
    world = scene.world
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    scene.start("old0", topics={"u": 1})
    scene.await_shared("old0", "consumer0", "consumer1")
    await_batch(scene, "consumer1", [2])
    working = scene.application("consumer1")
    working.hang()
    scene.start_ours("consumer2")
    let_go = hold_calls(scene.application("consumer2"))
    world.run_until(lambda: claimed_by(scene, T2) == "consumer2", what="the next one has claimed it")
    working.go_on()
    world.run_until(lambda: U1 in mine(scene, "consumer1"), what="consumer1 has looked for ranges that are over")
    let_go()
    world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    again = sink.again
    world.run_until(lambda: not reads_range(scene, "consumer2", T2), what="it is committed")
    await_batch(scene, "consumer2", [2])
    scene.end_with_sessions("old0", "consumer2")
    scene.await_shared("consumer0", "consumer1")
    world.run_until(lambda: sink.again > again, what="the next range is processed again, as it was announced")
    scene.calm()


def mine(scene: MixedScene, name: str) -> set[TopicPartition]:
    """The partitions that a consumer reads."""
    return {p for p, reader in scene.readers().items() if reader == name}


def reads_range(scene: MixedScene, name: str, partition: TopicPartition) -> bool:
    """True while a consumer is to process an announced range of a partition."""
    return partition in scene.application(name).replays


@on_seeds(4)
@pytest.mark.parametrize("store", ["dual", "kafka"])
def test_f358_the_later_of_two_ranges_is_done_as_announced_though_its_consumer_was_never_sent_a_start(
    seed: int, store: str
) -> None:
    """Before the fix, the coordinator handed on the earlier one, which was over."""
    claimed_with_a_later_range(seed, store)


def commanded_before_the_old_member(seed: int, store: str) -> None:
    """consumer0 is cut off right before it claims t-2, as a start says. An old member joins, and by its plan consumer1
    has the partition again. It dies in an announced batch, and consumer0 comes back and obeys."""
    scene, sink = announcing(seed, store, 1, partitions=3)
    world = scene.world
    scene.start_ours("consumer1")
    scene.await_shared("consumer1")
    world.strike("consumer0", lambda transaction: transaction.why == "claim", "request_lost")
    scene.start_ours("consumer0")
    world.run_until(lambda: world.struck, what="it is about to claim")
    cut(world, world.processes["consumer0"])
    scene.start("old0", topics={"u": 1})
    world.run_until(lambda: claimed_by(scene, T2) == "consumer1", what="consumer1 has claimed it again")
    before = len(world.journal)
    world.run_until(lambda: ("consumer1", "read", T2) in done(world, before), what="a range that is processed")
    (kept,) = (c for c, session in scene.rules.registered.items() if session.process == "consumer0")
    scene.end_with_sessions("consumer1")
    uncut(world, world.processes["consumer0"])
    scene.await_shared("old0", "consumer0")
    assert kept in scene.rules.registered
    world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f360_a_start_of_before_the_old_member_joined_does_what_was_announced_since(seed: int, store: str) -> None:
    """Before the fix, who obeyed it knew only the ranges that the start named."""
    commanded_before_the_old_member(seed, store)


def left_to_old_members_alone(seed: int, store: str) -> None:
    """The only consumer dies in an announced batch, beside an old member of another topic. Later another one joins."""
    scene, sink = announcing(seed, store, 1, partitions=2)
    scene.start("old0", topics={"u": 1})
    scene.start_ours("consumer0")
    scene.await_shared("old0", "consumer0")
    await_batch(scene, "consumer0", range(2))
    scene.end_with_sessions("consumer0")
    scene.world.run_for(5_000)
    scene.start_ours("consumer1")
    scene.await_shared("old0", "consumer1")
    scene.world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f362_a_range_is_done_as_announced_though_only_old_members_were_left_of_its_group(
    seed: int, store: str
) -> None:
    """Before the fix, the coordinator took the topic, which no member subscribed to any more, for one that is gone."""
    left_to_old_members_alone(seed, store)


def deleted_as_the_old_members_go(seed: int, store: str) -> None:
    """consumer0, which has the most partitions, dies in an announced batch, and its session goes on. Somebody deletes
    its claim of t-1, and the last old member goes."""
    scene, sink = announcing(seed, store, 1, partitions=5)
    world, ours = scene.world, [f"consumer{n}" for n in range(4)]
    scene.start("old0", topics={"u": 1})
    scene.start_ours(*ours)
    let_go = hold_calls(scene.application("consumer0"))
    world.run_for(2_000)  # the coordinator has read its status
    let_go()
    scene.await_shared("old0", *ours)
    await_batch(scene, "consumer0", [1])
    scene.end("consumer0")
    deleted(scene, T1)
    scene.end_with_sessions("old0")
    scene.await_shared(*ours[1:])
    world.run_until(lambda: sink.again > 0, what="the range is processed again, as it was announced")
    scene.calm()


@on_seeds(4)
@pytest.mark.parametrize("store", STORES)
def test_f364_a_partition_that_a_member_holds_by_the_plan_is_granted_to_nobody_when_its_claim_was_deleted(
    seed: int, store: str
) -> None:
    """Before the fix, the coordinator did not know that it holds the partition, and granted it without the range."""
    deleted_as_the_old_members_go(seed, store)
