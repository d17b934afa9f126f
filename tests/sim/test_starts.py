"""Starts that wait one behind the other, and starts of a coordinator that does not name the versions of owners."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.sim import faults
from tests.sim.script import GROUP, QUIET, SESSION_MS, Script, acknowledges, hold_calls, on_seeds, releases
from tests.sim.store import SimStore
from zkcoord.core.model import TopicPartition
from zkcoord.member.role import MembershipRole
from zkcoord.tree import plan as planning
from zkcoord.tree.command import decode_command
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Write

START = "start-fetcher"


def deleted(script: Script) -> list[int]:
    """How many commands each applied acknowledgement deleted."""
    applied = [t.transaction for t in script.world.tried if t.applied and acknowledges(t.transaction)]
    return [sum(isinstance(w, DeleteNode) and "/channel/" in w.path for w in t.writes) for t in applied]


@on_seeds(4)
def test_starts_that_wait_are_obeyed_as_one(seed: int) -> None:
    """The topic grows twice while the consumer hears nothing. It finds two starts, and acknowledges both in one
    multi."""
    script = Script(seed, QUIET, consumers=1, coordinators=1)
    script.settle()
    world = script.world
    assert deleted(script) == [1]
    faults.cut(world, script.process("consumer0"))
    for count in (8, 12):
        script.grow("t", count)
        named = TopicPartition("t", count - 1)
        world.run_until(lambda p=named: bool(script.commands_sent(START, p)), what=f"the start of {named}")
    assert script.outstanding("consumer0") == 2
    world.run_for(SESSION_MS // 4)
    faults.uncut(world, script.process("consumer0"))
    script.settle("all twelve are held")
    assert deleted(script) == [1, 2]
    world.run_until(lambda: len(world.events("fetch_started")) == 3, what="it has heard of all")
    told = [(e.fields["generation"], len(e.fields["partitions"])) for e in world.events("fetch_started")]
    assert told == [(1, 4), (2, 4), (3, 4)]  # each start has the generation of its own command
    script.calm()


def starts_while_one_is_obeyed(seed: int, counts: Sequence[int]) -> Script:
    """The topic grows to each of these numbers of partitions while the only consumer's application is still starting.
    One start waits for each number. In the end the consumer has all partitions."""
    script = Script(seed, replace(QUIET, session_timeout_ms=40_000), consumers=1, coordinators=1)
    script.settle()
    go_on = hold_calls(script.application("consumer0"))
    for count in counts:
        script.grow("t", count)
        named = TopicPartition("t", count - 1)
        script.world.run_until(lambda p=named: bool(script.commands_sent(START, p)), what=f"the start of {named}")
    go_on()
    script.settle("all are held")
    return script


def test_starts_too_many_for_one_multi_are_acknowledged_one_after_the_other() -> None:
    script = starts_while_one_is_obeyed(0, (5, 700, 1_300, 1_310))
    assert deleted(script) == [1, 1, 1, 2]


def test_a_start_behind_a_stop_is_not_obeyed_with_the_starts_before_it() -> None:
    """Commands are obeyed in the order in which they were written."""
    script = Script(0, QUIET, consumers=1, coordinators=1)
    script.settle()
    world, consumer = script.world, script.member("consumer0")
    channel, thread = DRAFT.channel(GROUP, consumer), f"{consumer}-0"
    go_on = hold_calls(script.application("consumer0"))
    script.grow("t", 5)
    world.run_until(lambda: script.application("consumer0").waiting > 0, what="a start that is being obeyed")
    world.crash("coordinator0", restart_after_ms=None, exact=True)
    writes: list[Write] = [CreateNode(DRAFT.owner(GROUP, TopicPartition("t", n)), thread.encode()) for n in (5, 6)]
    for option, named in ((START, {"t-5": thread}), ("stop-fetcher", {"t-0": ""}), (START, {"t-6": thread})):
        text = json.dumps({"version": 1, "option": option, "ownershipMap": named})
        writes.append(CreateNode(channel, text.encode(), sequential=True))
    assert not world.ensemble.operate(*writes).reason
    world.run_for(100)
    go_on()
    world.run_until(lambda: not script.outstanding("consumer0"), what="everything is obeyed")
    told = [(entry.event, entry.partition.partition) for entry in world.journal if entry.event in ("start", "stop")]
    assert told[-3:] == [("start", 5), ("stop", 0), ("start", 6)]


@on_seeds(4)
def test_a_command_is_read_together_with_the_list_that_shows_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's number is known before, so the consumer reads the list and the command in one round."""
    asked: list[list[str]] = []  # the paths of each request of consumer0
    original = SimStore.read

    def read(self: SimStore, token: int, reads: Sequence[Read]) -> None:
        asked.append([path for path, _, _ in reads] if self.client.startswith("consumer0") else [])
        original(self, token, reads)

    monkeypatch.setattr(SimStore, "read", read)
    script = Script(seed, QUIET, consumers=1, coordinators=1)
    script.settle()
    script.grow("t", 8)
    script.settle()
    script.join("late")
    script.settle()
    channel = DRAFT.channel(GROUP, script.member("consumer0"))
    found = [paths for paths in asked if any(path.startswith(f"{channel}/") for path in paths)]
    assert found == [[channel, f"{channel}/{number:010d}"] for number in range(3)]
    script.calm()


@on_seeds(4)
def test_a_start_without_owner_versions_is_obeyed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older coordinator sends such a start. The consumer reads the owners, and releases them by the versions that it
    read."""
    original = planning._Planner._command

    def untold(self: Any, consumer_id: str, option: Any, partitions: Any, *_versions: Any) -> CreateNode:
        return original(self, consumer_id, option, partitions)

    monkeypatch.setattr(planning._Planner, "_command", untold)
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1)
    script.settle()
    sent = [write for tried in script.commands_sent(START) for write in tried.commands(START)]
    assert [dict(decode_command(write.data).owner_versions) for write in sent] == [{}]
    script.join("late")
    script.settle()
    assert len(script.owned("late")) == 2
    script.calm()


@on_seeds(4)
def test_owners_are_released_by_the_versions_that_the_start_told(seed: int) -> None:
    """Each owner is created at version 0, released by version 0, and granted again at version 2. No consumer reads an
    owner for that."""
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    script.join("late")
    script.settle()
    world = script.world
    moved = script.owned("late")
    [release] = [t.transaction for t in world.tried if t.applied and releases(t.transaction)]
    assert [w.version for w in release.writes if isinstance(w, SetNode) and "/owners/" in w.path] == [0, 0]
    told = {p: v for t in script.commands_sent(START) for w in t.commands(START) for p, v in versions(w).items()}
    assert {p: told[p] for p in moved} == dict.fromkeys(moved, 2)
    assert {p: world.ensemble.stat(DRAFT.owner("g", p)).version for p in told} == told
    script.calm()


def versions(write: CreateNode) -> dict[TopicPartition, int]:
    """The versions of owners that a start names."""
    return dict(decode_command(write.data).owner_versions)


@on_seeds(4)
def test_an_offset_written_during_a_start_becomes_the_position(seed: int) -> None:
    """An operator imports offsets while the first consumer starts; before that, the application got the log's end."""
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1, topics={"t": 1})
    world, application = script.world, script.application("consumer0")
    (partition,) = script.partitions()
    release = hold_calls(application)
    world.run_until(lambda: bool(application._calls), what="the reset policy is asked")
    application._answer()
    world.run_until(lambda: bool(application._calls), what="the start")
    path = DRAFT.offset(GROUP, partition)
    world.ensemble.ensure(path, b"5")
    script.field.offsets[GROUP, partition] = script.field.covered[GROUP, partition] = 5
    application._answer()
    release()
    script.settle()
    world.run_for(2_000)
    script.calm()


@on_seeds(3)
@pytest.mark.parametrize("left", [None, b"many"])
def test_an_offset_spoiled_after_an_unanswered_acknowledgement_loses_no_partition(
    seed: int, left: bytes | None
) -> None:
    """When the consumer looks for the outcome, it owns the partition but has no position. Nobody would send it another
    start."""
    script = Script(seed, consumers=1, coordinators=1, topics={"t": 1})
    script.settle()
    world = script.world
    (partition,) = script.partitions()
    script.join("heir")
    world.run_until(lambda: script.registered("heir"), what="somebody else is there")
    world.run_for(1_000)
    world.strike("heir", acknowledges, "reply_lost")
    world.stop("consumer0")
    world.run_until(lambda: world.struck, what="an acknowledgement without an answer")
    path, since_ms = DRAFT.offset(GROUP, partition), world.now_ms
    stat = world.ensemble.stat(path)
    assert stat is not None
    spoil = DeleteNode(path, stat.version) if left is None else SetNode(path, left, stat.version)
    assert not world.ensemble.operate(spoil).reason
    if left is not None:
        world.run_until(lambda: bool(world.events("start_refused", since_ms)), what="it is told who must act")
        assert not world.ensemble.operate(SetNode(path, b"5", stat.version + 1)).reason
        script.field.covered[GROUP, partition] = 5
    script.settle()
    world.run_for(2_000)
    script.calm()


@on_seeds()
def test_a_refused_start_whose_owner_was_edited_is_acknowledged_without_it(seed: int) -> None:
    """The command names the owner's version. Once the acknowledgement was refused because of it, the consumer reads the
    owner itself."""
    script = Script(seed, QUIET, consumers=1, coordinators=1)
    script.settle()
    world, new = script.world, TopicPartition("t", 4)
    application = script.application("consumer0")
    application._raises = lambda name: name == "start"  # type: ignore[method-assign]
    go_on = hold_calls(application)
    script.grow("t", 5)
    world.run_until(lambda: bool(application._calls), 20_000, "it is told to start")
    path = DRAFT.owner(GROUP, new)
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, b"", stat.version)).reason
    before = len(world.tried)
    go_on()
    world.run_until(lambda: script.outstanding() == 0, 20_000, "it is acknowledged")
    tried = [t for t in world.tried[before:] if acknowledges(t.transaction)]
    frees = [[write.path for write in t.transaction.writes].count(path) for t in tried]
    assert [(t.applied, count) for t, count in zip(tried, frees, strict=True)] == [(False, 1), (True, 0)]
    del application._raises  # type: ignore[attr-defined]
    script.settle()
    script.calm()


@on_seeds(4)
def test_f70_without_a_lease_nothing_is_told_to_start_and_lost_again_and_again(seed: int) -> None:
    """The link works, but the lease is over: the registration must still be read after a reconnection."""
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1)
    script.settle()
    world, application, new = script.world, script.application("consumer0"), TopicPartition("t", 4)
    go_on = hold_calls(application)
    script.grow("t", 5)
    world.run_until(lambda: [name for _, name, _ in application._calls] == ["reset"], what="a start that waits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MembershipRole, "_extend_lease", lambda self, session: None)
        world.run_until(lambda: [name for _, name, _ in application._calls] == ["reset", "lost"], what="the lease ends")
        began_ms = world.now_ms
        go_on()
        world.run_for(500)
        assert script.journal("start", since_ms=began_ms) == []
    script.settle()
    assert [entry.process for entry in script.journal("start", new, began_ms)] == ["consumer0"]
    script.calm()


@on_seeds()
def test_a_partition_taken_during_its_start_is_lost_and_started_anew(seed: int) -> None:
    """Somebody emptied the owner, and the acknowledgement was refused. Otherwise the application would read the
    partition, and nobody would ever start it again."""
    script = Script(seed, consumers=1, coordinators=1, topics={"t": 1})
    script.settle()
    world, partition = script.world, TopicPartition("t", 0)
    script.leave("consumer0")
    script.join("late")
    world.run_until(lambda: script.registered("late"), what="it joins")
    go_on = hold_calls(script.application("late"))
    world.run_until(lambda: bool(script.application("late").waiting), what="it is to start")
    channel = DRAFT.channel(GROUP, script.member("late"))
    for path, data in ((DRAFT.owner(GROUP, partition), b""), (channel, world.ensemble.data(channel) or b"")):
        assert not world.ensemble.operate(SetNode(path, data, -1)).reason
    began_ms = world.now_ms
    go_on()
    world.run_until(lambda: bool(script.journal("lost", partition, began_ms)), what="it is told")
    script.edit_record(wish={"rebalance": {"who": "ann", "when": "", "run": "r"}})  # nobody watches owners
    world.run_until(script.all_held, what="it is granted again")
    assert len([e for e in script.journal("start", partition, began_ms) if e.process == "late"]) == 2
    script.calm()
