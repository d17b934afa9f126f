"""Failure cases of coordinators (docs/failures.md): which one serves, late writes of a deposed one, take-overs."""

from __future__ import annotations

import json
from functools import partial

from tests.sim import faults
from tests.sim.actors import GROUP, ProductActor, coordinator
from tests.sim.process import SimProcess
from tests.sim.script import SESSION_MS, Script, ScriptWorld, on_seeds, sends
from tests.sim.zookeeper import Txn
from zkcoord.migrate import first_revision_reads, first_revision_writes, served
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell.loop import Loop
from zkcoord.tree.paths import CANDIDATES, DRAFT, EPOCH, LEGACY, SCHEMA
from zkcoord.tree.writes import DeleteNode, SetNode, Transaction


def epoch(world: ScriptWorld) -> int:
    """The epoch node's text."""
    return int(world.ensemble.data(EPOCH) or b"0")


@on_seeds()
def test_f01_two_coordinators_at_once_only_the_newest_epoch_writes(seed: int) -> None:
    """Multis of the old coordinator are under way when its node is removed and another one is elected: all of them are
    refused."""
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    wire, old_epoch = script.wire(old), epoch(world)
    script.join("late")
    world.run_until(lambda: any(ask.kind == "commit" for ask in wire.requests), what="the old one wants to write")
    wire.up = False  # its writes wait in its connection; it still hears everything
    script.refresh(old)
    world.ensemble.operate(DeleteNode(DRAFT.coordinator, 0))
    world.run_until(lambda: epoch(world) == old_epoch + 1, what="another is elected")
    new, waiting = script.leader(), [ask.payload for ask in wire.requests if ask.kind == "commit"]
    assert new != old
    assert world.ensemble.sessions[wire.session.id] is wire.session  # its session is alive: only the epoch stops it
    script.settle("the new one serves")
    wire.up = True
    script.refresh(old)
    world.run_until(lambda: not wire.open, what="the old one steps down")
    sent = [tried for tried in world.tried if tried.transaction in waiting]
    assert len(sent) == len(waiting)
    assert {(tried.result.reason, tried.result.failed_at) for tried in sent} == {("BadVersion", 0)}
    assert [told.fields["epoch"] for told in world.events("deposed")] == [old_epoch]
    script.calm()
    assert (script.leader(), epoch(world)) == (new, old_epoch + 1)


@on_seeds()
def test_f01_a_coordinator_that_was_stopped_past_its_session_comes_back_as_a_standby(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    world.pause(old)
    world.run_for(100)
    script.join("late")
    paused_ms = world.now_ms
    world.run_until(lambda: script.leader() != old, 10_000, "another is elected")
    assert world.now_ms - paused_ms <= SESSION_MS + 4_000
    script.settle("the new one serves")
    new, resumed_ms = script.leader(), world.now_ms
    world.resume(old)
    world.run_for(3 * SESSION_MS)
    client = script.client(old)
    assert [told.client for told in world.events("deposed")] == [client]
    assert not [told for told in world.events("elected", resumed_ms) if told.client == client]
    applied = [t for t in world.tried if t.client == client and t.time_ms >= resumed_ms and t.applied]
    paths = [write.path for t in applied for write in t.transaction.writes]
    assert [path.rpartition("/")[0] for path in paths] == [CANDIDATES]  # it only creates its candidate's node again
    script.calm()
    assert script.leader() == new


@on_seeds()
def test_an_election_decided_before_a_new_schema_is_refused_and_decided_again(seed: int) -> None:
    """The candidate read a schema that it can serve. By the time of its election the schema may be another one."""
    script = Script(seed)
    script.settle()
    world, candidate, first_epoch = script.world, script.standby(), epoch(script.world)
    tried_before = len(world.tried)  # it may have tried and lost the first election
    world.crash(script.leader(), restart_after_ms=None, exact=True)
    wire = script.wire(candidate)

    def elections() -> list[Transaction]:
        return [a.payload for a in wire.requests if a.kind == "commit" and a.payload.why == "election"]

    world.run_until(lambda: bool(elections()), 10_000, "it wants to be elected")
    (decided,) = elections()
    stat = world.ensemble.stat(SCHEMA)
    assert stat is not None
    world.ensemble.operate(SetNode(SCHEMA, world.ensemble.data(SCHEMA) or b"", stat.version))
    world.run_until(lambda: epoch(world) > first_epoch, 10_000, "it is elected")
    candidates = [t for t in world.tried[tried_before:] if t.client == script.client(candidate)]
    tried = [t for t in candidates if t.transaction.why == "election"]
    assert [(t.result.reason, t.result.failed_at) for t in tried] == [
        ("BadVersion", 0),
        ("", tried[-1].result.failed_at),
    ]
    assert tried[0].transaction == decided
    assert (script.leader(), epoch(world)) == (candidate, first_epoch + 1)
    script.settle()


@on_seeds()
def test_nobody_is_elected_while_a_migration_is_in_progress(seed: int) -> None:
    """A migration raises the epoch, which deposes the coordinator. Candidates wait until the migration's last write."""
    script = Script(seed)
    script.settle()
    world, first_epoch = script.world, epoch(script.world)
    before = world.ensemble.data(SCHEMA) or b""
    marked = json.dumps({**json.loads(before), "migration": {"from": "0001", "to": "0002", "run": "x"}}).encode()
    for path, data in ((SCHEMA, marked), (EPOCH, str(first_epoch + 1).encode())):
        stat = world.ensemble.stat(path)
        assert stat is not None
        assert not world.ensemble.operate(SetNode(path, data, stat.version)).reason
    script.join("late")
    began_ms, began = world.now_ms, len(world.tried)
    world.run_for(5 * SESSION_MS)
    assert [t.transaction for t in world.tried[began:] if t.transaction.why == "election"] == []
    assert (len(world.events("deposed", began_ms)), epoch(world)) == (1, first_epoch + 1)
    stat = world.ensemble.stat(SCHEMA)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(SCHEMA, before, stat.version)).reason
    script.settle("one of them serves")
    assert epoch(world) == first_epoch + 2
    script.calm()


def fixed_id(process: SimProcess) -> ProductActor:
    """A coordinator that was started with `--id 0`."""
    loop = Loop(process.open_session, process.inbox.put)
    given = {
        "wanted_id": 0,
        "description": json.dumps({"host": process.client}).encode(),
        "first_reads": first_revision_reads("draft"),
        "first_writes": lambda nodes: first_revision_writes(nodes, "draft", "5e0b"),
        "revisions": served(),
    }
    role = CoordinatorRole(loop, DRAFT, given, lambda name, fields: process.world.trace(process.client, name, fields))
    loop.run_role(role)
    return ProductActor(loop, role)


@on_seeds()
def test_f02_a_coordinator_does_not_trust_the_node_of_its_own_expired_session(seed: int) -> None:
    """The coordinator's node has the same id and text, but it belongs to the session of the killed process. The new one
    must wait for its end."""
    script = Script(seed, coordinators=0, consumers=2)
    world = script.world
    world.spawn("coordinator0", fixed_id)
    script.settle()
    first_epoch = epoch(world)
    world.crash("coordinator0", restart_after_ms=100)
    script.join("late")
    world.run_for(3_000)
    assert world.ensemble.data(DRAFT.coordinator) == b"0"
    client = script.client("coordinator0")
    assert client.endswith("#2")
    assert [t for t in world.tried if t.client == client] == []
    own_path = DRAFT.candidate(0)
    assert [told.fields["path"] for told in world.events("id_taken") if told.client == client] == [own_path]
    world.run_until(lambda: epoch(world) == first_epoch + 1, 10_000, "it is elected once its old node is gone")
    assert [told.fields["path"] for told in world.events("problem_over") if told.client == client] == [own_path]
    stat = world.ensemble.stat(DRAFT.coordinator)
    assert stat is not None
    assert world.ensemble.sessions[stat.ephemeral_owner].client == client
    script.settle()
    script.calm()


@on_seeds()
def test_f02_a_new_session_of_the_same_process_does_not_trust_the_old_ones_node(seed: int) -> None:
    """The epoch refuses the coordinator's write, so it closes its session, but the close is lost and the old node still
    exists."""
    script = Script(seed, coordinators=1, consumers=2)
    script.settle()
    world, wire = script.world, script.wire("coordinator0")
    stat = world.ensemble.stat(EPOCH)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(EPOCH, b"7", stat.version)).reason
    script.join("late")
    world.run_until(lambda: any(ask.kind == "close" for ask in wire.requests), what="it throws its session away")
    wire.up = False
    script.refresh("coordinator0")
    world.run_for(2_500)
    assert wire.session.alive
    assert epoch(world) == 7
    assert len(world.events("elected")) == 1
    world.run_until(lambda: epoch(world) == 8, 10_000, "it serves again")
    assert not wire.session.alive
    script.calm()
    assert [told.fields["epoch"] for told in world.events("elected")] == [1, 8]


@on_seeds(5)
def test_f39_a_stop_is_acknowledged_then_receiver_and_coordinator_die_before_the_grant(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    died: list[tuple[int, list[str]]] = []

    def kill_both(txn: Txn) -> None:
        if not died and txn.session.process.startswith("consumer") and releases_now(txn):
            died.append((world.now_ms, [change.path for change in txn.changes if "/owners/" in change.path]))
            world.crash(old, restart_after_ms=None, exact=True)
            world.stop("late")

    script.world.ensemble.on_applied.append(kill_both)
    script.join("late")
    world.run_until(lambda: bool(died), what="a release for the newcomer")
    died_ms, released = died[0]
    owners = [world.ensemble.data(path) for path in released]
    assert released
    assert set(owners) == {b""}
    script.settle("the next coordinator gives them to the living")
    assert script.leader() != old
    for path in released:
        number = int(path.rpartition("/")[2])
        partition = next(p for p in script.partitions() if p.partition == number)
        stopped = [e for e in script.journal("stop", partition) if e.time_ms <= died_ms][-1]
        started = script.journal("start", partition, died_ms)[0]
        assert started.start == stopped.start  # it goes on exactly at the released offset
        assert started.time_ms - died_ms <= SESSION_MS + 5_000
        assert (GROUP, script.owner(partition)) in script.field.registrations
    script.calm()


def releases_now(txn: Txn) -> bool:
    """True when the transaction empties an owner."""
    return any("/owners/" in c.path and c.before is not None and c.after and not c.after.data for c in txn.changes)


@on_seeds()
def test_f14_no_partition_stays_unowned_after_a_blip_in_the_middle_of_a_hand_over(seed: int) -> None:
    """The grant or its reply is lost. The coordinator reads again, and no partition waits for long."""
    for when in ("request_lost", "reply_lost", "before", "after_applied_reply_lost"):
        script = Script(seed, consumers=2)
        script.settle()
        world = script.world
        world.strike(script.leader(), sends("start-fetcher"), when)
        script.join("late")
        world.run_until(lambda world=world: world.struck, what="the blip")
        faulted_ms = world.now_ms
        script.settle(f"balance after {when}")
        assert world.now_ms - faulted_ms <= 2 * SESSION_MS + 8_000
        script.calm()


@on_seeds()
def test_f14_a_short_outage_of_the_ensemble_moves_nothing(seed: int) -> None:
    script = Script(seed)
    script.settle()
    world, began_ms = script.world, script.world.now_ms + 1
    world.run_for(10)
    registrations, generation = dict(script.field.registrations), script.generation()
    world.ensemble.serving = False
    for store in world.stores:
        store.break_wire("no quorum")
    world.run_for(2_000)
    faults.restore(world)
    world.run_for(3 * SESSION_MS)
    assert script.changes_below(DRAFT.owners(GROUP), began_ms) == []
    assert (script.generation(), script.field.registrations) == (generation, registrations)
    assert script.commands_sent("start-fetcher", since_ms=began_ms) == []
    assert script.commands_sent("stop-fetcher", since_ms=began_ms) == []
    assert script.journal("lost") == []
    script.calm()


@on_seeds()
def test_f51_a_coordinator_of_another_layout_refuses_the_tree_and_the_first_goes_on(seed: int) -> None:
    """Two coordinators of different layouts use one tree. The schema names the tree's layout, and the other coordinator
    ends."""
    script = Script(seed, consumers=2)
    script.settle()
    world, leader = script.world, script.leader()
    world.spawn("coordinator9", partial(coordinator, layout=LEGACY), restarts=False)
    world.run_until(lambda: script.actor("coordinator9").loop.finished, what="it refuses")
    assert "start it with --layout draft" in str(script.actor("coordinator9").loop.fatal)
    assert [t for t in world.tried if t.client == script.client("coordinator9")] == []
    script.join("late")
    script.settle()
    assert script.leader() == leader
    script.calm()


@on_seeds()
def test_f51_of_two_layouts_that_come_to_an_empty_tree_at_once_one_remains(seed: int) -> None:
    """Both want to create the first nodes. One multi wins. The other coordinator reads the layout of the tree, and
    ends."""
    script = Script(seed, coordinators=0, consumers=0)
    world = script.world
    layouts = {"coordinator0": DRAFT, "coordinator1": LEGACY}
    for name, layout in layouts.items():
        world.spawn(name, partial(coordinator, layout=layout), restarts=False)
    world.run_until(lambda: script.field.epoch_session is not None, what="one is elected")
    loser = script.standby()
    world.run_until(lambda: script.actor(loser).loop.finished, what="the other one ends")
    assert f"start it with --layout {layouts[script.leader()].name}" in str(script.actor(loser).loop.fatal)
    script.calm()
