"""A tool resets the offsets of a running group: it stops all partitions, writes the offsets, and lets the group go
on."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CheckNode, SetNode

T0 = TopicPartition("t", 0)
RECORD = DRAFT.record(GROUP)


def write(script: Script, offset: int, version: int) -> str:
    """A tool sets an offset if the record still has this version. Returns the reason of a refusal, else ""."""
    ensemble = script.world.ensemble
    stat = ensemble.stat(DRAFT.offset(GROUP, T0))
    assert stat is not None
    check = CheckNode(RECORD, version)
    return str(ensemble.operate(check, SetNode(DRAFT.offset(GROUP, T0), b"%d" % offset, stat.version)).reason)


def record_version(script: Script) -> int:
    stat = script.world.ensemble.stat(RECORD)
    assert stat is not None
    return stat.version


def stopped(seed: int, *, expiry_ms: int = 600_000) -> Script:
    """A group of two members that has read some records, and was stopped for a reset."""
    script = Script(seed, consumers=2, topics={"t": 4})
    script.settle()
    script.world.run_for(5_000)
    script.request("reset", run="r1", expiry_ms=expiry_ms)
    script.world.run_until(lambda: script.stopped("r1"), what="everything is stopped")
    return script


@on_seeds()
def test_nobody_reads_while_a_reset_writes_and_all_go_on_from_its_offsets(seed: int) -> None:
    script = stopped(seed)
    world = script.world
    assert script.held() == []
    began_ms = world.now_ms
    world.run_for(20_000)
    assert script.commands_sent("start-fetcher", since_ms=began_ms) == []
    assert write(script, 0, record_version(script)) == ""
    script.end_reset()
    script.settle()
    assert script.journal("start", T0)[-1].start == 0
    assert script.record()["done"] == {}
    script.calm()


@on_seeds()
def test_a_reset_outlives_its_coordinator(seed: int) -> None:
    script = stopped(seed)
    world, old = script.world, script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() not in ("", old), 20_000, "another serves")
    world.run_for(10_000)
    assert (script.held(), script.stopped("r1")) == ([], True)
    assert write(script, 0, record_version(script)) == ""
    script.end_reset()
    script.settle()
    assert script.journal("start", T0)[-1].start == 0


@on_seeds()
def test_f104_a_tool_that_dies_in_a_reset_leaves_a_paused_group_and_its_late_write_is_refused(seed: int) -> None:
    """Nobody knows whether the tool has written all offsets. If the group read on by itself, it might skip or repeat
    records."""
    script = stopped(seed, expiry_ms=30_000)
    world, version = script.world, record_version(script)
    world.run_until(lambda: not script.stopped("r1"), 60_000, "the run expires")
    record = script.record()
    assert (record["wish"]["reset"], record["done"]["reset"]["state"]) == (None, "expired")
    assert (record["wish"]["pause"]["run"], record["wish"]["pause"]["who"]) == ("r1", "coordinator")
    world.run_until(lambda: script.answered("pause"), what="it is paused")
    assert write(script, 0, version) == "BadVersion"
    world.run_for(20_000)
    assert script.held() == []
    script.resume()
    script.settle()
    script.calm()


@on_seeds()
def test_a_reset_of_a_group_that_is_being_deleted_is_refused(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    script.request("hold", run="r0")
    script.edit_record(wish={"delete": {"run": "r1"}, "reset": {"run": "r2"}})
    script.world.run_until(lambda: script.answered("reset"), what="the answer")
    assert script.record()["done"]["reset"] == {"run": "r2", "state": "refused", "reason": "the group is being deleted"}
