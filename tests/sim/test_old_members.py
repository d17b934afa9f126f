"""The scripted old member has the measured habits of the real ones (tests/old_consumers, the real jars). Each test
shows one habit.

Kafka's defaults: four tries, two seconds after each, a session of six.
"""

from __future__ import annotations

import json

import pytest

from tests.sim.actors import GROUP
from tests.sim.old_member import OldMember
from tests.sim.old_rules import BEYOND_SESSION, EQUAL_DATA, LATE_COMMIT, NODE_DELETED
from tests.sim.old_scene import OldScene
from tests.sim.old_settings import V011, V08, V11, VERSIONS
from tests.sim.script import SESSION_MS, ScriptWorld, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import BROKERS, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

IDS, OWNERS, OFFSETS = (f"/consumers/{GROUP}/{name}" for name in ("ids", "owners", "offsets"))
T0, T3 = TopicPartition("t", 0), TopicPartition("t", 3)
LONG_TIMESTAMP = '{"version":1,"subscription":{},"pattern":"static","timestamp":1416335000123}'
SAME = b'{"version":1,"subscription":{"t":1},"pattern":"static"}'
each_version = pytest.mark.parametrize("version", VERSIONS)


def scene_of(partitions: int = 4, *, seed: int = 0, brokers: int = 1) -> OldScene:
    """One topic, and no member yet."""
    return OldScene(ScriptWorld(seed), {"t": partitions}, brokers=brokers)


def shares(*names: str) -> dict[str, str]:
    """`topic-partition` -> owner: the owners of the partitions from 0 on."""
    return {f"t-{n}": name for n, name in enumerate(names)}


def blocked(scene: OldScene, release_after_ms: int | None, *, retries: int = 4) -> OldMember:
    """`old1` joins while somebody else owns all partitions. That owner gives half of them up after this time (None:
    never)."""
    world = scene.world
    world.ensemble.operate(CreateNode(f"{IDS}/{GROUP}_0-1-z0000000", SAME))
    world.ensemble.ensure(f"{OWNERS}/t")
    for n in range(4):
        world.ensemble.operate(CreateNode(f"{OWNERS}/t/{n}", f"{GROUP}_0-1-z0000000-0".encode()))

    def release() -> None:
        for n in (2, 3):
            world.ensemble.operate(DeleteNode(f"{OWNERS}/t/{n}", 0))

    if release_after_ms is not None:
        world.at(world.now_ms + release_after_ms, release)
    return scene.start("old1", retries=retries)


# -- joining and leaving


@on_seeds()
def test_members_of_all_versions_share_one_group_in_ranges_by_the_order_of_their_ids(seed: int) -> None:
    scene = scene_of(6, seed=seed)
    scene.join("olda", version=V08)
    assert scene.owners() == shares(*["olda"] * 6)
    scene.join("oldb", version=V011)
    scene.join("oldc", version=V11)
    assert scene.owners() == shares("olda", "olda", "oldb", "oldb", "oldc", "oldc")
    scene.leave("olda")
    scene.settle()
    assert scene.owners() == shares("oldb", "oldb", "oldb", "oldc", "oldc", "oldc")
    scene.calm()
    assert (scene.rules.unsettled(), +scene.rules.excused) == ({}, {})


@each_version
@on_seeds()
def test_any_join_makes_a_member_release_what_it_keeps_as_well(seed: int, version: str) -> None:
    scene = scene_of(seed=seed)
    scene.join("old0", version=version)
    ensemble = scene.world.ensemble
    made = {n: ensemble.stat(f"{OWNERS}/t/{n}") for n in (0, 1)}
    scene.join("old1", version=version)
    assert scene.owners() == shares("old0", "old0", "old1", "old1")
    for n, before in made.items():
        now = ensemble.stat(f"{OWNERS}/t/{n}")
        assert before is not None
        assert now is not None
        assert now.czxid > before.czxid
    stopped = [entry for entry in scene.world.journal if entry.process == "old0" and entry.event == "stop"]
    assert {entry.partition.partition for entry in stopped} == {0, 1, 2, 3}


def test_a_killed_member_s_share_is_taken_over_when_its_session_ends() -> None:
    scene = scene_of()
    scene.join("old0", "old1")
    died_ms = scene.world.now_ms
    scene.world.stop("old1")
    scene.world.run_until(lambda: scene.owners() == shares(*["old0"] * 4), what="old0 owns all")
    assert scene.world.now_ms - died_ms >= SESSION_MS / 2


@each_version
def test_a_member_that_hung_beyond_its_session_reads_on_and_then_takes_its_share_again(version: str) -> None:
    scene = scene_of()
    scene.join("old0", "old1", version=version, auto_commit=False)
    scene.world.processes["old1"].cut = True  # its program goes on; only its client is cut off
    wire = next(store.wire for store in scene.world.processes["old1"].stores if store.wire is not None)
    wire.up = wire.down = False
    scene.world.processes["old1"].refresh()
    scene.world.run_until(lambda: scene.owners() == shares(*["old0"] * 4), what="old0 owns all")
    scene.world.run_for(3_000)
    assert scene.member("old1").reading.keys() == {TopicPartition("t", 2), T3}
    assert scene.rules.excused[BEYOND_SESSION] > 0
    scene.world.processes["old1"].cut = False
    scene.settle()
    assert scene.owners() == shares("old0", "old0", "old1", "old1")
    assert set(scene.rules.excused) == {BEYOND_SESSION}


# -- patience


@pytest.mark.parametrize(("late_ms", "retries"), [(500, 4), (5_000, 4), (15_000, 10)])
def test_a_joiner_waits_for_who_releases_before_its_last_attempt(late_ms: int, retries: int) -> None:
    scene = scene_of()
    member = blocked(scene, late_ms, retries=retries)
    began_ms = scene.world.now_ms
    scene.world.run_until(lambda: len(member.registry) == 2, what="old1 owns its share")
    assert late_ms <= scene.world.now_ms - began_ms <= late_ms + 2_500
    assert not member.gave_up


def test_a_joiner_gives_up_after_its_last_attempt_stays_registered_and_orphans_its_share() -> None:
    scene = scene_of()
    member = blocked(scene, 7_000)
    began_ms = scene.world.now_ms
    scene.world.run_until(lambda: member.gave_up, what="old1 gives up")
    assert 8_000 <= scene.world.now_ms - began_ms <= 9_000
    assert member.tries == 4
    scene.world.run_for(60_000)
    assert member.consumer_id in scene.world.ensemble.names(IDS)
    assert (member.registry, member.tries) == ({}, 4)
    assert sorted(scene.owners()) == ["t-0", "t-1"]
    (other, mine) = sorted(set(scene.rules.unsettled().values()))
    assert (other, mine) == ("g_0-1-z0000000 owns it and reads it with lag None", "old1 gave up")


def test_a_poke_makes_one_rebalance_and_its_end_another_and_heals_an_orphaned_share() -> None:
    scene = scene_of()
    member = blocked(scene, 7_000)
    scene.world.run_until(lambda: member.gave_up, what="old1 gives up")
    before = member.rebalances
    scene.poke()
    scene.world.run_until(lambda: len(member.registry) == 2, what="old1 owns its share")
    scene.world.run_for(1_000)
    assert member.rebalances == before + 1
    scene.world.run_for(30_000)
    assert member.rebalances == before + 2
    assert len(member.registry) == 2


def test_a_poke_made_and_removed_in_one_transaction_makes_one_rebalance_and_heals() -> None:
    scene = scene_of()
    scene.join("old0")
    path, member = f"{IDS}/{GROUP}_zpoke-1", scene.member("old0")
    scene.world.ensemble.operate(DeleteNode(f"{OWNERS}/t/0", ANY_VERSION))
    scene.world.ensemble.operate(CreateNode(path, b""), DeleteNode(path, 0))
    scene.settle()
    scene.world.run_for(5_000)
    assert (member.rebalances, member.tries, len(scene.owners())) == (2, 2, 4)


# -- owner nodes


def test_a_lost_owner_node_is_not_noticed_and_a_poke_brings_it_back() -> None:
    scene = scene_of()
    scene.join("old0")
    scene.world.ensemble.operate(DeleteNode(f"{OWNERS}/t/0", ANY_VERSION))
    scene.world.run_for(30_000)
    assert T0 in scene.member("old0").reading
    assert scene.rules.unsettled() == {T0: "old0 does not notice that its owner node is gone"}
    assert scene.rules.excused[NODE_DELETED] > 0
    scene.poke()
    scene.settle()


def test_a_member_deletes_the_owner_node_that_somebody_else_made_in_the_place_of_its_own() -> None:
    scene = scene_of()
    scene.join("old0")
    scene.world.ensemble.operate(
        DeleteNode(f"{OWNERS}/t/0", ANY_VERSION), CreateNode(f"{OWNERS}/t/0", b"g_other-1-2-0")
    )
    scene.poke()
    scene.settle()
    assert scene.owners() == shares(*["old0"] * 4)
    log = scene.world.ensemble.log
    (theft,) = [txn for txn in log if [c.before.data for c in txn.changes if c.before] == [b"g_other-1-2-0"]]
    assert theft.session.process == "old0"


def test_an_owner_node_of_another_session_with_equal_data_counts_as_claimed() -> None:
    scene = scene_of()
    scene.join("old0")
    member, ensemble = scene.member("old0"), scene.world.ensemble
    path, data = f"{OWNERS}/t/0", f"{scene.member('old0').consumer_id}-0".encode()
    ensemble.on_applied.append(
        lambda txn: (
            ensemble.operate(CreateNode(path, data))
            if txn.session.process == "old0" and any(c.path == path and c.after is None for c in txn.changes)
            else None
        )
    )
    scene.poke()
    scene.world.run_until(lambda: member.rebalances == 2 and member.settled, what="a rebalance")
    scene.world.run_for(2_000)
    assert T0 in member.reading
    assert set(scene.rules.excused) == {EQUAL_DATA}
    stat = ensemble.stat(path)
    assert stat is not None
    assert stat.ephemeral_owner == 0


# -- causes of a rebalance


def test_a_member_without_brokers_owns_nothing_and_rebalances_when_one_comes() -> None:
    scene = scene_of(brokers=0)
    member = scene.start("old0")
    scene.world.run_for(5_000)
    assert (member.rebalances, member.registry, member.gave_up) == (1, {}, False)
    scene.start_broker()
    scene.settle()
    assert scene.owners() == shares(*["old0"] * 4)


def test_a_member_that_finds_no_broker_any_more_keeps_what_it_owns() -> None:
    scene = scene_of()
    scene.join("old0")
    member = scene.member("old0")
    scene.stop_broker()
    scene.poke()
    scene.world.run_until(lambda: member.rebalances == 2 and member.settled, what="a rebalance")
    assert len(member.reading) == len(member.registry) == len(scene.owners()) == 4


def test_a_rewritten_topic_costs_one_rebalance_and_a_deleted_one_goes_unnoticed() -> None:
    scene = scene_of()
    scene.join("old0")
    member = scene.member("old0")
    scene.write_topic("t", 4)
    scene.world.run_for(5_000)
    assert member.rebalances == 2
    scene.write_topic("t", 5)
    scene.settle()
    assert scene.owners() == shares(*["old0"] * 5)
    scene.world.ensemble.operate(DeleteNode(f"{TOPICS}/t", ANY_VERSION))
    scene.world.run_for(5_000)
    assert (member.rebalances, len(scene.owners())) == (3, 5)


@each_version
def test_a_wildcard_takes_topics_as_they_come(version: str) -> None:
    scene = scene_of(2)
    scene.join("old0", version=version, wildcard="t.*")
    scene.write_topic("t2", 1)
    scene.world.run_until(lambda: len(scene.owners()) == 3, what="the new topic is owned")
    scene.write_topic("t2", 2)
    scene.world.run_until(lambda: len(scene.owners()) == 4, what="its growth is owned")
    scene.write_topic("other", 1)
    scene.world.run_for(3_000)
    assert scene.owners() == {**shares("old0", "old0"), "t2-0": "old0", "t2-1": "old0"}


@pytest.mark.parametrize(
    ("version", "stored"),
    [(V08, r"foo\\.bar|ba\/z.*"), (V011, r"foo\\.bar|ba\/z.*"), (V11, r"foo\\\\.bar|ba\\/z.*")],
)
def test_a_registration_reads_as_the_real_one_and_1_1_escapes_a_wildcard_twice(version: str, stored: str) -> None:
    scene = scene_of()
    member = scene.start("old0", version=version, wildcard=r"foo\.bar,ba /z.*")
    scene.write_topic("foo.bar", 1)
    scene.world.run_until(lambda: member.rebalances > 0 and member.settled, what="a rebalance")
    text = (scene.world.ensemble.data(f"{IDS}/{member.consumer_id}") or b"").decode()
    assert text.startswith(f'{{"version":1,"subscription":{{"{stored}":1}},"pattern":"white_list","timestamp":"')
    assert set(scene.owners()) == (set() if version == V11 else {"foo.bar-0"})  # 1.1 reads another regex back
    plain = scene.start("old1", version=version)
    scene.world.run_until(lambda: scene.registered(), what="registered")
    assert json.loads(scene.world.ensemble.data(f"{IDS}/{plain.consumer_id}") or b"")["subscription"] == {"t": 1}


@pytest.mark.parametrize(("text", "readers"), [("", ()), ("t", ()), (LONG_TIMESTAMP, (V11,))])
@each_version
def test_an_unreadable_registration_takes_everything_from_everybody_until_it_is_gone(
    version: str, text: str, readers: tuple[str, ...]
) -> None:
    scene = scene_of()
    scene.join("old0", version=version)
    member, path = scene.member("old0"), f"{IDS}/{GROUP}_bad"
    scene.world.ensemble.operate(CreateNode(path, text.encode()))
    if version in readers:
        scene.world.run_for(15_000)
        assert (len(scene.owners()), member.gave_up) == (4, False)
        return
    scene.world.run_until(lambda: not scene.owners(), what="everything is released")
    scene.world.run_until(lambda: member.gave_up, what="it gives up")
    scene.world.run_for(20_000)
    assert scene.owners() == {}
    scene.world.ensemble.operate(DeleteNode(path, ANY_VERSION))
    scene.settle()


def test_a_registration_created_empty_and_set_soon_costs_one_failed_try() -> None:
    scene = scene_of()
    scene.join("old0")
    member, path = scene.member("old0"), f"{IDS}/{GROUP}_zpoke"
    ensemble, before = scene.world.ensemble, member.tries
    ensemble.operate(CreateNode(path, b""))
    scene.world.run_for(300)
    ensemble.operate(DeleteNode(path, ANY_VERSION))
    scene.world.run_for(5_000)
    assert (member.tries - before, member.gave_up) == (3, False)  # the failed one, another, one for the deletion
    assert len(scene.owners()) == 4


# -- commits


@each_version
@on_seeds()
def test_a_late_commit_moves_the_offset_of_a_partition_that_was_lost_backwards(seed: int, version: str) -> None:
    scene = scene_of(seed=seed)
    scene.join("old0", "old1", version=version, commit_interval_ms=2_000)
    scene.world.run_for(5_000)
    scene.world.pause("old1")
    scene.world.run_until(lambda: scene.owners() == shares(*["old0"] * 4), what="old0 owns all")
    scene.world.run_for(10_000)
    before = scene.offset(T3) or 0
    scene.member("old1").commit()  # its timer ran out during the pause
    scene.world.resume("old1")
    scene.world.run_until(lambda: (scene.offset(T3) or 0) < before, what="the offset is moved back")
    assert scene.rules.excused[LATE_COMMIT] > 0


def test_a_member_commits_at_its_interval_rebalances_and_end_and_never_twice() -> None:
    scene = scene_of(1)
    scene.join("old0", commit_interval_ms=60_000)
    scene.world.run_for(50_000)
    assert scene.offset(T0) is None
    scene.world.run_for(15_000)
    first = scene.offset(T0)
    assert first is not None
    scene.world.run_for(10_000)
    assert scene.offset(T0) == first
    scene.join("old1")
    second = scene.offset(T0)
    assert second is not None
    assert second > first
    scene.calm()
    writes = scene.world.ensemble.log[-1].zxid
    scene.world.run_for(120_000)
    assert scene.world.ensemble.log[-1].zxid == writes


def test_the_defaults_are_those_of_kafka() -> None:
    scene = scene_of(1)
    settings = scene.start("old0").settings
    assert (settings.retries, settings.backoff_ms, settings.commit_interval_ms) == (4, 2_000, 60_000)
    assert scene.world.ensemble.names(BROKERS) == ["0"]
