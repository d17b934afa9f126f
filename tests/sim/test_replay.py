"""Announced ranges: a member writes down its ranges before it processes them; the next reader of the partition gets
them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.options import seeds
from tests.sim.scenarios import announcing_storm
from tests.sim.script import QUIET, Script, acknowledges, hold_calls, on_seeds, sends
from zkcoord.core.member.requests import AnnounceRequest
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.shell.ports import Request
from zkcoord.tree import plan as planning
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.status import Status, decode_status
from zkcoord.tree.writes import Transaction

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SLOW = replace(QUIET, read_ms_max=10_000_000)  # nobody reads or commits unless the test says so


def scene(seed: int, consumers: int = 2, partitions: int = 2) -> Script:
    """A settled group whose members take announced ranges, and commit only when the test says so."""
    script = Script(seed, SLOW, consumers=0, topics={"t": partitions})
    script.consumers.registers(offers=frozenset({"ping", "replay"}))
    for n in range(consumers):
        script.join(f"consumer{n}")
    script.settle()
    return script


def ask(script: Script, name: str, what: str, values: dict[TopicPartition, Any]) -> Future[None]:
    """A program announces or commits. Returns when the answer is there."""
    application, future = script.application(name), Future[None]()
    wanted = application.wanted(values)
    argument = AnnounceRequest(values, wanted.starts) if what == "announce" else wanted
    script.process(name).inbox.put(Request(what, argument, future))
    script.world.run_until(future.done, 5_000, f"{what} is answered")
    return future


def process(script: Script, name: str, partition: TopicPartition, start: int, end: int) -> None:
    """A program processes a range."""
    script.application(name)._note("read", partition, start, end)


def status(script: Script, member: str) -> Status:
    """The status in a member's channel."""
    return decode_status(script.world.ensemble.data(DRAFT.channel(GROUP, member)) or b"")


def position(script: Script, partition: TopicPartition) -> int:
    """The committed offset of a partition."""
    return int(script.world.ensemble.data(DRAFT.offset(GROUP, partition)) or b"-1")


@on_seeds()
def test_an_announcement_is_one_write_and_a_commit_ends_it_without_another(seed: int) -> None:
    script = scene(seed, consumers=1)
    member, (at0, at1) = script.member("consumer0"), (position(script, P0), position(script, P1))
    script.application("consumer0").positions.clear()
    writes = script.world.write_counts["consumer0"]
    ask(script, "consumer0", "announce", {P0: (at0, at0 + 9), P1: (at1, at1 + 5)}).result()
    of = (script.generation(), 1)  # then the topic's incarnation
    both = {P0: (at0, at0 + 9, *of), P1: (at1, at1 + 5, *of)}
    assert status(script, member).batch == both
    process(script, "consumer0", P0, at0, at0 + 9)
    process(script, "consumer0", P1, at1, at1 + 5)
    ask(script, "consumer0", "commit", {P0: at0 + 9}).result()
    assert status(script, member).batch == both
    assert script.world.write_counts["consumer0"] == writes + 2
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20)}).result()  # ranges that are not committed stay
    assert status(script, member).batch == {**both, P0: (at0 + 9, at0 + 20, *of)}
    ask(script, "consumer0", "commit", {P1: at1 + 5}).result()
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20)}).result()
    assert status(script, member).batch == {P0: (at0 + 9, at0 + 20, *of)}


@on_seeds()
def test_only_held_partitions_at_committed_offsets_are_announced(seed: int) -> None:
    script = scene(seed)
    (mine,), (other,) = script.owned("consumer0"), script.owned("consumer1")
    at = position(script, mine)
    before = status(script, script.member("consumer0"))
    for ranges in ({other: (0, 9)}, {mine: (at + 1, at + 9)}, {mine: (at, at + 9), other: (0, 9)}):
        with pytest.raises(FencedError):
            ask(script, "consumer0", "announce", ranges).result()
    assert status(script, script.member("consumer0")) == before


@on_seeds()
@pytest.mark.parametrize("when", ["reply_lost", "request_lost"])
def test_an_announcement_whose_reply_was_lost_is_made_again(seed: int, when: str) -> None:
    script = scene(seed)
    (mine,) = script.owned("consumer0")
    at = position(script, mine)
    script.world.strike("consumer0", lambda transaction: transaction.why == "announce", when)
    ask(script, "consumer0", "announce", {mine: (at, at + 9)}).result()
    assert script.world.struck
    (found,) = status(script, script.member("consumer0")).batch.items()
    assert (found[0], found[1][:2]) == (mine, (at, at + 9))


# -- the coordinator hands a range on


def announced(script: Script, name: str = "consumer0") -> tuple[TopicPartition, tuple[int, int]]:
    """A member has announced a range of the one partition that it owns."""
    (mine,) = script.owned(name)
    at = position(script, mine)
    ask(script, name, "announce", {mine: (at, at + 9)}).result()
    return mine, (at, at + 9)


def told(script: Script, partition: TopicPartition) -> list[tuple[str, tuple[int, int]]]:
    """Which process was told which announced range of the partition, in order."""
    return [(entry.process, (entry.start, entry.end)) for entry in script.journal("replay", partition)]


def another_reads(script: Script, partition: TopicPartition, *former: str) -> str:
    """Run until another member reads the partition. Returns its name."""
    world = script.world

    def reader() -> list[str]:
        held = script.field.holdings.get((GROUP, partition))
        alive = [n for n, p in world.processes.items() if p.group and p.running and script.registered(n)]
        return [n for n in alive if n not in former and held is not None and held.consumer == script.member(n)]

    world.run_until(lambda: bool(reader()), 40_000, f"another reads {partition}")
    return reader()[0]


def finish(script: Script, name: str, partition: TopicPartition, announced_range: tuple[int, int]) -> None:
    """The receiver processes the range and commits. After that nothing of it is handed on any more, and everything
    comes to rest."""
    start, end = announced_range
    assert told(script, partition)[-1] == (name, announced_range)
    process(script, name, partition, start, end)
    script.world.run_for(100)
    ask(script, name, "commit", {partition: end}).result()
    count = len(told(script, partition))
    script.world.stop(name)
    another_reads(script, partition, name)
    assert len(told(script, partition)) == count
    script.settle()

    def cleared() -> bool:
        channels = script.world.ensemble.names(DRAFT.channels_of(GROUP))
        return sorted(channels) == sorted(c for _, c in script.field.registrations)

    script.world.run_until(cleared, 20_000, "no channel is left over")
    assert "replay" not in script.state()


@on_seeds()
@pytest.mark.parametrize("failover", [False, True])
def test_a_dead_members_range_goes_to_the_next_reader_exactly(seed: int, failover: bool) -> None:
    script = scene(seed, consumers=3, partitions=3)
    mine, its_range = announced(script)
    term = script.field.epoch_session
    script.world.stop("consumer0")
    if failover:
        script.world.strike(script.leader(), sends("start-fetcher"), "before", 2_000)
    name = another_reads(script, mine, "consumer0")
    assert (script.field.epoch_session is not term) is failover
    finish(script, name, mine, its_range)


@on_seeds()
def test_the_last_members_range_waits_for_the_next_member(seed: int) -> None:
    """The last member's channel stays, even over a failover, since there is nobody to grant its partition to."""
    script = scene(seed, consumers=1, partitions=1)
    mine, its_range = announced(script)
    member = script.member("consumer0")
    script.world.stop("consumer0")
    script.world.run_until(lambda: not script.field.registrations, 20_000, "its session ends")
    script.world.run_for(10_000)
    script.world.crash(script.leader(), restart_after_ms=2_000, exact=True)
    script.world.run_for(30_000)
    assert script.world.ensemble.names(DRAFT.channels_of(GROUP)) == [member]
    script.join("heir")
    assert another_reads(script, mine, "consumer0") == "heir"
    script.join("next")
    script.settle()
    finish(script, "heir", mine, its_range)


@on_seeds()
@pytest.mark.parametrize("failover", [False, True])
@pytest.mark.parametrize("when", ["before", "after_applied_reply_lost", "after"])
def test_f49_a_second_death_before_the_receiver_announced_loses_no_range(seed: int, when: str, failover: bool) -> None:
    """The receiver dies before, with, or after its acknowledgement, and has announced nothing by itself."""
    script = scene(seed, consumers=4, partitions=4)
    mine, its_range = announced(script)
    dead: list[str] = []

    def first(transaction: Transaction) -> bool:
        return not dead and acknowledges(transaction) and bool(dead.append("one") or True)

    for name in ("consumer1", "consumer2", "consumer3"):
        script.world.strike(name, first, when, None)
    script.world.stop("consumer0")
    script.world.run_until(lambda: bool(dead), 20_000, "the receiver dies")
    script.world._strikes.clear()
    if failover:
        script.world.crash(script.leader(), restart_after_ms=2_000, exact=True)
    gone = [n for n, p in script.world.processes.items() if p.group and not p.running]
    if len(gone) < 2:  # the receiver dies when it has taken the answer
        script.world.run_until(
            lambda: sum(not p.running for p in script.world.processes.values() if p.group) == 2, what="it is dead"
        )
        gone = [n for n, p in script.world.processes.items() if p.group and not p.running]
    name = another_reads(script, mine, *gone)
    finish(script, name, mine, its_range)


@on_seeds()
def test_a_receiver_that_cannot_start_hands_the_range_on(seed: int) -> None:
    script = scene(seed, consumers=3, partitions=3)
    mine, its_range = announced(script)
    refused: list[str] = []
    for name in ("consumer1", "consumer2"):

        def raises(what: str, name: str = name) -> bool:
            if what != "start" or refused:
                return False
            refused.append(name)
            return True

        script.application(name)._raises = raises  # type: ignore[method-assign]
    script.world.stop("consumer0")
    name = another_reads(script, mine, "consumer0")
    assert refused
    assert refused != [name]
    refuser = status(script, script.member(refused[0]))
    assert dict(refuser.batch)[mine][:2] == its_range  # the refused range is in the refuser's status
    finish(script, name, mine, its_range)


@on_seeds()
@pytest.mark.parametrize("how", ["stop", "leave"])
def test_a_stop_in_the_middle_of_a_batch_hands_the_range_on(seed: int, how: str) -> None:
    script = scene(seed, consumers=3, partitions=3)
    mine, its_range = announced(script)
    if how == "leave":
        script.leave("consumer0")
    else:
        member = script.member("consumer0")
        script.consumers.registers(replaces=member)
        script.join("heir")
    name = another_reads(script, mine, "consumer0")
    assert told(script, mine) == [(name, its_range)]
    if how == "stop":
        assert dict(status(script, member).batch)[mine][:2] == its_range
    script.world.stop("consumer0")
    finish(script, name, mine, its_range)


@on_seeds()
def test_an_evicted_members_range_is_handed_on_after_its_grace(seed: int) -> None:
    script = scene(seed, consumers=3, partitions=3)
    mine, its_range = announced(script)
    member = script.member("consumer0")
    script.set_policy(max_rebalance_retries=0)
    hold_calls(script.application("consumer0"))
    script.grow("t", 9)
    script.world.run_until(lambda: (GROUP, member) in script.field.evicted, 20_000, "it is evicted")
    name = another_reads(script, mine, "consumer0")
    script.world.stop("consumer0")
    finish(script, name, mine, its_range)


@on_seeds()
def test_a_member_whose_lease_ended_is_told_its_own_range_when_it_reads_again(seed: int) -> None:
    script = scene(seed)
    mine, its_range = announced(script)
    world = script.world
    lost = len(script.journal("lost", mine))
    script.wire("consumer0").up = False
    script.refresh("consumer0")
    world.run_until(lambda: len(script.journal("lost", mine)) > lost, 20_000, "its lease ends")
    world.run_until(lambda: bool(told(script, mine)), 20_000, "it is told")
    assert told(script, mine)[0][1] == its_range


@on_seeds()
def test_a_refused_starts_range_stays_in_the_state_until_it_is_handed_on(seed: int) -> None:
    """A coordinator of a newer program sent the start, and was replaced before the refusal."""
    script = scene(seed, consumers=3, partitions=3)
    mine, its_range = announced(script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            planning,
            "encode_command",
            lambda command: encode_command(command).replace(
                b'"version":1', b'"version":%d' % (1 + bool(command.replay))
            ),
        )
        script.world.stop("consumer0")
        script.world.run_until(lambda: bool(script.world.events("command_refused")), 20_000, "it is refused")
    script.world.run_until(lambda: bool(script.state().get("replay")), 20_000, "the state has it")
    script.world.run_until(lambda: bool(told(script, mine)), 20_000, "it is handed on")
    script.settle()
    finish(script, told(script, mine)[0][0], mine, its_range)


@cache
def again(seed: int) -> int:
    """How many ranges are processed again in this seed's storm."""
    return announcing_storm(seed).sink.again


@pytest.mark.parametrize("seed", seeds(60))
def test_a_sink_keyed_by_ranges_is_exact_whoever_dies_in_a_storm(seed: int) -> None:
    again(seed)


def test_in_storms_ranges_are_processed_again() -> None:
    """Otherwise the test above would prove nothing."""
    assert sum(again(seed) for seed in range(10)) >= 5
