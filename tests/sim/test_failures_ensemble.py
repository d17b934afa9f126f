"""Failure cases of the ensemble (docs/failures.md): no quorum, followers without a leader, links that lose everything.

The same cases with real servers are in `tests/containers/test_ensemble.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.field import START, STOP
from tests.sim.script import QUIET, SESSION_MS, Script, on_seeds
from zkcoord.tree.paths import CANDIDATES

LEASE_MS = SESSION_MS * 2 // 3
MINUTE_MS = 60_000
BUSY = replace(QUIET, read_ms_max=100)  # applications read and commit all the time
SLACK_MS = 50


def written_by_programs(script: Script, since_ms: int) -> list[str]:
    """The paths that coordinators and consumers wrote since then."""
    log = [txn for txn in script.world.ensemble.log if txn.time_ms >= since_ms]
    return [change.path for txn in log for change in txn.changes]


def lose_quorum(script: Script, *, read_only: bool) -> None:
    """Nothing can be written from now on. `read_only`: links stay, and servers answer reads; otherwise every link
    breaks."""
    world = script.world
    world.ensemble.serving = False
    if not read_only:
        for store in world.stores:
            store.break_wire("no quorum")
        return
    for replica in world.ensemble.replicas:
        replica.cut = True
    for name in world.processes:
        script.refresh(name)


def regain_quorum(script: Script) -> None:
    """A leader is elected again, and gives every session its whole timeout."""
    for replica in script.world.ensemble.replicas:
        replica.cut = False
    faults.restore(script.world)
    for name in script.world.processes:
        script.refresh(name)


@on_seeds()
@pytest.mark.parametrize("read_only", [False, True])
def test_f33_without_a_quorum_for_a_minute_nobody_reads_and_then_the_same_go_on(seed: int, read_only: bool) -> None:
    """No server can be reached, or servers answer only reads. Leases end in both cases."""
    script = Script(seed, replace(BUSY, followers=2), consumers=3)
    script.settle()
    world = script.world
    world.run_for(2_000)
    registrations, owners = dict(script.field.registrations), dict(script.field.owners)
    generation, leader = script.generation(), script.leader()
    lose_quorum(script, read_only=read_only)
    lost_ms = world.now_ms
    world.run_for(MINUTE_MS)
    ended = {entry.process: entry.time_ms for entry in script.journal("lost", since_ms=lost_ms)}
    assert ended.keys() == {"consumer0", "consumer1", "consumer2"}
    assert max(ended.values()) - lost_ms <= LEASE_MS + SLACK_MS
    for name, ended_ms in ended.items():
        reads = [e.time_ms for e in script.journal("read") if e.process == name]
        assert lost_ms < max(reads) <= ended_ms  # it read on as long as it was allowed to
    assert written_by_programs(script, lost_ms + 1) == []
    regain_quorum(script)
    back_ms = world.now_ms
    world.run_until(lambda: len(script.journal("start", since_ms=back_ms)) == len(owners), what="all is read again")
    script.settle()
    assert (script.field.registrations, script.field.owners) == (registrations, owners)
    assert (script.generation(), script.leader()) == (generation, leader)
    assert script.commands_sent(START, since_ms=lost_ms) == script.commands_sent(STOP, since_ms=lost_ms) == []
    script.calm()


@on_seeds()
def test_f33_when_all_sessions_have_expired_with_the_quorum_everybody_registers_afresh(seed: int) -> None:
    """All servers were restarted after all sessions had expired: no session is left."""
    script = Script(seed, BUSY, consumers=3)
    script.settle()
    world, before = script.world, set(script.field.registrations)
    lose_quorum(script, read_only=False)
    world.run_for(MINUTE_MS)
    regain_quorum(script)
    for session in list(world.ensemble.sessions.values()):
        world.ensemble.end_session(session, "expire")
    world.run_until(lambda: len(script.field.registrations) == 3, what="all register afresh")
    assert before.isdisjoint(script.field.registrations)
    script.settle()
    assert world.events("evicted") == []
    script.calm()


@on_seeds()
def test_f36_a_cut_off_follower_keeps_no_consumer_reading_and_no_coordinator_serving(
    seed: int,
) -> None:
    """For longer than a session timeout the follower answers reads and pings, but cannot answer a sync."""
    script = Script(seed, replace(BUSY, followers=2), consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    script.connect_to({"consumer0": "follower-1", old: "follower-1"})
    world.run_for(1_000)  # everything is read: a process with an open request would soon leave its server
    consumer, mine = script.member("consumer0"), script.owned("consumer0")
    (follower,) = [replica for replica in world.ensemble.followers if replica.name == "follower-1"]
    follower.cut = True
    cut_ms = world.now_ms
    for name in world.processes:
        script.refresh(name)
    world.run_until(lambda: bool(script.journal("lost", since_ms=cut_ms)), what="its lease ends")
    lost = script.journal("lost", since_ms=cut_ms)
    assert {(entry.process, entry.partition) for entry in lost} == {("consumer0", p) for p in mine}
    assert lost[0].time_ms - cut_ms <= LEASE_MS + SLACK_MS
    assert (GROUP, consumer) in script.field.registrations  # its session still exists, so nobody else can have started
    script.join("late")
    world.run_until(lambda: script.leader() != old, 10_000, "another coordinator")
    assert script.wire(old).replica is follower  # the follower does not tell the old coordinator
    script.settle("the new one serves, the consumer goes on over another server")
    assert script.member("consumer0") == consumer
    new = script.leader()
    follower.cut = False
    for name in world.processes:
        script.refresh(name)
    mended_ms = world.now_ms + 1
    world.run_for(3 * SESSION_MS)
    applied = [t for t in world.tried if t.client == script.client(old) and t.time_ms >= cut_ms and t.applied]
    paths = [write.path for t in applied for write in t.transaction.writes]
    assert [path.rpartition("/")[0] for path in paths] == [CANDIDATES]  # it only creates its candidate's node again
    assert world.events("elected", mended_ms) == []
    assert script.leader() == new
    script.calm()


@on_seeds()
@pytest.mark.parametrize("busy", [True, False])
def test_f37_a_consumer_whose_link_swallows_everything_stops_in_time_and_goes_on_over_another(
    seed: int, busy: bool
) -> None:
    """A busy consumer always has commits under way, an idle one only heartbeats. Neither of them gets an error."""
    script = Script(seed, BUSY, consumers=2)
    script.settle()
    world, application = script.world, script.application("consumer0")
    allowed = application.allowed
    if not busy:
        application.allowed = lambda partition: False  # nothing to read
    world.run_for(2_000)
    consumer, mine = script.member("consumer0"), script.owned("consumer0")
    wire = script.wire("consumer0")
    wire.up = wire.down = False
    script.refresh("consumer0")
    hole_ms = world.now_ms
    world.run_until(lambda: bool(script.journal("lost", since_ms=hole_ms)), what="its lease ends")
    ended_ms = world.now_ms
    assert ended_ms - hole_ms <= LEASE_MS + SLACK_MS
    assert any(ask.kind == "commit" for ask in wire.requests) is busy  # its requests got no answer
    assert bool([e for e in script.journal("read", since_ms=hole_ms + 1) if e.process == "consumer0"]) is busy
    assert (GROUP, consumer) in script.field.registrations
    world.run_until(
        lambda: (
            {e.partition for e in script.journal("start", since_ms=ended_ms) if e.process == "consumer0"} == set(mine)
        ),
        what="it goes on",
    )
    assert script.wire("consumer0") is not wire
    assert script.member("consumer0") == consumer
    assert script.commands_sent(STOP, since_ms=hole_ms) == script.commands_sent(START, since_ms=hole_ms) == []
    application.allowed = allowed
    script.calm()


@on_seeds()
def test_f37_a_coordinator_in_a_black_hole_is_replaced_and_changes_nothing_when_it_is_back(seed: int) -> None:
    """The writes that were under way when the link broke are of an old epoch when they arrive."""
    script = Script(seed, BUSY, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    script.join("late")
    wire = script.wire(old)
    world.run_until(lambda: any(ask.kind == "commit" for ask in wire.requests), what="it wants to write")
    faults.cut(world, script.process(old))
    world.run_until(lambda: script.leader() != old, 10_000, "another serves")
    script.settle("the newcomer has its share")
    new, back_ms = script.leader(), world.now_ms + 1
    faults.uncut(world, script.process(old))
    world.run_for(3 * SESSION_MS)
    applied = [t for t in world.tried if t.client == script.client(old) and t.time_ms >= back_ms and t.applied]
    paths = [write.path for t in applied for write in t.transaction.writes]
    assert [path.rpartition("/")[0] for path in paths] == [CANDIDATES]
    assert script.leader() == new
    script.calm()
