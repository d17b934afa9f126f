"""Mixed groups whose old members keep their offsets in Kafka, alone or with dual commit. Each member goes on where the
last owner stopped, whoever leaves, joins or dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from tests.sim.application import Application
from tests.sim.mixed_scene import ADOPTION, MixedScene
from tests.sim.offset_log import TIMEOUT_MS, Fate, LogFaults
from tests.sim.old_rules import is_old
from tests.sim.old_settings import PATIENCE
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.test_mixed_storms import storm_over
from tests.sim.world import Entry
from tests.sim.zookeeper import Txn
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition

COMMITS_MS = 1_000
SEEDS = 30
STEPS = 5_000


class KafkaScene(MixedScene):
    """A mixed group whose offsets are in `store`: `kafka` (old members in Kafka alone) or `dual`."""

    def __init__(
        self,
        seed: int,
        store: str,
        *,
        retries: int = 4,
        backoff_ms: int = 2_000,
        faults: LogFaults | None = None,
        **size: Any,
    ) -> None:
        dual, interval_ms = store == "dual", COMMITS_MS
        told = replace(ADOPTION, offsets="kafka", dual_commit=dual, auto_commit_interval_ms=interval_ms)
        super().__init__(seed, adoption=replace(told, retries=retries, backoff_ms=backoff_ms), **size)
        self.kafka = self.keep_in_kafka(dual_commit=dual, faults=faults)
        self.old_offsets |= {"commit_interval_ms": COMMITS_MS, "retries": retries, "backoff_ms": backoff_ms}
        self.store = store
        self.released: list[tuple[int, int]] = []  # offsets in Kafka and in the node, of partitions that ours released
        if store == "kafka":
            self.world.ensemble.on_applied.append(self._watch)

    def _watch(self, txn: Txn) -> None:
        """Kafka and the node must have the same offset when ours releases a partition: an old member that claims it
        reads Kafka."""
        if is_old(txn.session.process):
            return
        freed = {c.path.rpartition("/owners/")[2] for c in txn.changes if "/owners/" in c.path and c.after is None}
        for change in txn.changes:
            place = change.path.rpartition("/offsets/")[2]
            if place in freed and change.before is not None and change.after is not None:
                topic, _, number = place.partition("/")
                commit = self.kafka.commits.get(TopicPartition(topic, int(number)))
                self.released.append((commit.offset if commit is not None else -1, int(change.after.data)))

    def early_starts(self) -> list[Entry]:
        """Starts of our members before the end of the processed records: these records were processed twice."""
        covered, found = dict[TopicPartition, int](), []
        for entry in self.world.journal:
            if entry.event == "start" and not is_old(entry.process) and entry.start < covered.get(entry.partition, 0):
                found.append(entry)
            elif entry.event == "read":
                covered[entry.partition] = max(entry.end, covered.get(entry.partition, 0))
        return found


@pytest.fixture(params=["kafka", "dual"])
def begin(request: pytest.FixtureRequest) -> Callable[..., KafkaScene]:
    def make(seed: int, **size: int) -> KafkaScene:
        return KafkaScene(seed, request.param, **size)

    return make


@pytest.mark.parametrize("seed", seeds(8))
def test_a_group_is_replaced_member_by_member_and_goes_back_and_nothing_is_read_twice(
    seed: int, begin: Callable[..., KafkaScene]
) -> None:
    scene = begin(seed, coordinators=1)
    scene.start("old0")
    scene.start("old1")
    scene.world.run_until(lambda: scene.shared("old0", "old1"), what="the old ones have all")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0", "old1")
    scene.leave("old0")
    scene.await_shared("consumer0", "old1")
    scene.start_ours("consumer1")
    scene.await_shared("consumer0", "consumer1", "old1")
    scene.leave("old1")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    scene.world.run_for(5_000)
    scene.start("old2")
    scene.await_shared("consumer0", "consumer1", "old2")
    scene.stop_ours("consumer0")
    scene.await_shared("consumer1", "old2")
    scene.start("old3")
    scene.await_shared("consumer1", "old2", "old3")
    scene.stop_ours("consumer1")
    scene.await_shared("old2", "old3")
    scene.world.run_for(3_000)
    scene.start_ours("consumer2")  # the nodes still have offsets from before the old members read on
    scene.await_shared("consumer2", "old2", "old3")
    assert scene.early_starts() == []
    assert [pair for pair in scene.released if pair[0] != pair[1]] == []
    assert len(scene.released) >= 6 or scene.store == "dual"
    scene.calm()


def one_of_each(seed: int, store: str = "kafka", **size: Any) -> KafkaScene:
    """An old member and one of ours, each with half of the partitions."""
    scene = KafkaScene(seed, store, **size)
    scene.start("old1")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old1")
    scene.world.run_for(3_000)
    scene.released.clear()
    return scene


@pytest.mark.parametrize("seed", seeds(8))
def test_f146_ours_commits_to_kafka_before_it_releases_to_an_old_member_there(seed: int) -> None:
    scene = one_of_each(seed, coordinators=seed % 2)
    scene.application("consumer0").commits = False
    scene.start("old0")
    scene.await_shared("consumer0", "old0", "old1")
    assert len(scene.released) == 1
    assert scene.released[0][0] == scene.released[0][1]


@pytest.mark.parametrize("seed", seeds(8))
def test_f146_a_member_that_leaves_commits_to_kafka_for_a_later_old_member(seed: int) -> None:
    scene = KafkaScene(seed, "kafka")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0")
    scene.application("consumer0").commits = False
    scene.world.run_for(2_000)
    scene.stop_ours("consumer0")
    scene.world.run_until(lambda: not scene.rules.registered, what="it has left")
    assert len(scene.released) == len(scene.all)
    assert [pair for pair in scene.released if pair[0] != pair[1]] == []
    ends = {e.partition: e.end for e in scene.world.journal if e.event == "read"}
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    starts = {e.partition: e.start for e in scene.world.journal if e.event == "start" and e.process == "old0"}
    assert starts.keys() == set(scene.all)
    assert {p: offset for p, offset in starts.items() if p in ends} == ends  # others may be unread


@pytest.mark.parametrize("seed", seeds(8))
def test_f147_a_release_waits_for_kafka_no_longer_than_old_members_wait(seed: int) -> None:
    """Records whose commit Kafka has not taken by then are read again."""
    scene = one_of_each(seed, backoff_ms=700, coordinators=seed % 2)
    scene.application("consumer0").commits = False
    scene.world.run_for(3_000)
    scene.kafka.fates += [("consumer0", "commit", Fate.LOST)]
    scene.start("old0")
    scene.await_shared("consumer0", "old0", "old1")
    assert not scene.member("old0").gave_up
    (told,) = scene.released
    assert told[0] < told[1]
    scene.calm()


def waits_for_its_commit(working: Application) -> None:
    """The program answers a stop only after its commit is answered."""
    answer = working._answer

    def later() -> None:
        if working._calls[0][1] == "stop" and working._commit is not None and not working._commit.done():
            working._process.after(50, later)
        else:
            answer()

    working._answer = later  # type: ignore[method-assign]


def unanswered(scene: KafkaScene, *names: str) -> None:
    """These consumers share the group, and a commit of consumer0 to Kafka has no answer."""
    scene.start_ours(*names)
    scene.await_shared(*names)
    scene.kafka.fates += [("consumer0", "commit", Fate.LOST)]
    scene.world.run_until(lambda: not scene.kafka.fates, what="a commit that has no answer")


def changing_its_store(seed: int, backoff_ms: int) -> KafkaScene:
    """consumer0 is to change its store from `kafka` to `dual`, and waits for a commit to Kafka that has no answer."""
    scene = KafkaScene(seed, "kafka", backoff_ms=backoff_ms, coordinators=1)
    unanswered(scene, "consumer0")
    scene.move_to("dual")
    scene.world.run_until(lambda: scene.memory("consumer0").switch is not None, what="it waits to change its store")
    return scene


@pytest.mark.parametrize("seed", seeds(8))
def test_f346_an_old_joiner_does_not_wait_for_a_change_of_the_store_that_waits_for_kafka(seed: int) -> None:
    """Before the fix, it gave up its share."""
    scene = changing_its_store(seed, backoff_ms=700)
    scene.start("old0")
    scene.await_shared("consumer0", "old0")
    assert not scene.member("old0").gave_up
    assert len(scene.world.events("offset_store_changed")) == 1  # at the join
    scene.calm()


@pytest.mark.parametrize("seed", seeds(8))
def test_f351_a_program_that_commits_before_it_stops_loses_nothing_while_kafka_does_not_answer(seed: int) -> None:
    """It is told to change its store. Before the fix, its commit waited for Kafka, until the partition was taken away
    without it."""
    scene = KafkaScene(seed, "dual", backoff_ms=700, coordinators=1)
    unanswered(scene, "consumer0")
    scene.move_to("zookeeper")
    world, working = scene.world, scene.application("consumer0")
    waits_for_its_commit(working)
    world.run_for(1_000)
    world.run_until(lambda: working._commit is not None and not working._commit.done(), what="it commits")
    scene.start("old0")
    scene.await_shared("consumer0", "old0")
    assert world.events("stop_failed") == []
    assert not scene.member("old0").gave_up
    scene.calm()


@pytest.mark.parametrize("seed", seeds(8))
def test_f350_an_old_joiner_does_not_wait_for_a_leave_behind_a_change_of_the_store_that_waits_for_kafka(
    seed: int,
) -> None:
    """Before the fix, it gave up its share, and its program would have ended."""
    scene = changing_its_store(seed, backoff_ms=400)
    scene.stop_ours("consumer0")
    scene.start("old0")

    def has_all() -> bool:
        if scene.member("old0").gave_up:
            scene.world.fail("old0 gave up its share")
        return scene.shared("old0")

    scene.world.run_until(has_all, what="the old one has all")
    assert len(scene.world.events("offset_store_changed")) == 1  # at the join
    scene.calm()


@pytest.mark.parametrize("seed", seeds(8))
def test_f356_a_change_from_both_stores_to_zookeeper_does_not_keep_a_share_without_a_reader(seed: int) -> None:
    """Before the fix, nothing was claimed beside old members before Kafka had answered, or was given up."""
    scene = KafkaScene(seed, "dual", coordinators=1, topics={"t": 2, "u": 3})
    world = scene.world
    unanswered(scene, "consumer0", "consumer1")
    asked_ms = world.now_ms
    scene.move_to("zookeeper")
    world.run_until(lambda: bool(scene.standing()), what="it is told to change its store")
    scene.start("old0", topics={"u": 1})
    world.run_until(lambda: scene.mode() is Mode.MIXED, what="it is mixed")
    (left,) = (session for session in scene.rules.registered.values() if session.process == "consumer1")
    scene.end("consumer1")
    world.ensemble.end_session(left, "expire")
    share = scene.all - {TopicPartition("u", 2)}
    world.run_until(lambda: all(scene.readers().get(p) == "consumer0" for p in share), what="its share has a reader")
    assert world.now_ms < asked_ms + TIMEOUT_MS
    scene.await_shared("consumer0", "old0")
    scene.calm()


@pytest.mark.parametrize("seed", seeds(8))
def test_f148_an_old_members_late_commit_to_kafka_is_written_over_and_not_followed(seed: int) -> None:
    scene = one_of_each(seed)
    scene.start_ours("consumer1")
    scene.await_shared("consumer0", "consumer1", "old1")
    (had,) = [p for p, claim in scene.rules.claims.items() if claim.session.process == "old1"][:1]
    scene.world.pause("old1")
    began_ms = scene.world.now_ms
    scene.world.run_until(lambda: scene.readers().get(had, "old1") != "old1", what="one of ours has its share")
    scene.world.run_for(5_000)
    scene.member("old1").commit()
    scene.kafka.old_member_commits("old1#1", {had: 1})  # as the old member does when it goes on
    scene.world.run_until(lambda: scene.kafka.commits[had].stamp is not None, what="it is written over")
    scene.world.run_for(1_000)
    assert scene.world.events("foreign_offset", began_ms) == []
    assert scene.kafka.commits[had].offset > 1
    scene.world.resume("old1")
    scene.await_shared("consumer0", "consumer1", "old1")
    scene.calm()


@cache
def kafka_storm(seed: int) -> KafkaScene:
    """One seed: old members and ours in a storm over ZooKeeper and Kafka."""
    drawn = Random(f"beside kafka {int(seed)}")
    faults = replace(LogFaults.drawn(seed), strangers=0, expiries=0, intruders=0)
    store = drawn.choice(("kafka", "kafka", "dual"))
    retries, backoff_ms = Random(f"habits {int(seed)}").choice(PATIENCE)
    patience = {"retries": retries, "backoff_ms": backoff_ms}
    scene = KafkaScene(seed, store, **patience, coordinators=drawn.choice((0, 2)), options=None, faults=faults)
    world = scene.world
    scene.kafka.trouble(world.now_ms, world.now_ms + STORM_MS, sorted(scene.all))
    storm_over(scene, drawn, STEPS, partial(scene.start, restarts=True))
    return scene


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_over_zookeeper_and_kafka_skips_nothing_and_comes_to_rest(seed: int) -> None:
    kafka_storm(seed)


def test_such_storms_see_both_modes_and_what_may_go_wrong() -> None:
    """Otherwise the test above would prove nothing."""
    modes, events = Counter[Mode | None](), Counter[str]()
    for seed in range(SEEDS):
        scene = kafka_storm(seed)
        modes[scene.mode()] += 1
        events.update(told.name for told in scene.world.told)
        events["late release"] += any(pair[0] < pair[1] for pair in scene.released)
        events["release"] += bool(scene.released)
    assert {Mode.COORDINATED, Mode.MIXED} <= modes.keys()
    assert events.keys() >= {"release", "kafka_commits_failed", "start_refused", "fetch_stopped", "mode_changed"}
