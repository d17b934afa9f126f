"""Members of ours beside old members, event by event: how soon everything is read, by whom, and with which commits.

Old members have Kafka's defaults: four tries, two seconds after each, a session of six. A group of old members alone
settles a join within one such wait, and a death within the session timeout and one such wait.
"""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.application import Application
from tests.sim.beside_scene import BesideScene
from tests.sim.old_rules import BEYOND_SESSION, LATE_COMMIT
from tests.sim.process import SimProcess
from tests.sim.script import SESSION_MS, ScriptWorld, hold_calls, on_seeds
from tests.sim.zookeeper import TICK_MS
from zkcoord.core.beside import GIVEN_UP_MS
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode

BACKOFF_MS, RETRIES = 2_000, 4
SLACK_MS = 1_000
DEATH_MS = SESSION_MS + TICK_MS + BACKOFF_MS + SLACK_MS
PATIENCE_MS = (RETRIES - 1) * BACKOFF_MS
with_or_without_coordinator = pytest.mark.parametrize("coordinators", [0, 1])


def scene_of(seed: int, coordinators: int = 0, partitions: int = 6) -> BesideScene:
    """One topic, and no member yet."""
    return BesideScene(ScriptWorld(seed), {"t": partitions}, coordinators=coordinators)


def settled_within(scene: BesideScene, limit_ms: int, what: str) -> None:
    """The group settles within `limit_ms`: everything is read by the member that the plan names."""
    began_ms = scene.world.now_ms
    scene.settle(what)
    assert scene.world.now_ms - began_ms <= limit_ms, what


def calm(scene: BesideScene) -> None:
    """In the calm everything is read to its end, and no rule was broken without an excuse."""
    scene.calm()
    assert scene.rules.unsettled() == {}


def gave_up(scene: BesideScene) -> list[str]:
    """The old members that used up all their tries at least once."""
    return [entry.client for entry in scene.world.journal if entry.event == "gave up"]


@on_seeds()
@with_or_without_coordinator
def test_a_join_and_a_leave_of_either_kind_settle_as_soon_as_among_old_members(seed: int, coordinators: int) -> None:
    scene = scene_of(seed, coordinators)
    for name in ("olda", "oldb"):
        scene.start_old(name)
        settled_within(scene, BACKOFF_MS + SLACK_MS, f"{name} joins")
    scene.enter("consumer0")
    settled_within(scene, BACKOFF_MS + SLACK_MS, "ours joins")
    assert scene.of_ours() == ["t-0", "t-1"]
    scene.start_old("oldc")
    settled_within(scene, BACKOFF_MS + SLACK_MS, "another old member joins")
    scene.ask_to_leave("olda")
    settled_within(scene, BACKOFF_MS + SLACK_MS, "an old member leaves")
    scene.ask_to_leave("consumer0")
    settled_within(scene, BACKOFF_MS + SLACK_MS, "ours leaves")
    calm(scene)
    assert not +scene.rules.excused


@on_seeds()
@with_or_without_coordinator
@pytest.mark.parametrize("victim", ["olda", "consumer0"])
def test_a_death_is_over_when_the_session_has_ended_and_one_conflict_was_waited_for(
    seed: int, coordinators: int, victim: str
) -> None:
    scene = scene_of(seed, coordinators)
    scene.start_old("olda")
    scene.start_old("oldb")
    scene.enter("consumer0", "consumer1")
    scene.settle()
    scene.kill(victim)
    settled_within(scene, DEATH_MS, f"{victim} dies")
    calm(scene)


@on_seeds()
@with_or_without_coordinator
def test_f100_unmoved_partitions_are_read_on_while_old_members_release_all(seed: int, coordinators: int) -> None:
    scene = scene_of(seed, coordinators)
    scene.start_old("oldb")
    scene.enter("consumer0")
    scene.settle()
    claims = {p: claim for p, claim in scene.rules.claims.items() if claim.session.process == "consumer0"}
    scene.start_old("oldc")
    scene.settle()
    kept = {p for p, claim in claims.items() if scene.rules.claims[p] is claim}
    assert kept == {TopicPartition("t", 0), TopicPartition("t", 1)}
    calm(scene)


@on_seeds()
def test_f100_a_slow_program_is_released_in_time_for_the_last_try_of_an_old_joiner(seed: int) -> None:
    scene = scene_of(seed)
    scene.enter("consumer0")
    scene.start_old("olda")
    scene.settle()
    application = scene.world.processes["consumer0"].application
    assert isinstance(application, Application)
    go_on = hold_calls(application)
    joiner, heir = scene.start_old("oldb"), scene.member("olda")  # the joiner takes partitions of the heir of ours

    def settled() -> bool:
        return len(joiner.registry) == len(heir.registry) == 2 and scene.of_ours() == ["t-0", "t-1"]

    scene.world.run_until(settled, what="the old members have their shares")
    assert gave_up(scene) == []
    go_on()
    scene.settle()
    calm(scene)


@on_seeds()
@pytest.mark.parametrize("later_ms", [100, 1_500, 3_500])
def test_f100_a_second_join_gives_a_slow_program_no_more_time_than_the_first_joiner_has(
    seed: int, later_ms: int
) -> None:
    scene = scene_of(seed, partitions=8)
    scene.start_old("oldz")
    scene.enter("consumer0")
    scene.settle()
    application = scene.world.processes["consumer0"].application
    assert isinstance(application, Application)
    hold_calls(application)
    joiner = scene.start_old("olda")
    scene.world.run_for(later_ms)
    scene.start_old("oldb")
    scene.world.run_for(20_000)
    assert len(joiner.registry) == 2
    assert "olda#1" not in gave_up(scene)


@on_seeds(4)
@pytest.mark.parametrize("outstanding_ms", [0, 50, 3_000, 15_000])
def test_f100_a_command_that_a_slow_program_has_not_answered_does_not_hold_up_an_old_joiner(
    seed: int, outstanding_ms: int
) -> None:
    scene = scene_of(seed, coordinators=1, partitions=8)
    scene.enter("consumer0", "consumer1")
    scene.settle()
    application = scene.world.processes["consumer0"].application
    assert isinstance(application, Application)
    go_on = hold_calls(application)
    scene.enter("consumer2")
    scene.world.run_for(outstanding_ms)
    joiner = scene.start_old("olda")
    scene.world.run_until(lambda: bool(joiner.registry), what="the old joiner has its share")
    assert gave_up(scene) == []
    go_on()
    scene.settle()
    calm(scene)


@on_seeds()
@with_or_without_coordinator
def test_f336_a_program_that_starts_slowly_costs_no_old_joiner_its_share(seed: int, coordinators: int) -> None:
    scene = scene_of(seed, coordinators, partitions=8)
    scene.enter("consumer0")
    for name in ("oldy", "oldz"):
        scene.start_old(name)
    scene.settle()
    application = scene.world.processes["consumer0"].application
    assert isinstance(application, Application)
    go_on = hold_calls(application)
    scene.ask_to_leave("oldy")
    scene.world.run_until(lambda: "t-3" in scene.of_ours(), what="a claim of ours")
    joiner = scene.start_old("olda")
    scene.world.run_until(lambda: len(joiner.registry) == 3, what="the old joiner has its share")
    assert gave_up(scene) == []
    go_on()
    scene.settle()
    calm(scene)


@on_seeds()
def test_f101_a_group_is_upgraded_member_by_member_and_rolled_back_while_everybody_reads(seed: int) -> None:
    scene = scene_of(seed, coordinators=1)
    for name in ("olda", "oldb", "oldc"):
        scene.start_old(name)
    scene.settle()
    for n, name in enumerate(("olda", "oldb", "oldc")):
        scene.ask_to_leave(name)
        scene.enter(f"consumer{n}")
        settled_within(scene, 2 * (BACKOFF_MS + SLACK_MS), f"{name} is replaced")
        scene.world.run_for(5_000)
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="coordinated")
    for n, name in enumerate(("oldd", "olde", "oldf")):
        scene.ask_to_leave(f"consumer{n}")
        scene.start_old(name)
        settled_within(scene, 2 * (BACKOFF_MS + SLACK_MS), f"consumer{n} is replaced")
        scene.world.run_for(5_000)
    assert scene.of_ours() == []
    calm(scene)
    assert not +scene.rules.excused


@on_seeds()
@with_or_without_coordinator
def test_an_old_member_that_hung_too_long_reads_twice_and_commits_late(seed: int, coordinators: int) -> None:
    scene = scene_of(seed, coordinators)
    for name in ("olda", "oldb"):
        scene.start_old(name, commit_interval_ms=2_000)
    scene.enter("consumer0")
    scene.settle()
    scene.world.run_for(5_000)
    scene.world.pause("olda")
    others = {"oldb", "consumer0"}
    scene.world.run_until(
        lambda: len(scene.owners()) == 6 and others == set(scene.owners().values()), what="taken over"
    )
    scene.world.run_for(10_000)
    scene.member("olda").commit()
    scene.world.resume("olda")
    scene.settle()
    calm(scene)
    assert set(scene.rules.excused) <= {BEYOND_SESSION, LATE_COMMIT}


@with_or_without_coordinator
def test_an_old_member_whose_id_looks_like_one_of_ours_is_an_old_member(
    coordinators: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(0, coordinators)
    with monkeypatch.context() as patch:
        patch.setattr(SimProcess, "random_hex", lambda self, digits=8: "z0000000")
        scene.start_old("olda")
    scene.enter("consumer0")
    scene.settle()
    assert [name for name in scene.rules.registered if name.endswith("-z0000000")] == [scene.member("olda").consumer_id]
    assert scene.of_ours() == ["t-0", "t-1", "t-2"]
    calm(scene)


def test_a_registration_that_is_set_soon_after_it_was_made_costs_nobody_its_share() -> None:
    scene = scene_of(0, coordinators=1)
    scene.start_old("olda")
    scene.enter("consumer0")
    scene.settle()
    path, ensemble = f"{LEGACY.ids(GROUP)}/{GROUP}_aaa", scene.world.ensemble
    ensemble.operate(CreateNode(path, b""))
    scene.world.run_for(300)
    ensemble.operate(SetNode(path, b'{"version":1,"subscription":{"t":1},"pattern":"static"}', 0))
    free = {"t-0", "t-1"}  # the share of the new member, which claims nothing here
    scene.world.run_until(lambda: scene.owners().keys() == {f"t-{n}" for n in range(6)} - free, what="four are owned")
    ensemble.operate(DeleteNode(path, 1))
    settled_within(scene, BACKOFF_MS + SLACK_MS, "it is gone")
    assert gave_up(scene) == []
    calm(scene)


@on_seeds()
def test_a_partition_that_an_old_member_forgot_is_left_with_whom_to_restart(
    seed: int,
) -> None:
    """An old member whose claims crossed an expiry forgets them, but its owner nodes stay until its session ends."""
    scene = scene_of(seed, coordinators=1)
    old = scene.start_old("olda")
    scene.enter("consumer0")
    scene.settle()
    scene.forget("olda", TopicPartition("t", 0))
    scene.world.run_for(PATIENCE_MS + GIVEN_UP_MS + SLACK_MS)
    assert scene.rules.forgotten() == {TopicPartition("t", 0): "olda"}
    (told,) = [event.fields["why"] for event in scene.world.events("assignment_problem")]
    assert f"(t-0) by old members that should have given them to others: restart {old.consumer_id}" in told
    scene.leave("olda")
    scene.settle()
    calm(scene)


@on_seeds()
def test_an_old_member_gives_up_a_share_that_another_forgot_until_that_one_ends(
    seed: int,
) -> None:
    scene, unread = scene_of(seed, coordinators=1), [TopicPartition("t", n) for n in (2, 3)]
    oldb = scene.start_old("oldb")
    scene.enter("consumer0")
    scene.settle()
    scene.forget("oldb", unread[0])
    scene.start_old("olda")
    scene.world.run_until(lambda: gave_up(scene) != [], what="olda gives up")
    scene.poke()
    scene.world.run_for(20_000 + RETRIES * BACKOFF_MS + PATIENCE_MS + GIVEN_UP_MS + SLACK_MS)
    assert scene.rules.unsettled() == dict.fromkeys(unread, "olda gave up")
    assert scene.rules.behind_forgotten() == set(unread)
    told = scene.world.events("assignment_problem")[-1].fields["why"]  # does not suggest a poke: none helps here
    assert f"(t-2) by old members that should have given them to others: restart {oldb.consumer_id}" in told
    assert "until then 1 partitions have no reader (t-3)" in told
    assert "group poke" not in told
    scene.leave("oldb")
    scene.settle()
    calm(scene)
