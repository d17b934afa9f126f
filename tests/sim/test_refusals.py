"""Refused commands are sent more and more rarely, whatever their kind is, and even if somebody requests a rebalance
meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import START, STOP
from tests.sim.script import Script, hold_calls, on_seeds
from tests.sim.test_failures_quarantine import POISON, cannot_start
from zkcoord.core.command import Command
from zkcoord.tree import member_view
from zkcoord.tree.command import NotUnderstood, decode_command
from zkcoord.tree.paths import DRAFT

WHILE_MS = 60_000
SENT_MAX = 8
"""Of one command in that time: after 2, 4, 8, 16, and then 30 s."""


def too_old_for(option: str) -> Callable[[bytes], Command]:
    """The command decoder of a consumer that does not know this option."""

    def understands(data: bytes) -> Command:
        command = decode_command(data)
        if command.option.value == option:
            raise NotUnderstood(f"option is {option}")
        return command

    return understands


@on_seeds(3)
@pytest.mark.parametrize("option", [START, STOP])
def test_a_command_that_its_consumer_never_understands_is_sent_ever_more_seldom(
    seed: int, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer's program is too old. Once it is replaced, everything goes on."""
    script = Script(seed, consumers=1, topics={"t": 2})
    script.settle()
    world = script.world

    with monkeypatch.context() as patch:
        patch.setattr(member_view, "decode_command", too_old_for(option))
        began_ms = world.now_ms
        if option == START:
            script.grow("t", 3)
        else:
            script.join("late")
        world.run_for(WHILE_MS)
        assert 2 <= len(script.commands_sent(option, since_ms=began_ms)) <= SENT_MAX
    script.settle()
    script.calm()


@on_seeds(3)
def test_while_a_requested_rebalance_waits_for_a_grace_what_fails_is_tried_as_seldom_as_ever(
    seed: int,
) -> None:
    script = Script(seed, consumers=3, topics={"t": 2}, rebalance_timeout_ms=1_000)
    script.settle()
    world = script.world
    script.set_policy(max_rebalance_retries=0, evict_grace_ms=2 * WHILE_MS)
    hung = next(name for name in ("consumer0", "consumer1", "consumer2") if script.owned(name))
    hold_calls(script.application(hung))
    member = script.member(hung)
    script.set_policy(max_rebalance_retries=0, evict_grace_ms=2 * WHILE_MS)
    script.request("pause")
    world.run_until(lambda: (GROUP, member) in script.field.evicted, 20_000, "it is evicted")
    world.stop(hung)
    script.resume()
    for name in world.processes:
        if name.startswith("consumer") and name != hung:
            cannot_start(script.application(name))
    began_ms = world.now_ms
    script.grow("t", 3)
    script.request("rebalance")
    assert world.ensemble.data(DRAFT.record(GROUP))
    world.run_for(WHILE_MS)
    assert (script.record().get("wish") or {}).get("rebalance")  # the request still waits
    assert 2 <= len(script.commands_sent(START, POISON, since_ms=began_ms)) <= 2 * SENT_MAX


@on_seeds(3)
def test_a_stop_that_its_consumers_do_not_understand_releases_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an eager group the stop names the present reader as the next reader, too. Before the fix, this looked like the
    rest of a refused start."""
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    script.edit_record(rebalance="eager")
    owners = {p: script.owner(p) for p in script.partitions()}
    with monkeypatch.context() as patch:
        patch.setattr(member_view, "decode_command", too_old_for(STOP))
        script.join("late")
        world.run_until(lambda: bool(world.events("command_removed")), 20_000, "a stop is refused, and removed")
        world.run_for(5_000)
        assert {p: script.owner(p) for p in script.partitions()} == owners
    script.settle()
    script.calm()
