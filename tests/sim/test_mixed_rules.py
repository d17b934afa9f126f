"""Rules of groups with old members that storms do not cover: each has a scene here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.actors import GROUP
from tests.sim.mixed_scene import ADOPTION, RECORD, MixedScene
from tests.sim.process import SimProcess
from tests.sim.script import SESSION_MS, on_seeds
from tests.sim.test_mixed_storms import unread
from tests.sim.zookeeper import TICK_MS, Txn
from zkcoord.core.member import decide, sharing
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import PAUSE, RESET, Request
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.tree.paths import LEGACY, TOPICS
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.request import requested
from zkcoord.tree.writes import ANY_VERSION, CheckNode, CreateNode, DeleteNode, SetNode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STRANGER = b"g_stranger-1416335000123-1a2b3c4d-0"
MARKED = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1","coordination":"zkcoord/1"}'


def coordinated(seed: int) -> MixedScene:
    """A group of only two consumers of ours."""
    scene = MixedScene(seed)
    scene.start_ours("consumer0", "consumer1")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    return scene


def beside(seed: int, *ours: str) -> MixedScene:
    """A group of an old member and some consumers of ours."""
    scene = MixedScene(seed)
    scene.start("old0")
    scene.start_ours(*ours)
    scene.await_shared("old0", *ours)
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="it is mixed")
    return scene


def modes_seen(scene: MixedScene) -> list[Mode | None]:
    """A list that gets every mode that is noted from now on."""
    seen = [scene.mode()]
    scene.world.ensemble.on_applied.append(lambda txn: seen.append(scene.mode()) if scene.mode() != seen[-1] else None)
    return seen


def keeps_everything(scene: MixedScene, name: str) -> None:
    """From now on this registration of the process releases nothing, as a faulty program. Its later registrations work
    correctly."""
    original = sharing.follow_plan
    faulty = next(c for c, session in scene.rules.registered.items() if session.process == name)

    def follow(view: object, memory: object, *rest: object) -> object:
        held = memory.held  # type: ignore[attr-defined]
        if any(mine.thread.startswith(faulty) for mine in held.values()):
            return [], memory
        return original(view, memory, *rest)  # type: ignore[arg-type]

    decide.sharing.follow_plan = follow  # type: ignore[assignment]


@on_seeds(3)
def test_f94_a_member_that_keeps_an_old_members_share_is_evicted_and_the_old_one_poked(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide.sharing, "follow_plan", sharing.follow_plan)  # so that it is restored at the end
    scene = beside(seed, "consumer0")
    faulty = next(c for c, session in scene.rules.registered.items() if session.process == "consumer0")
    keeps_everything(scene, "consumer0")
    began_ms = scene.world.now_ms
    scene.start("old1")
    scene.world.run_until(lambda: faulty not in scene.rules.registered, what="it is evicted")
    assert scene.world.now_ms - began_ms >= ADOPTION.patience_ms + SESSION_MS
    scene.world.run_for(2 * (SESSION_MS + TICK_MS))
    scene.poke()
    scene.await_shared("consumer0", "old0", "old1")


@on_seeds(3)
def test_f99_an_evicted_consumers_claims_beside_old_members_go_after_its_grace(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide.sharing, "follow_plan", sharing.follow_plan)
    scene = beside(seed, "consumer0")
    ensemble = scene.world.ensemble
    faulty = next(c for c, session in scene.rules.registered.items() if session.process == "consumer0")
    kept = min(p for p, claim in scene.rules.claims.items() if claim.thread.startswith(faulty))
    path, thread = LEGACY.owner(GROUP, kept), scene.rules.claims[kept].thread.encode()
    keeps_everything(scene, "consumer0")
    scene.start("old1")
    scene.world.run_until(lambda: faulty not in scene.rules.registered, what="it is evicted")
    evicted_ms = scene.world.now_ms
    scene.world.run_until(lambda: kept not in scene.rules.claims, what="its claims go")
    scene.end("consumer0")
    if not ensemble.operate(CreateNode(path, thread)).reason:  # as if its session lived
        scene.world.run_until(lambda: bool(scene.world.events("claims_deleted")), what="they are deleted")
        assert scene.world.now_ms - evicted_ms >= SESSION_MS
    scene.world.run_for(SESSION_MS + TICK_MS)
    scene.poke()
    scene.await_shared("old0", "old1")


@on_seeds(3)
@pytest.mark.parametrize("answers", [True, False])
def test_f89_no_old_member_claims_what_an_application_without_a_registration_may_still_read(
    seed: int, answers: bool
) -> None:
    """Old members know no grace: only the claims keep them from reading at the same time."""
    scene = beside(seed, "consumer0")
    world, application, lease = scene.world, scene.application("consumer0"), scene.role("consumer0").lease
    assert lease is not None
    mine = next(c for c, session in scene.rules.registered.items() if session.process == "consumer0")
    claimed = [p for p, claim in scene.rules.claims.items() if claim.thread.startswith(mine)]
    application.hang()
    world.ensemble.operate(DeleteNode(LEGACY.registration(GROUP, mine), ANY_VERSION))
    world.run_until(lambda: bool(world.events("session_lost")), what="it sees that")
    lost_ms, until_ms = world.now_ms, world.processes["consumer0"].clock.world_ms(lease.until_ms)
    if answers:
        world.run_for(SESSION_MS // 6)
        application.go_on()
    world.run_until(lambda: all(p in scene.member("old0").reading for p in claimed), what="the old one reads them")
    paths = {LEGACY.owner(GROUP, p) for p in claimed}
    later = [txn for txn in world.ensemble.log if txn.time_ms >= lost_ms]
    first_ms = min(txn.time_ms for txn in later for c in txn.changes if c.path in paths and c.before is None)
    if answers:
        assert lost_ms + SESSION_MS // 6 <= first_ms < until_ms
    else:
        assert first_ms >= until_ms
    assert not scene.member("old0").gave_up
    application.go_on()
    scene.await_shared("old0", "consumer0")
    scene.calm()


@on_seeds(3)
def test_a_claim_is_not_acknowledged_by_a_record_that_has_changed_since_it_was_read(seed: int) -> None:
    """The store in which a partition starts is named in the record, and not in a command."""
    scene = MixedScene(seed, coordinators=0)
    scene.start("old0")
    scene.world.run_until(lambda: scene.shared("old0"), what="the old one has all")
    world = scene.world
    before_write = world.before_write

    def change(store: object, transaction: object) -> str:
        if str(getattr(transaction, "why", "")).startswith("acknowledge start"):
            world.before_write = before_write  # type: ignore[method-assign]
            record = decode_record(world.ensemble.data(RECORD) or b"")
            world.ensemble.operate(SetNode(RECORD, encode_record(replace(record, assignor="range")), ANY_VERSION))
        return before_write(store, transaction)  # type: ignore[arg-type]

    world.before_write = change  # type: ignore[method-assign, assignment]
    scene.start_ours("consumer0")
    scene.await_shared("old0", "consumer0")
    tried = [t for t in world.tried if t.transaction.why.startswith("acknowledge start")][:2]
    assert [each.applied for each in tried] == [False, True]
    refused, acknowledged = tried
    assert CheckNode(RECORD, 0) in refused.transaction.writes
    assert CheckNode(RECORD, 1) in acknowledged.transaction.writes
    reads = [entry.time_ms for entry in world.journal if entry.event == "read" and entry.process == "consumer0"]
    assert all(at_ms >= acknowledged.time_ms for at_ms in reads)


@on_seeds(3)
@pytest.mark.parametrize("name", [PAUSE, RESET, "hold", "rebalance"])
def test_an_unfit_request_beside_an_old_member_is_refused_and_all_is_read_on(seed: int, name: str) -> None:
    scene = beside(seed, "consumer0")
    ensemble = scene.world.ensemble
    claims = dict(scene.rules.claims)
    record = decode_record(ensemble.data(RECORD) or b"")
    ensemble.operate(SetNode(RECORD, encode_record(requested(record, name, Request(run="r"))), ANY_VERSION))
    scene.world.run_until(lambda: name in decode_record(ensemble.data(RECORD) or b"").responses, what="an answer")
    response = decode_record(ensemble.data(RECORD) or b"").responses[name]
    (old,) = scene.rules.members()
    assert response.says("r", "refused")
    shared = f"the group is shared with old members (mixed): it has 1 old member: {old}; replace these first"
    assert response.reason == shared
    scene.world.run_for(5_000)
    assert scene.rules.claims == claims
    assert scene.commands() == 0


@on_seeds(3)
def test_f96_a_recreated_topics_offsets_beside_old_members_outlive_the_coordination(
    seed: int,
) -> None:
    scene = coordinated(seed)
    scene.world.run_for(3_000)
    scene.start("old0", commit_interval_ms=1_000)
    scene.await_shared("consumer0", "consumer1", "old0")
    removed = list[str]()

    def watch(txn: Txn) -> None:
        removed.extend(c.path for c in txn.changes if c.after is None and c.path.startswith(LEGACY.offsets(GROUP)))

    ensemble = scene.world.ensemble
    ensemble.on_applied.append(watch)
    path = f"{TOPICS}/t"
    data = ensemble.data(path) or b""
    ensemble.operate(DeleteNode(path, ANY_VERSION))
    ensemble.operate(CreateNode(path, data))
    created_ms = scene.world.now_ms
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.world.run_for(60_000)
    scene.leave("old0")
    scene.await_shared("consumer0", "consumer1")
    scene.world.run_until(lambda: scene.mode() is Mode.COORDINATED, what="it is coordinated")
    scene.world.run_for(60_000)
    assert removed == []
    assert unread(scene) == []
    mark = LEGACY.mark(GROUP, "t")
    renewed = [each for each in scene.world.tried if each.applied and mark in {w.path for w in each.transaction.writes}]
    assert renewed[-1].time_ms >= created_ms


@on_seeds(3)
def test_a_poke_that_stands_in_a_coordinated_group_changes_neither_its_mode_nor_anything_else(seed: int) -> None:
    scene = coordinated(seed)
    seen, commands, claims = modes_seen(scene), scene.commands(), dict(scene.rules.claims)
    scene.poke()
    scene.world.run_for(30_000)
    assert seen == [Mode.COORDINATED]
    assert (scene.commands(), scene.rules.claims) == (commands, claims)


@on_seeds(3)
def test_a_registration_with_the_marker_alone_is_an_old_members(seed: int) -> None:
    """Its name is not one of ours: it is in no channel, and an old member with a copied registration reads."""
    scene = coordinated(seed)
    scene.world.ensemble.operate(CreateNode(f"{LEGACY.ids(GROUP)}/{GROUP}_copied-1416335000123-1a2b3c4d", MARKED))
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="it is mixed")


@on_seeds(3)
def test_a_name_as_one_of_ours_alone_is_an_old_members(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = coordinated(seed)
    with monkeypatch.context() as patch:
        patch.setattr(SimProcess, "random_hex", lambda self, digits=8: "z0000000")
        scene.start("old0")
    scene.await_shared("consumer0", "consumer1", "old0")
    scene.world.run_until(lambda: scene.mode() is Mode.MIXED, what="it is mixed")


def reads_owners_within_ms(scene: MixedScene, partition: TopicPartition) -> int:
    """A stranger claims a partition that is in nobody's share. Returns how long consumer0 takes to read the list of
    owners."""
    world, owners = scene.world, LEGACY.topic_owners(GROUP, partition.topic)
    world.run_for(3_000)
    began_ms, known = world.now_ms, len(world.asked)
    assert not world.ensemble.operate(CreateNode(LEGACY.owner(GROUP, partition), STRANGER)).reason

    def read() -> bool:
        return any(client.startswith("consumer0") and path == owners for _, client, path in world.asked[known:])

    world.run_until(read, what="consumer0 reads the list of owners")
    return world.now_ms - began_ms


@on_seeds(3)
def test_a_member_reads_owner_lists_at_once_only_while_it_waits_for_its_share(seed: int) -> None:
    scene = beside(seed, "consumer0")
    claims, world = scene.rules.claims, scene.world
    assert reads_owners_within_ms(scene, TopicPartition("t", 7)) >= PATIENCE_MS
    assert claims[T0].session.process == "consumer0"
    owner = LEGACY.owner(GROUP, T0)
    world.ensemble.operate(DeleteNode(owner, ANY_VERSION), CreateNode(owner, STRANGER))
    assert reads_owners_within_ms(scene, TopicPartition("t", 8)) < PATIENCE_MS
    world.ensemble.operate(DeleteNode(owner, ANY_VERSION))
    world.run_until(lambda: T0 in claims, what="it has all of its share again")
    assert reads_owners_within_ms(scene, TopicPartition("t", 9)) >= PATIENCE_MS
