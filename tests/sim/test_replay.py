"""Announced ranges: what a member wrote down before it processed it goes to whoever reads the partition next."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import QUIET, Script, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.shell.announcing import Announced
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.status import Status, decode_status

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SLOW = replace(QUIET, read_ms_max=10_000_000)  # nobody reads or commits by himself


def scene(seed: int, consumers: int = 2, partitions: int = 2) -> Script:
    """A settled group whose members take announced ranges, and commit only when told."""
    script = Script(seed, SLOW, consumers=0, topics={"t": partitions})
    script.consumers.registers(offers=frozenset({"ping", "replay"}))
    for n in range(consumers):
        script.join(f"consumer{n}")
    script.settle()
    return script


def ask(script: Script, name: str, what: str, values: dict[TopicPartition, Any]) -> Future[None]:
    """A program announces or commits; the answer is there when this returns."""
    application, future = script.application(name), Future[None]()
    wanted = application.wanted(values)
    argument = Announced(values, wanted.starts) if what == "announce" else wanted
    script.process(name).inbox.put(Request(what, argument, future))
    script.world.run_until(future.done, 5_000, f"{what} is answered")
    return future


def process(script: Script, name: str, partition: TopicPartition, start: int, end: int) -> None:
    """A program processes a range."""
    script.application(name)._note("read", partition, start, end)


def status(script: Script, member: str) -> Status:
    """What stands in a member's channel."""
    return decode_status(script.world.ensemble.data(DRAFT.channel(GROUP, member)) or b"")


def position(script: Script, partition: TopicPartition) -> int:
    """The committed offset."""
    return int(script.world.ensemble.data(DRAFT.offset(GROUP, partition)) or b"-1")


@on_seeds()
def test_an_announcement_is_one_write_and_a_commit_ends_it_without_another(seed: int) -> None:
    script = scene(seed, consumers=1)
    member, (at0, at1) = script.member("consumer0"), (position(script, P0), position(script, P1))
    script.application("consumer0").positions.clear()
    writes = script.world.write_counts["consumer0"]
    ask(script, "consumer0", "announce", {P0: (at0, at0 + 9), P1: (at1, at1 + 5)}).result()
    generation = script.generation()
    both = {P0: (at0, at0 + 9, generation), P1: (at1, at1 + 5, generation)}
    assert status(script, member).batch == both
    process(script, "consumer0", P0, at0, at0 + 9)
    process(script, "consumer0", P1, at1, at1 + 5)
    ask(script, "consumer0", "commit", {P0: at0 + 9}).result()
    assert status(script, member).batch == both
    assert script.world.write_counts["consumer0"] == writes + 2
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20)}).result()  # what is not committed stays
    assert status(script, member).batch == {**both, P0: (at0 + 9, at0 + 20, generation)}
    ask(script, "consumer0", "commit", {P1: at1 + 5}).result()
    ask(script, "consumer0", "announce", {P0: (at0 + 9, at0 + 20)}).result()
    assert status(script, member).batch == {P0: (at0 + 9, at0 + 20, generation)}


@on_seeds()
def test_what_is_not_held_or_not_at_its_committed_offset_is_not_announced(seed: int) -> None:
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
    assert status(script, script.member("consumer0")).batch == {mine: (at, at + 9, script.generation())}
