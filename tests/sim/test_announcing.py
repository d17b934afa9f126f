"""Announced ranges beside what else happens: other offsets, full statuses, topics that are created again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_replay import P0, P1, another_reads, ask, position, process, scene, status, told
from zkcoord.core.member import announcements
from zkcoord.core.member.requests import AnnounceRequest, Ranges
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.shell.ports import Request
from zkcoord.tree import writes
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import SetNode


@on_seeds()
def test_more_ranges_than_one_announcement_takes_are_processed_after_a_hand_on(seed: int) -> None:
    script = scene(seed, consumers=1, partitions=4)
    ranges = {p: (at, at + 9) for p in script.owned("consumer0") for at in [position(script, p)]}
    ask(script, "consumer0", "announce", ranges).result()
    script.join("heir")
    script.world.stop("consumer0")
    for partition in ranges:
        assert another_reads(script, partition, "consumer0") == "heir"
    script.settle()
    batch = status(script, script.member("heir")).batch
    assert {p: r[:2] for p, r in batch.items()} == ranges
    with pytest.MonkeyPatch.context() as patch:  # the ranges came from several members, each within its limit
        patch.setattr(announcements, "ANNOUNCED_BYTES_MAX", 100)
        for partition, its_range in ranges.items():
            ask(script, "heir", "announce", {partition: its_range}).result()
            process(script, "heir", partition, *its_range)
            ask(script, "heir", "commit", {partition: its_range[1]}).result()


@on_seeds()
def test_a_partition_that_a_partly_failed_commit_moved_is_restarted_there(seed: int) -> None:
    """The batch has so many partitions that its commit needs several multis, and an operator sets an offset of the last
    multi."""
    script = scene(seed, consumers=1)
    at0, at1 = position(script, P0), position(script, P1)
    ask(script, "consumer0", "announce", {P0: (at0, at0 + 9), P1: (at1, at1 + 9)}).result()
    process(script, "consumer0", P0, at0, at0 + 9)
    process(script, "consumer0", P1, at1, at1 + 9)
    script.world.run_for(100)
    path = DRAFT.offset(GROUP, P1)
    stat = script.world.ensemble.stat(path)
    assert stat is not None
    assert not script.world.ensemble.operate(SetNode(path, str(at1 + 4).encode(), stat.version)).reason
    since_ms = script.world.now_ms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writes, "ITEMS_MAX", 1)
        with pytest.raises(FencedError):
            ask(script, "consumer0", "commit", {P0: at0 + 9, P1: at1 + 9}).result()
    assert position(script, P0) == at0 + 9
    script.world.run_for(2_000)
    assert [e.start for e in script.journal("start", P1, since_ms)] == [at1 + 4]
    assert [e.start for e in script.journal("start", P0, since_ms)] == [at0 + 9]  # it had been committed
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20), P1: (at1 + 4, at1 + 20)}).result()


@on_seeds()
def test_an_announcement_from_a_wrong_offset_restarts_the_partition(seed: int) -> None:
    """The program believes that its last commit failed: the answer took too long. The commit was carried out later."""
    script = scene(seed, consumers=1)
    at0, at1 = position(script, P0), position(script, P1)
    ask(script, "consumer0", "announce", {P0: (at0, at0 + 9)}).result()
    process(script, "consumer0", P0, at0, at0 + 9)
    script.world.run_for(100)
    ask(script, "consumer0", "commit", {P0: at0 + 9}).result()
    since_ms = script.world.now_ms
    with pytest.raises(FencedError, match="its committed offset is"):
        ask(script, "consumer0", "announce", {P0: (at0, at0 + 9), P1: (at1, at1 + 9)}).result()
    script.world.run_for(2_000)
    assert [e.start for e in script.journal("start", P0, since_ms)] == [at0 + 9]
    assert script.journal("start", P1, since_ms) == []
    assert told(script, P0) == []
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20), P1: (at1, at1 + 9)}).result()


@on_seeds()
def test_a_recreated_topics_announcement_is_over(seed: int) -> None:
    """The new topic begins at the offset at which the announced range began."""
    script = scene(seed, consumers=1, partitions=1)
    at = position(script, P0)
    ask(script, "consumer0", "announce", {P0: (at, at + 9)}).result()
    script.application("consumer0")._resolve = lambda ps: dict.fromkeys(ps, at)  # type: ignore[method-assign]
    script.world.run_for(100)
    since_ms = script.world.now_ms
    script.delete_topic("t")
    script.create_topic("t", 1)
    script.world.run_until(lambda: bool(script.journal("start", P0, since_ms)), 20_000, "it begins again")
    script.settle()
    assert position(script, P0) == at
    assert told(script, P0) == []
    assert status(script, script.member("consumer0")).batch == {}


@on_seeds()
@pytest.mark.parametrize("next_reader", ["third", "consumer0"])
def test_a_range_of_an_earlier_topic_left_over_in_a_living_members_status_is_not_replayed(
    seed: int, next_reader: str
) -> None:
    """The topic was deleted and created again, and its new offset is the one at which the range began."""
    script = scene(seed, consumers=1, partitions=1)
    at = position(script, P0)
    ask(script, "consumer0", "announce", {P0: (at, at + 9)}).result()
    former = script.member("consumer0")
    script.consumers.registers(replaces=former)
    script.join("heir")
    assert another_reads(script, P0, "consumer0") == "heir"
    script.application("heir")._resolve = lambda ps: dict.fromkeys(ps, at)  # type: ignore[method-assign]
    script.delete_topic("t")
    script.create_topic("t", 1)
    script.world.run_until(lambda: script.incarnation("t") == 2, 20_000, "it is another topic")
    script.world.run_until(lambda: position(script, P0) == at, 20_000, "it begins again")
    assert {p: r[:2] for p, r in status(script, former).batch.items()} == {P0: (at, at + 9)}  # nobody changed it
    if next_reader == "third":
        script.join("third")  # it replaces the same registration
        script.world.run_until(lambda: script.registered("third"), 20_000, "the third is there")
    script.world.stop("heir")
    assert another_reads(script, P0, "heir") == next_reader
    script.world.run_for(1_000)
    assert [name for name, _ in told(script, P0)] == ["heir"]  # told only for the earlier topic


@on_seeds()
def test_a_commit_waits_for_the_announcement_that_was_sent_before_it(seed: int) -> None:
    """A consumer has only one write under way at a time, so an outcome is never taken for that of another write."""
    script = scene(seed, consumers=1)
    world, inbox = script.world, script.process("consumer0").inbox
    at0, at1 = position(script, P0), position(script, P1)
    application, announced, committed = script.application("consumer0"), Future[None](), Future[None]()
    loop = script.actor("consumer0").loop
    world.run_for(500)  # the start's acknowledgement was answered, and its changes were read
    script.wire("consumer0").up = False
    script.refresh("consumer0")
    starts = application.wanted({P0: at0}).starts
    inbox.put(Request("announce", AnnounceRequest({P0: (at0, at0 + 9)}, starts), announced))
    world.run_until(lambda: loop.commits_in_flight == 1, what="it is sent")
    process(script, "consumer0", P1, at1, at1 + 5)
    inbox.put(Request("commit", application.wanted({P1: at1 + 5}), committed))
    world.run_until(lambda: not inbox.items, what="it is taken up")
    assert loop.commits_in_flight == 1
    script.wire("consumer0").up = True
    script.refresh("consumer0")
    world.run_until(lambda: announced.done() and committed.done(), what="both are answered")
    announced.result()
    committed.result()
    assert position(script, P1) == at1 + 5


@on_seeds()
def test_an_announcement_of_before_a_loss_or_in_it_is_fenced_and_starts_nothing_again(seed: int) -> None:
    """This holds even though the same registration holds the partition all the time."""
    script = scene(seed, consumers=1)
    world, at0 = script.world, position(script, P0)
    application = script.application("consumer0")
    before = application.wanted({P0: at0}).starts
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: bool(script.journal("lost")), what="the lease ends")
    go_on = hold_calls(application)
    faults.uncut(world, script.process("consumer0"))
    world.run_until(lambda: bool(application.waiting), what="it is to start again")
    losses = script.journal("lost")
    for start in (at0, at0 + 3):
        for starts in (before, {}):
            assert fenced(script, {P0: (start, at0 + 9)}, starts)
    go_on()
    world.run_until(lambda: P0 in script.actor("consumer0").role.readable, what="it has started again")
    for start in (at0, at0 + 3):
        assert fenced(script, {P0: (start, at0 + 9)}, before)
    world.run_for(2_000)
    assert script.journal("lost") == losses
    ask(script, "consumer0", "announce", {P0: (at0, at0 + 9)}).result()


def fenced(script: Script, ranges: Ranges, starts: Mapping[TopicPartition, int]) -> bool:
    """True when an announcement that names these starts is refused."""
    future = Future[None]()
    script.process("consumer0").inbox.put(Request("announce", AnnounceRequest(ranges, starts), future))
    script.world.run_until(future.done, 5_000, "it is answered")
    return isinstance(future.exception(), FencedError)
