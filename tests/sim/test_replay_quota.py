"""More announced ranges than one status, or the state, has room for. Some ranges wait, and nobody is evicted because of
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.sim.actors import GROUP
from tests.sim.options import seeds
from tests.sim.scenarios import Scene, announcing_storm
from tests.sim.script import Script, on_seeds
from tests.sim.test_replay import another_reads, ask, position, process, scene, status, told
from zkcoord.core import replay, replay_quota
from zkcoord.core.command import Command
from zkcoord.core.member import announcements
from zkcoord.core.member import commands as member_commands
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.tree import member_plan
from zkcoord.tree import plan as planning
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.status import decode_status, encode_status

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
LONG_MS = 120_000


def announce_all(script: Script, name: str) -> dict[TopicPartition, tuple[int, int]]:
    """A member announces a range of each partition that it owns."""
    ranges = {p: (at, at + 9) for p in script.owned(name) for at in [position(script, p)]}
    ask(script, name, "announce", ranges).result()
    return ranges


def replays_beyond(script: Script, count: int) -> bool:
    """True once more than `count` ranges were handed over."""
    return len(script.journal("replay")) > count


def await_told(script: Script, holds: Callable[[], object]) -> None:
    """Run until the condition holds: a member is told its ranges."""
    script.world.run_until(lambda: bool(holds()), 20_000, "it is told")


def finish_one_by_one(script: Script, name: str, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
    """The member is handed one range, takes its time, commits, and is handed the next one."""
    left = dict(ranges)
    before = len(script.journal("replay"))
    for number in range(len(ranges)):
        await_told(script, partial(replays_beyond, script, before + number))
        script.world.run_for(LONG_MS if number == 0 else 3_000)
        [entry] = script.journal("replay")[before + number :]
        assert entry.partition is not None
        assert (entry.process, (entry.start, entry.end)) == (name, left.pop(entry.partition))
        assert not any(c.option == "start-fetcher" for c in commands(script, name))
        process(script, name, entry.partition, entry.start, entry.end)
        ask(script, name, "commit", {entry.partition: entry.end}).result()
    script.settle()
    assert script.field.evicted == {}
    assert script.state()["quarantined"] == {}


def commands(script: Script, name: str) -> list[Command]:
    """The commands in a member's channel."""
    return list(script.field.commands.get((GROUP, script.member(name)), {}).values())  # type: ignore[arg-type]


@on_seeds()
def test_a_receiver_without_room_is_handed_one_range_after_the_other_and_is_never_evicted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_quota, "HELD_BYTES_MAX", 1)
    script = scene(seed, consumers=1, partitions=4)
    script.set_policy(max_rebalance_retries=0)
    ranges = announce_all(script, "consumer0")
    script.join("heir")
    script.world.stop("consumer0")
    finish_one_by_one(script, "heir", ranges)


@on_seeds()
def test_past_ranges_in_a_status_take_no_room(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scene(seed, consumers=1, partitions=4)
    former = script.member("consumer0")
    earlier = announce_all(script, "consumer0")
    script.consumers.registers(replaces=former)
    script.join("heir")
    for partition, (start, end) in earlier.items():
        assert another_reads(script, partition, "consumer0") == "heir"
        await_told(script, partial(told, script, partition))
        process(script, "heir", partition, start, end)
    script.world.run_for(100)
    ask(script, "heir", "commit", {p: end for p, (_, end) in earlier.items()}).result()
    ranges = announce_all(script, "heir")
    assert status(script, former).batch.keys() == earlier.keys()
    monkeypatch.setattr(replay_quota, "HELD_BYTES_MAX", 1)
    script.world.stop("heir")
    finish_one_by_one(script, "consumer0", ranges)


def newer(encode: Callable[[Command], bytes]) -> Callable[[Command], bytes]:
    """Make the coordinator send starts with ranges in a newer version, which no consumer understands."""
    return lambda command: encode(command).replace(b'"version":1', b'"version":%d' % (1 + bool(command.replay)))


@on_seeds()
def test_a_refused_start_stands_until_the_state_has_room_for_its_ranges(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "KEPT_BYTES_MAX", 1)
    script = scene(seed, consumers=3, partitions=6)
    ranges = announce_all(script, "consumer0")
    most = 0

    def all_told() -> bool:
        nonlocal most
        most = max(most, len(script.state().get("replay", {})))
        return {p for p in ranges if told(script, p)} == set(ranges)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "encode_command", newer(encode_command))
        script.world.stop("consumer0")
        refused = script.world.events
        script.world.run_until(lambda: len(refused("command_refused")) == 2, 20_000, "both starts are refused")
    script.world.run_until(all_told, 60_000, "all are handed on")
    assert most == 1
    script.world.run_until(lambda: "replay" not in script.state(), 20_000, "the state keeps nothing")
    script.settle()


def narrow(seed: int) -> Scene:
    """One seed of a storm of members that announce ranges, with room for only one range."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_quota, "UNDER_WAY_BYTES_MAX", 1)
        patch.setattr(replay, "KEPT_BYTES_MAX", 1)
        return announcing_storm(seed)


@on_seeds()
def test_unfinished_ranges_that_others_have_by_now_leave_their_room_to_the_next_announcement(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop broke a batch off, and its ranges filled the status. Before the fix, the member was told to announce fewer
    ranges, for ever."""
    script = scene(seed, consumers=1, partitions=4)
    ranges = announce_all(script, "consumer0")
    room_now = len(encode_status(replace(decode_status(status_of(script, "consumer0")), timing=())))  # without `timing`
    monkeypatch.setattr(announcements, "ANNOUNCED_BYTES_MAX", room_now)
    script.consumers.registers(offers=frozenset({"ping", "replay"}))
    script.join("other")
    script.settle()
    mine, gone = script.owned("consumer0"), script.owned("other")
    process(script, "consumer0", mine[0], *ranges[mine[0]])
    ask(script, "consumer0", "commit", {mine[0]: ranges[mine[0]][1]}).result()
    end = 10**17  # this many digits find no room beside the other ranges
    fresh = {mine[0]: (position(script, mine[0]), end)}
    with pytest.raises(UnavailableError, match=r"1 of partitions held here, which .* and 2 that it left"):
        ask(script, "consumer0", "announce", fresh).result()
    with pytest.MonkeyPatch.context() as smaller, pytest.raises(UsageError, match="announce fewer partitions"):
        smaller.setattr(announcements, "ANNOUNCED_BYTES_MAX", 100)  # less than one range needs
        ask(script, "consumer0", "announce", fresh).result()
    script.world.run_until(lambda: announced(script, fresh), 20_000, "there is room")
    assert status(script, script.member("consumer0")).batch.keys() == set(mine)
    for partition in gone:
        assert told(script, partition) == [("other", ranges[partition])]


def announced(script: Script, ranges: dict[TopicPartition, tuple[int, int]]) -> bool:
    """True when there was room for these ranges."""
    try:
        ask(script, "consumer0", "announce", ranges).result()
    except UnavailableError:
        return False
    return True


def status_of(script: Script, name: str) -> bytes:
    """The data of a member's channel."""
    return script.world.ensemble.data(DRAFT.channel(GROUP, script.member(name))) or b""


def from_another_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator sends one range with each start, without a limit for all together. Three ranges are more than fit
    into a member's status."""
    monkeypatch.setattr(replay_quota, "UNDER_WAY_BYTES_MAX", 1)
    monkeypatch.setattr(replay_quota, "HELD_BYTES_MAX", 10**9)
    monkeypatch.setattr(member_plan, "range_bytes", lambda partition, announced: 300_000)
    monkeypatch.setattr(member_plan, "WEIGHED_BYTES", 0)


@on_seeds()
@pytest.mark.parametrize("wait_ms", [1_000, 12_000])
def test_a_member_handed_too_much_for_its_status_obeys_once_it_has_room(
    seed: int, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix, the server refused the large multi, which ended the member's session or its program."""
    script = scene(seed, consumers=1, partitions=4)
    script.set_policy(max_rebalance_retries=0)
    ranges = announce_all(script, "consumer0")
    script.join("heir")
    from_another_coordinator(monkeypatch)
    script.world.stop("consumer0")
    world = script.world
    world.run_until(lambda: bool(world.events("start_waits")), 20_000, "there is no room")
    member = script.member("heir")
    assert len(status(script, member).batch) == 2
    assert "must have it hand on less" in world.events("start_waits")[0].fields["why"]
    world.run_for(wait_ms)
    refused = [e.fields["why"] for e in world.events("command_refused")]
    assert bool(refused) is (wait_ms > member_commands.NO_ROOM_MS)
    assert len(refused) <= wait_ms // member_commands.NO_ROOM_MS
    done: set[TopicPartition] = set()

    def reads() -> set[TopicPartition]:
        held = ((p, script.field.holdings.get((GROUP, p))) for p in ranges if told(script, p))
        return {p for p, holding in held if holding is not None and holding.consumer == member}

    while len(done) < 4:
        world.run_until(lambda: bool(reads() - done), 60_000, "it is told, and reads")
        for partition in sorted(reads() - done):
            assert told(script, partition) == [("heir", ranges[partition])]
            process(script, "heir", partition, *ranges[partition])
            world.run_for(100)
            ask(script, "heir", "commit", {partition: ranges[partition][1]}).result()
            done.add(partition)
    script.settle()
    assert script.member("heir") == member
    assert script.field.evicted == {}
    assert script.state().get("replay", {}) == {}


@pytest.mark.parametrize("seed", seeds(20))
def test_a_sink_is_exact_in_a_storm_in_which_hardly_a_range_has_room(seed: int) -> None:
    narrow(seed)


@on_seeds(3)
def test_a_member_paused_with_a_full_status_reads_on_after_the_resume(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member was stopped in the middle of its own batch and of ranges that it had been handed. No other member may
    have these."""
    script = scene(seed, partitions=4)
    ranges = announce_all(script, "consumer0") | announce_all(script, "consumer1")
    world = script.world
    monkeypatch.setattr(
        replay_quota, "HELD_BYTES_MAX", sum(replay_quota.range_bytes(p, r) + 8 for p, r in ranges.items())
    )
    world.stop("consumer1")
    script.settle("all is handed to the other")
    script.request("pause")
    world.run_until(lambda: (script.record()["done"].get("pause") or {}).get("state") == "paused", 20_000, "paused")
    world.run_for(5_000)
    script.resume()
    script.settle("it reads on")
    for partition, its_range in ranges.items():
        assert told(script, partition)[-1] == ("consumer0", its_range)
        process(script, "consumer0", partition, *its_range)
    world.run_for(100)
    ask(script, "consumer0", "commit", {p: end for p, (_, end) in ranges.items()}).result()
    assert {p: position(script, p) for p in ranges} == {p: end for p, (_, end) in ranges.items()}
