"""Somebody sets an owner empty while its partition is read: the reader is stopped before another member starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_failures_input import TwoGroups
from tests.sim.test_mended import take_over
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, DeleteNode, SetNode

T0 = TopicPartition("t", 0)
PATH = DRAFT.owner(GROUP, T0)
HANDS = {
    "emptied": [SetNode(PATH, b"", ANY_VERSION)],
    "mended": [SetNode(PATH, b"xx yy", ANY_VERSION), SetNode(PATH, b"", ANY_VERSION)],
    "gone": [SetNode(PATH, b"g1_gone-1-aaaaaaaa-0", ANY_VERSION)],
    "deleted": [DeleteNode(PATH, ANY_VERSION)],
}


def rebalance(script: Script) -> None:
    """An operator requests a rebalance, as the tools ask people to do."""
    script.request("rebalance")


def empty(script: Script) -> str:
    """Somebody sets the owner empty, and two consumers join. Returns the partition's reader."""
    reader = script.owner(T0)
    script.world.ensemble.operate(*HANDS["emptied"])
    for name in ("consumer2", "consumer3"):
        script.world.spawn(name, script.consumers)
    return reader


@on_seeds()
@pytest.mark.parametrize("hands", HANDS)
@pytest.mark.parametrize("told", [rebalance, take_over])
def test_f98_the_reader_of_an_owner_that_somebody_emptied_is_stopped_before_another_starts(
    seed: int, hands: str, told: Callable[[Script], None]
) -> None:
    script = TwoGroups(seed)
    for write in HANDS[hands]:
        script.write(write)
    for name in ("consumer2", "consumer3"):
        script.world.spawn(name, script.consumers)
    told(script)

    def shared() -> bool:
        return script.balanced() and bool(script.owned("consumer3"))

    script.world.run_until(shared, what="it is given anew")
    assert len(script.commands_sent("stop-fetcher", T0)) == 1
    script.calm()


@on_seeds()
def test_f98_a_member_that_regains_its_partition_is_stopped_before_it_starts(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    script.world.ensemble.operate(*HANDS["emptied"])
    script.request("rebalance")
    script.world.run_until(lambda: script.answered("rebalance"), what="it is done")
    script.settle("it is given anew")
    told = [(e.event, e.partition) for e in script.journal("stop", T0) + script.journal("start", T0)[1:]]
    assert told == [("stop", T0), ("start", T0)]
    script.calm()


@on_seeds()
def test_f98_a_member_that_may_have_read_the_emptied_owner_is_waited_for(seed: int) -> None:
    """The heir acknowledges its start without reading the owner again."""
    script = Script(seed, consumers=1)
    script.settle()
    script.join("heir")
    go_on: list[Callable[[], None]] = []

    def given() -> bool:
        return script.registered("heir") and script.outstanding("heir") == 1

    go_on.append(hold_calls(script.application("heir")))
    script.world.run_until(given, what="it is told to start")

    def asked() -> bool:
        return bool(script.application("heir")._calls)

    script.world.run_until(asked, what="its program is told to start")
    mine = next(p for p in script.partitions() if script.owner(p) == script.member("heir"))
    script.world.ensemble.operate(SetNode(DRAFT.owner(GROUP, mine), b"", ANY_VERSION))
    for name in ("consumer2", "consumer3"):
        script.world.spawn(name, script.consumers)
    script.request("rebalance")
    script.world.run_for(20_000)
    go_on[0]()
    script.settle("everybody has its share")
    script.calm()


@on_seeds()
def test_f98_a_reader_that_does_not_stop_is_evicted_and_its_grace_is_waited_for(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    script.set_policy(max_rebalance_retries=0)
    reader = next(n for n in ("consumer0", "consumer1") if script.owner(T0) == script.member(n))
    hold_calls(script.application(reader))
    empty(script)
    take_over(script)

    def started() -> bool:
        return len(script.journal("start", T0)) == 2

    script.world.run_until(started, 40_000, "another reads it")


@on_seeds()
def test_f98_a_pause_is_answered_once_the_reader_of_an_emptied_owner_has_stopped(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    script.world.ensemble.operate(*HANDS["emptied"])
    script.request("pause")
    take_over(script)
    script.world.run_until(lambda: script.answered("pause"), what="it is paused")
    paused_ms = script.world.now_ms
    script.world.run_for(5_000)
    assert script.journal("read", since_ms=paused_ms + 1) == []
    assert not script.field.holdings


@on_seeds()
def test_f98_a_recreated_topic_is_dropped_once_the_emptied_owners_reader_has_stopped(
    seed: int,
) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    script.world.ensemble.operate(*HANDS["emptied"])
    script.delete_topic("t")
    script.create_topic("t", 4)
    take_over(script)
    script.settle("it is read again")
    script.calm()
