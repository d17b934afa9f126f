"""More announced ranges than one status, or the state, has room for: they wait, and nobody is evicted over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.options import seeds
from tests.sim.scenarios import Scene, announcing_storm
from tests.sim.script import Script, on_seeds
from tests.sim.test_replay import another_reads, ask, position, process, scene, status, told
from zkcoord.core import replay, room
from zkcoord.core.model import TopicPartition
from zkcoord.tree import plan as planning
from zkcoord.tree.command import Command, encode_command

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
LONG_MS = 120_000


def announce_all(script: Script, name: str) -> dict[TopicPartition, tuple[int, int]]:
    """A member announces a range of all that it owns."""
    ranges = {p: (at, at + 9) for p in script.owned(name) for at in [position(script, p)]}
    ask(script, name, "announce", ranges).result()
    return ranges


def finish_one_by_one(script: Script, name: str, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
    """It is handed one range, takes its time, commits, and is handed the next."""
    left = dict(ranges)
    before = len(script.journal("replay"))
    for number in range(len(ranges)):
        script.world.run_until(lambda: len(script.journal("replay")) > before + number, 20_000, "it is told")  # noqa: B023
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
    """What stands in a member's channel."""
    return list(script.field.commands.get((GROUP, script.member(name)), {}).values())  # type: ignore[arg-type]


@on_seeds()
def test_a_receiver_without_room_is_handed_one_range_after_the_other_and_is_never_evicted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "HELD_BYTES_MAX", 1)
    script = scene(seed, consumers=1, partitions=4)
    script.set_policy(max_rebalance_retries=0)
    ranges = announce_all(script, "consumer0")
    script.join("heir")
    script.world.stop("consumer0")
    finish_one_by_one(script, "heir", ranges)


@on_seeds()
def test_what_is_left_over_in_a_status_and_long_over_takes_no_room(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = scene(seed, consumers=1, partitions=4)
    former = script.member("consumer0")
    earlier = announce_all(script, "consumer0")
    script.consumers.registers(replaces=former)
    script.join("heir")
    for partition, (start, end) in earlier.items():
        assert another_reads(script, partition, "consumer0") == "heir"
        script.world.run_until(lambda: bool(told(script, partition)), 20_000, "it is told")  # noqa: B023
        process(script, "heir", partition, start, end)
    script.world.run_for(100)
    ask(script, "heir", "commit", {p: end for p, (_, end) in earlier.items()}).result()
    ranges = announce_all(script, "heir")
    assert status(script, former).batch.keys() == earlier.keys()
    monkeypatch.setattr(room, "HELD_BYTES_MAX", 1)
    script.world.stop("heir")
    finish_one_by_one(script, "consumer0", ranges)


def newer(encode: Callable[[Command], bytes]) -> Callable[[Command], bytes]:
    """A coordinator of a program whose starts with ranges nobody here understands."""
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
    """One seed of a storm of members that announce, with room for one range."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "UNDER_WAY_BYTES_MAX", 1)
        patch.setattr(replay, "KEPT_BYTES_MAX", 1)
        return announcing_storm(seed)


@pytest.mark.parametrize("seed", seeds(20))
def test_a_sink_is_exact_in_a_storm_in_which_hardly_a_range_has_room(seed: int) -> None:
    narrow(seed)
