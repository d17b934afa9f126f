"""The end of a group in the simulated world: deletion, retention, an old tool that removes it (F44); resignations."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.sim.actors import GROUP, coordinator
from tests.sim.field import START
from tests.sim.script import SESSION_MS, Chosen, Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

FOLDER = DRAFT.group(GROUP)
STATE, RECORD = DRAFT.state(GROUP), DRAFT.record(GROUP)


def emptied(seed: int, **size: Any) -> Script:
    """A group whose members are gone, and whose offsets are still there."""
    script = Script(seed, **size)
    script.settle()
    for name in [name for name in script.world.processes if name.startswith("consumer")]:
        script.world.crash(name, restart_after_ms=None)
    script.world.run_until(lambda: not script.field.registrations and not script.field.channels, what="all are gone")
    return script


def below(script: Script, path: str) -> list[str]:
    """Every node at or below a path."""
    ensemble = script.world.ensemble
    if ensemble.stat(path) is None:
        return []
    return [path, *(found for name in ensemble.names(path) for found in below(script, f"{path}/{name}"))]


def deletes(path: str) -> Chosen:
    """True for a coordinator's transaction that deletes a node at or below the path."""
    return lambda transaction: any(isinstance(w, DeleteNode) and w.path.startswith(path) for w in transaction.writes)


def gone(script: Script) -> bool:
    """True when nothing of the group is left."""
    return not below(script, FOLDER) and not below(script, RECORD)


@on_seeds()
def test_a_group_is_deleted_with_all_that_it_left(seed: int) -> None:
    script = emptied(seed, consumers=2)
    script.world.ensemble.ensure(f"{FOLDER}/left-by-an-old-tool/deeper", b"x")
    script.request("delete", run="r1", offsets=True)
    script.world.run_until(lambda: gone(script), what="the deletion")
    assert [t.fields["state"] for t in script.world.events("group_phase")][-1] == "Dead"
    script.calm()


@on_seeds()
@pytest.mark.parametrize("when", ["before", "after_applied_reply_lost"])
@pytest.mark.parametrize("at", [f"{FOLDER}/offsets/t/", f"{FOLDER}/owners/t/", RECORD])
def test_a_deletion_outlives_the_coordinator_that_began_it(seed: int, when: str, at: str) -> None:
    script = emptied(seed, consumers=2)
    world, old = script.world, script.leader()
    world.strike(old, deletes(at), when, None)
    script.request("delete", run="r1", offsets=True)
    world.run_until(lambda: world.struck, what="the crash")
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_until(lambda: gone(script), what="the deletion")
    script.calm()


@on_seeds()
def test_without_the_offsets_only_what_people_decided_is_forgotten(seed: int) -> None:
    script = emptied(seed, consumers=2)
    script.set_policy(max_rebalance_retries=1)
    offsets = below(script, DRAFT.offsets(GROUP))
    script.request("delete", run="r1")
    script.world.run_until(lambda: script.world.ensemble.data(RECORD) == b"", what="the empty record")
    assert below(script, DRAFT.offsets(GROUP)) == offsets
    generation = script.generation()
    script.join("consumer9")
    script.settle()
    assert script.generation() == generation + 1
    script.calm()


@on_seeds()
def test_a_deletion_without_the_offsets_may_be_followed_by_one_with_them(seed: int) -> None:
    script = emptied(seed, consumers=2)
    script.request("delete", run="r1")
    script.world.run_until(lambda: script.world.ensemble.data(RECORD) == b"", what="the empty record")
    script.request("delete", run="r2", offsets=True)
    script.world.run_until(lambda: gone(script), what="the deletion")
    assert script.world.events("write_refused") == []
    script.calm()


@on_seeds()
def test_a_group_with_members_is_not_deleted_and_reads_on(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    since_ms = script.world.now_ms + 1  # some partition may have been granted in this very millisecond
    script.request("delete", run="r1", offsets=True)
    script.world.run_until(lambda: script.answered("delete"), what="the answer")
    assert script.record()["done"]["delete"] == {
        "run": "r1",
        "state": "refused",
        "reason": "it has 2 members: stop its consumers first",
    }
    assert script.record()["wish"]["delete"] is None
    script.world.run_for(3_000)
    assert script.changes_below(DRAFT.owners(GROUP), since_ms) == []
    script.calm()


@on_seeds(4)
def test_a_member_that_joins_during_a_deletion_belongs_to_the_next_group(seed: int) -> None:
    script = emptied(seed, consumers=2)
    world, old = script.world, script.leader()
    world.strike(old, deletes(f"{FOLDER}/offsets/t/"), "before", None)
    script.request("delete", run="r1", offsets=True)
    world.run_until(lambda: world.struck, what="the crash")
    script.join("consumer9")
    world.run_until(lambda: script.registered("consumer9"), what="it joins")
    script.settle()
    assert script.record()["wish"]["delete"] is None
    assert script.generation() == 1
    script.calm()


@on_seeds(4)
def test_a_member_that_joins_beside_another_during_a_deletion_stays(seed: int) -> None:
    """A channel without a registration is left alone for a minute, and the deletion waits for it."""
    script = emptied(seed, consumers=2)
    world = script.world
    world.ensemble.ensure(f"{DRAFT.channels_of(GROUP)}/somebody", b"")
    script.request("delete", run="r1", offsets=True)
    world.run_until(lambda: not below(script, DRAFT.offsets(GROUP)), what="the offsets go")
    script.join("consumer9")
    world.run_until(lambda: script.registered("consumer9"), what="it joins")
    joined = script.member("consumer9")
    world.run_for(5_000)
    assert script.owned("consumer9") == []
    script.settle()
    assert script.member("consumer9") == joined
    assert (script.generation(), script.record()["wish"]["delete"]) == (1, None)
    script.calm()


@on_seeds()
def test_a_group_that_never_had_offsets_is_forgotten_after_its_retention_also_over_a_failover(seed: int) -> None:
    retention_ms = 60_000
    script = Script(seed, coordinators=0, consumers=0)
    world = script.world
    for n in range(2):
        world.spawn(f"coordinator{n}", partial(coordinator, retention_ms=retention_ms))
    world.run_until(lambda: script.field.epoch_session is not None, what="the election")
    world.ensemble.ensure(f"{FOLDER}/ids", b"")
    world.run_until(lambda: world.ensemble.stat(STATE) is not None, what="its first sight")
    began_ms, old = world.now_ms, script.leader()
    world.run_for(retention_ms // 2)
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_until(lambda: gone(script), 40_000, "it is forgotten")
    assert retention_ms <= world.now_ms - began_ms <= retention_ms + 2 * retention_ms // 7 + 3 * SESSION_MS
    script.calm()


@on_seeds()
def test_a_group_with_offsets_is_not_forgotten(seed: int) -> None:
    script = Script(seed, coordinators=0, consumers=2)
    world = script.world
    world.spawn("coordinator0", partial(coordinator, retention_ms=30_000))
    script.settle()
    for name in ("consumer0", "consumer1"):
        world.crash(name, restart_after_ms=None)
    world.run_until(lambda: not script.field.registrations, what="it is empty")
    offsets = below(script, DRAFT.offsets(GROUP))
    world.run_for(90_000)
    assert below(script, DRAFT.offsets(GROUP)) == offsets
    assert below(script, RECORD) == [RECORD, STATE]
    script.calm()


def remove(script: Script, path: str) -> None:
    """An old tool removes a node with all nodes below it, one after the other, even of living members."""
    for found in reversed(below(script, path)):
        script.world.ensemble.operate(DeleteNode(found, ANY_VERSION))


@on_seeds(4)
def test_f44_a_whole_group_removed_under_its_members_comes_back(seed: int) -> None:
    script = Script(seed, consumers=3)
    script.settle()
    world, members = script.world, {script.member(f"consumer{n}") for n in range(3)}
    generation = script.generation()
    remove(script, FOLDER)
    world.run_until(lambda: len(script.field.registrations) == 3, what="all register afresh")
    assert members.isdisjoint(consumer for _, consumer in script.field.registrations)
    script.settle()
    assert script.generation() > generation  # the record and the state survive
    assert world.events("write_refused") == []
    script.calm()


@on_seeds(4)
@pytest.mark.parametrize("name", ["offsets", "channel"])
def test_f44_a_part_removed_under_its_members_comes_back(seed: int, name: str) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    remove(script, f"{FOLDER}/{name}")
    script.join("consumer2")
    script.settle()
    world.run_for(5_000)
    script.calm()


@on_seeds(4)
def test_f44_a_group_removed_in_the_middle_of_a_rebalance_comes_back(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    script.join("consumer2")
    world.run_until(lambda: script.outstanding() > 0, what="a stop")
    remove(script, FOLDER)
    remove(script, RECORD)
    script.settle()
    script.calm()


@on_seeds()
def test_f44_an_old_tools_remains_of_a_group_go_after_its_retention(seed: int) -> None:
    script = Script(seed, coordinators=0, consumers=1)
    world = script.world
    world.spawn("coordinator0", partial(coordinator, retention_ms=30_000))
    script.settle()
    world.crash("consumer0", restart_after_ms=None)
    world.run_until(lambda: not script.field.registrations, what="it is empty")
    remove(script, FOLDER)
    assert below(script, RECORD) == [RECORD, STATE]
    world.run_until(lambda: gone(script), 40_000, "the record goes")
    script.calm()


def ask_to_resign(script: Script, name: str) -> str:
    """A tool sets `resign` in a candidate's node; returns its path."""
    ensemble = script.world.ensemble
    for number in ensemble.names("/zkcoord/coordinators"):
        path = f"/zkcoord/coordinators/{number}"
        stat, data = ensemble.stat(path), json.loads(ensemble.data(path) or b"{}")
        if stat is not None and data["host"] == script.client(name):
            text = json.dumps({**data, "resign": {"who": "test"}}).encode()
            assert not ensemble.operate(SetNode(path, text, stat.version)).reason
            return path
    raise AssertionError(f"{name} does not stand")


@on_seeds(4)
def test_a_coordinator_that_resigns_is_replaced_without_any_detection_time(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    script.join("consumer2")
    world.run_until(lambda: script.registered("consumer2"), what="work to do")
    asked_ms = world.now_ms
    ask_to_resign(script, old)
    world.run_until(lambda: script.leader() != old, what="another serves")
    assert world.now_ms - asked_ms < SESSION_MS // 3
    script.settle()
    stood = [
        tried.time_ms
        for tried in world.tried
        for write in tried.transaction.writes
        if isinstance(write, CreateNode) and write.path.startswith("/zkcoord/coordinators/")
        if tried.client == script.client(old) and tried.time_ms > asked_ms
    ]
    assert stood == []
    world.run_for(2 * SESSION_MS)
    assert len(world.ensemble.names("/zkcoord/coordinators")) == 2  # it stands by again
    script.calm()


@on_seeds()
def test_the_only_coordinator_resigns_and_serves_again_after_one_session_timeout(seed: int) -> None:
    script = Script(seed, coordinators=1, consumers=2)
    script.settle()
    world, asked_ms = script.world, script.world.now_ms
    ask_to_resign(script, "coordinator0")
    world.run_until(lambda: len(world.events("elected")) == 2, what="it is elected again")
    assert SESSION_MS <= world.now_ms - asked_ms <= SESSION_MS + 1_500
    script.settle()
    script.calm()


def starts_of(script: Script, partition: TopicPartition, since_ms: int) -> int:
    """How many starts of a partition were sent since then."""
    return len(script.commands_sent(START, partition, since_ms))


@on_seeds()
def test_a_resignation_moves_nothing(seed: int) -> None:
    script = Script(seed, consumers=3)
    script.settle()
    world, old, generation = script.world, script.leader(), script.generation()
    since_ms = world.now_ms
    ask_to_resign(script, old)
    world.run_until(lambda: script.leader() != old, what="another serves")
    world.run_for(5_000)
    assert script.generation() == generation
    assert sum(starts_of(script, p, since_ms) for p in script.partitions()) == 0
    script.calm()
