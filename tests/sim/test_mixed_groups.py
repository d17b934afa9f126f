"""Mixed groups: consumers of ours follow the plan of the old ones beside them, with a coordinator and without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.actors import GROUP
from tests.sim.batches import BatchApplication, Sink
from tests.sim.mixed_scene import ADOPTION, MixedScene
from tests.sim.script import seeds
from tests.sim.world import Entry
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode


@pytest.mark.parametrize("coordinators", [0, 1])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_consumer_of_ours_joins_old_ones_and_leaves_them_and_all_is_read_by_one_each_time(
    seed: int, coordinators: int
) -> None:
    scene = MixedScene(seed, coordinators=coordinators)
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.start_ours("consumer1")
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.stop_ours("consumer0")
    scene.await_shared("consumer1", "old0")
    assert scene.commands() == 0


@pytest.mark.parametrize("seed", seeds(10))
def test_an_old_one_joins_a_coordinated_group_at_its_first_tries_and_leaves_it_coordinated(seed: int) -> None:
    scene = MixedScene(seed)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: not scene.standing(), what="no command stands")
    begun_ms, commands = scene.world.now_ms, scene.commands()
    scene.start("old0")
    scene.await_shared("consumer0", "consumer1", "old0")
    assert not scene.member("old0").gave_up
    assert scene.world.now_ms - begun_ms < ADOPTION.patience_ms
    assert scene.commands() == commands
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="the mode is noted")
    scene.leave("old0")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="the mode is noted")


@pytest.mark.parametrize("seed", seeds(10))
def test_a_killed_consumer_of_ours_and_a_killed_old_one_are_replaced_after_their_sessions(seed: int) -> None:
    scene = MixedScene(seed, coordinators=seed % 2)
    scene.start("old0")
    scene.start("old1")
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("old0", "old1", "consumer0", "consumer1")
    scene.end("consumer0")
    scene.await_shared("old0", "old1", "consumer1")
    scene.end("old1")
    scene.await_shared("old0", "consumer1")


@pytest.mark.parametrize("seed", seeds(10))
def test_f97_a_hung_application_of_ours_costs_no_old_member_its_share(seed: int) -> None:
    scene = MixedScene(seed, coordinators=seed % 2)
    scene.start_ours("consumer0")
    scene.start("old1")
    scene.await_shared("consumer0", "old1")
    scene.application("consumer0").hang()
    begun_ms = scene.world.now_ms
    scene.start("old0")

    def has_its_share() -> bool:
        mine = {p for p, claim in scene.rules.claims.items() if claim.session.process == "old0"}
        return mine == {TopicPartition("t", 2), TopicPartition("t", 3)} and not scene.member("old0").gave_up

    scene.world.run_until(has_its_share, what="the share of the one that joins")
    assert scene.world.now_ms - begun_ms >= ADOPTION.patience_ms - 1_500
    scene.application("consumer0").go_on()
    scene.await_shared("consumer0", "old0", "old1")


@pytest.mark.parametrize("seed", seeds(10))
def test_a_topic_that_grows_is_shared_out_anew_by_old_members_and_ours(seed: int) -> None:
    scene = MixedScene(seed, coordinators=seed % 2)
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.await_shared("consumer0", "old0")
    scene.write_topic("t", 9)
    scene.all |= {TopicPartition("t", n) for n in range(9)}
    scene.await_shared("consumer0", "old0")


@pytest.mark.parametrize("seed", seeds(10))
def test_beside_another_library_no_consumer_of_ours_registers_and_it_does_once_that_has_gone(seed: int) -> None:
    scene = MixedScene(seed)
    foreign = f"{LEGACY.ids(GROUP)}/h:12345678-1234-1234-1234-123456789abc"
    scene.world.ensemble.operate(CreateNode(foreign, b"t"))
    scene.start_ours("consumer0")
    scene.world.run_until(lambda: scene.mode() is Mode.OBSERVE, what="the mode is noted")
    end_ms = scene.world.now_ms + 30_000
    scene.world.run_until(lambda: scene.world.now_ms >= end_ms, what="some time")
    assert not [told for told in scene.world.events("registered") if told.client.startswith("consumer0")]
    (waits,) = scene.world.events("waiting")[-1:]
    assert "pykafka" in waits.fields["why"]
    scene.world.ensemble.operate(DeleteNode(foreign, ANY_VERSION))
    scene.await_shared("consumer0")


@pytest.mark.parametrize("seed", seeds(10))
def test_a_consumer_of_ours_keeps_what_it_has_while_a_registration_cannot_be_read(seed: int) -> None:
    scene = MixedScene(seed)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    stranger = f"{LEGACY.ids(GROUP)}/g_old-1416335000123-1a2b3c4d"
    scene.world.ensemble.operate(CreateNode(stranger, b""))
    scene.world.run_until(lambda: scene.mode() is Mode.OBSERVE, what="the mode is noted")
    before = scene.readers()
    scene.stop_ours("consumer0")
    end_ms = scene.world.now_ms + 30_000
    scene.world.run_until(lambda: scene.world.now_ms >= end_ms, what="some time")
    assert scene.readers() == {p: name for p, name in before.items() if name == "consumer1"}
    scene.world.ensemble.operate(DeleteNode(stranger, ANY_VERSION))
    scene.await_shared("consumer1")


@pytest.mark.parametrize("store", ["kafka", "dual"])
def test_no_consumer_of_ours_that_knows_no_brokers_registers_where_offsets_are_kept_in_kafka(store: str) -> None:
    """It would find no offset in ZooKeeper, and begin by its reset policy."""
    adoption = replace(ADOPTION, offsets="kafka", dual_commit=store == "dual")
    scene = MixedScene(0, adoption=adoption)
    scene.start("old0")
    scene.start_ours("consumer0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    end_ms = scene.world.now_ms + 30_000
    scene.world.run_until(lambda: scene.world.now_ms >= end_ms, what="some time")
    assert not scene.world.events("registered")
    assert f"the store '{store}'" in scene.world.events("waiting")[-1].fields["why"]


@pytest.mark.parametrize("seed", seeds(10))
def test_f108_a_slow_member_registers_when_old_members_have_gone_or_wait_longer(
    seed: int,
) -> None:
    scene = MixedScene(seed, adoption=replace(ADOPTION, retries=2, backoff_ms=2_500))
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    scene.start_ours("consumer0", "consumer1")
    hasty, other = scene.role("consumer0"), scene.role("consumer1")
    hasty.stop_needs_ms = 2_000
    scene.await_shared("consumer1", "old0")
    scene.world.run_until(lambda: bool(scene.world.events("waiting")), what="it is told")
    assert "rebalance.max.retries or rebalance.backoff.ms" in scene.world.events("waiting")[-1].fields["why"]
    assert "wait 2500 ms for a partition, of which 1500 are left" in scene.world.events("waiting")[-1].fields["why"]
    assert other.stop_within_ms == 1_500
    if seed % 2:
        scene.adopt(replace(ADOPTION, retries=2, backoff_ms=3_000))
        scene.await_shared("consumer0", "consumer1", "old0")
        assert hasty.stop_within_ms == other.stop_within_ms == 2_000
    else:
        scene.leave("old0")
        scene.await_shared("consumer0", "consumer1")
        assert hasty.stop_within_ms == 1_500  # they may come back


class OursOnly(Sink):
    """A sink of the consumers of ours: old members do not write to it."""

    def _take(self, entry: Entry) -> None:
        if entry.client.startswith("consumer"):
            super()._take(entry)


def batches_across_a_kill(seed: int) -> OursOnly:
    """Two consumers of ours announce their batches beside an old member. One of ours dies, and its partitions go to the
    other."""
    scene = MixedScene(seed, coordinators=seed % 2)
    scene.ours.announce(BatchApplication)
    sink = OursOnly(scene.world, lambda group, topic: 0)
    scene.start("old0")
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1", "old0")
    end_ms, working = scene.world.now_ms + 2_000 + 37 * seed, scene.application("consumer0")
    assert isinstance(working, BatchApplication)
    scene.world.run_until(
        lambda: scene.world.now_ms >= end_ms and bool(working._processed) and working._act == working._work,
        what="a batch of which something is processed",
    )
    scene.end("consumer0")
    scene.await_shared("consumer1", "old0")
    end_ms = scene.world.now_ms + 5_000
    scene.world.run_until(lambda: scene.world.now_ms >= end_ms, what="more batches")
    return sink


def test_the_next_claimer_repeats_a_killed_consumers_batch_as_announced() -> None:
    """If it were processed in other ranges, it would be in a sink twice."""
    assert sum(batches_across_a_kill(seed).again for seed in range(12)) > 0
