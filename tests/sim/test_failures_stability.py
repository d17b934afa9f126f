"""Failure cases of stability (docs/failures.md): nothing moves, is written, or is taken without a cause."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP, ConsumerFactory
from tests.sim.options import seeds
from tests.sim.scenarios import STATE, TOPICS
from tests.sim.script import SESSION_MS, Script, on_seeds, sends, unversioned
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, SetNode

HOUR_MS = 3_600_000
OWNERS = DRAFT.owners(GROUP)


def reassignment_noise(script: Script, partitions: int = 4) -> None:
    """A broker writes other replicas for the same partitions, in another order."""
    path = "/brokers/topics/t"
    stat = script.world.ensemble.stat(path)
    assert stat is not None
    replicas = {str(n): [n % 3, 1] for n in sorted(range(partitions), key=lambda n: (n * 3 + 1) % partitions)}
    data = json.dumps({"partitions": replicas, "version": 1}).encode()
    assert data != script.world.ensemble.data(path)
    assert not script.world.ensemble.operate(SetNode(path, data, stat.version)).reason


def failovers(script: Script) -> None:
    """Three coordinators die, one after the other; each comes back as a standby."""
    for _ in range(3):
        old = script.field.epoch_session
        script.world.crash(script.leader(), restart_after_ms=500, exact=True)
        script.world.run_until(lambda old=old: script.field.epoch_session is not old, 10_000, "another is elected")
        script.world.run_for(3_000)


def flaps(script: Script) -> None:
    """Every connection breaks, twice; every session survives."""
    for _ in range(2):
        for store in list(script.world.stores):
            store.break_wire("a flap")
        script.world.run_for(2_000)


def ended_leases(script: Script) -> None:
    """A server hears but does not answer. Consumers stop at the ends of their leases, and go on later."""
    for name in ("consumer0", "consumer2"):
        script.wire(name).down = False
    script.world.run_for(SESSION_MS)
    for name in ("consumer0", "consumer2"):
        faults.uncut(script.world, script.process(name))
    script.world.run_for(3_000)


def a_young_topic(script: Script) -> None:
    """A topic that nobody subscribes to."""
    script.world.ensemble.ensure("/brokers/topics/unrelated", b'{"version":1,"partitions":{"0":[0]}}')
    script.world.run_for(3_000)


DISTURBANCES: dict[str, Callable[[Script], None]] = {
    "reassignment": reassignment_noise,
    "failovers": failovers,
    "flaps": flaps,
    "leases": ended_leases,
    "unrelated-topic": a_young_topic,
}


@on_seeds()
@pytest.mark.parametrize("assignor", ["sticky", "range"])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_f23_nothing_moves_and_no_command_is_sent_when_nothing_changed(
    disturbance: str, assignor: str, seed: int
) -> None:
    script = Script(seed, consumers=0)
    script.consumers = ConsumerFactory(script.logs, {"t": 1}, assignors=[assignor])
    for n in range(3):
        script.join(f"consumer{n}")
    script.settle()
    script.world.run_for(500)
    began_ms, generation, owners = script.world.now_ms + 1, script.generation(), dict(script.field.owners)
    script.world.run_for(5)
    DISTURBANCES[disturbance](script)
    script.calm()
    assert script.field.owners == owners
    assert script.changes_below(OWNERS, began_ms) == []
    assert script.changes_below(f"{DRAFT.group(GROUP)}/ids", began_ms) == []
    assert [p for p in script.changes_below(DRAFT.channels_of(GROUP), began_ms) if p[-10:].isdigit()] == []
    assert script.writes_to(STATE, began_ms) == 0
    assert script.generation() == generation


@on_seeds()
def test_f24_the_generation_rises_once_for_each_cause(seed: int) -> None:
    """State writes of a whole life: one that creates the node, one for each change of the target, and no other."""
    script = Script(seed, coordinators=2, consumers=1)
    script.settle()
    raised = [script.generation()]
    for name in ("consumer1", "consumer2", "consumer3"):
        script.join(name)
        script.settle()
        raised.append(script.generation())
    script.leave("consumer1").add_done_callback(lambda done: done.result())
    script.world.run_until(lambda: not _registered(script, "consumer1"), what="it has left")
    script.process("consumer1").group = ""  # it still runs, but is not a member any more
    script.settle()
    raised.append(script.generation())
    script.grow("t", 6)
    script.settle()
    raised.append(script.generation())
    failovers(script)
    reassignment_noise(script, 6)
    script.world.run_for(1_000)
    script.settle()
    raised.append(script.generation())
    assert raised == [1, 2, 3, 4, 5, 6, 6]
    assert script.writes_to(STATE) == 1 + 6
    script.calm()
    assert script.writes_to(STATE) == 1 + 6


def _registered(script: Script, name: str) -> bool:
    return any(name in consumer for _, consumer in script.field.registrations)


@on_seeds()
def test_f24_five_members_that_come_at_once_cost_fewer_generations_than_members(seed: int) -> None:
    """Inputs that arrive during a step are handled in the next one, so all five may be settled together."""
    script = Script(seed, coordinators=1, consumers=0)
    script.world.run_for(500)
    for n in range(5):
        script.join(f"consumer{n}")
    script.settle()
    assert script.generation() <= 5
    assert script.writes_to(STATE) == 1 + script.generation()
    script.calm()


STORM_SEEDS = 20


@pytest.mark.parametrize("seed", seeds(STORM_SEEDS))
def test_f26_no_write_of_a_whole_storm_replaces_or_removes_what_it_did_not_read(seed: int) -> None:
    """Every set and delete carries the version that it was decided from, even a refused one. There are no
    exceptions."""
    script = Script(seed, None, topics=TOPICS, consumers=3)  # the seed draws the options
    script.settle()
    script.world.storm(2_500)
    script.calm()
    assert len(script.world.tried) > 20
    assert [line for tried in script.world.tried for line in unversioned(tried.transaction)] == []
    applied = [w for txn in script.world.ensemble.log if txn.session.process != "operator" for w in txn.writes]
    assert [w for w in applied if getattr(w, "version", 0) == ANY_VERSION] == []


@on_seeds()
def test_f26_a_grant_does_not_overwrite_an_owner_that_was_set_meanwhile(seed: int) -> None:
    """Another claim comes between the coordinator's read and its grant. The grant is refused as a whole, and the claim
    is left alone."""
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    claimed = TopicPartition("t", 5)
    stranger = "g_stranger-1-00000000"
    script.join("late")
    world.run_until(lambda: script.registered("late"))
    script.settle()
    ensemble, wire = world.ensemble, script.wire(script.leader())
    script.grow("t", 6)
    world.run_until(lambda: any(a.kind == "commit" and sends("start-fetcher")(a.payload) for a in wire.requests))
    ensemble.ensure(DRAFT.registration(GROUP, stranger), b"?")  # a member whose registration nobody can parse owns one
    ensemble.ensure(DRAFT.owner(GROUP, claimed), f"{stranger}-0".encode())
    world.run_until(lambda: script.outstanding() == 0 and script.owner(TopicPartition("t", 4)) != "", what="the rest")
    world.run_for(3_000)
    assert script.owner(claimed) == stranger
    refused = [
        t for t in world.tried if str(claimed) in str(t.transaction) and not t.applied and t.commands("start-fetcher")
    ]
    assert [t.result.reason for t in refused] == ["NodeExists"]
    assert script.commands_sent("start-fetcher", claimed) == []


@on_seeds()
def test_f25_an_owner_stands_at_the_same_path_whoever_owns_it_and_whatever_changes(seed: int) -> None:
    """Members, generations, coordinators and partitions change. An owner's node is created once and stays."""
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    made = {p: world.ensemble.stat(DRAFT.owner(GROUP, p)) for p in script.partitions()}
    script.join("late")
    script.settle()
    failovers(script)
    script.grow("t", 6)
    script.leave("consumer0")
    world.run_until(lambda: not script.registered("consumer0") and script.all_held(), what="it leaves")
    now = {p: world.ensemble.stat(DRAFT.owner(GROUP, p)) for p in made}
    assert {p: stat.czxid for p, stat in now.items() if stat} == {p: stat.czxid for p, stat in made.items() if stat}
    script.calm()


@on_seeds()
def test_f35_the_wall_clock_of_a_machine_jumps_and_nothing_notices(seed: int) -> None:
    """The clock jumps an hour forward, then two back. Members that join then are normal members: ZooKeeper decides the
    order of joining."""
    script = Script(seed, consumers=2, topics={"t": 8})
    script.settle()
    generation = script.generation()
    for turn, offset_ms in enumerate((HOUR_MS, -HOUR_MS)):
        script.consumers.wall_offset_ms = offset_ms
        script.join(f"late{turn}")
        script.settle("it has its share")
    ids = [script.member(name) for name in ("consumer0", "consumer1", "late0", "late1")]
    assert len(set(ids)) == 4
    assert script.generation() == generation + 2  # one for each join
    assert script.world.events("evicted") == []
    script.calm()


@on_seeds(3)
def test_a_record_edited_during_a_rebalance_costs_no_seconds(seed: int) -> None:
    script = Script(seed, consumers=14, coordinators=1, topics={"t": 56})
    script.settle()
    world = script.world
    world.run_for(1_000)
    leader = script.wire(script.leader())
    began_ms = world.now_ms
    script.grow("t", 84)
    world.run_until(lambda: any("target is another" in str(ask.payload) for ask in leader.requests), what="the raise")
    script.set_policy(max_rebalance_retries=5)
    script.settle()
    assert world.now_ms - began_ms < 2_000
    script.calm()
