"""F65 (docs/failures.md): while a share waits for a static member that is away, no group is called stable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import Script, on_seeds
from tests.sim.test_failures_tools import Compared, Tree
from zkcoord.core.model import Phase
from zkcoord.group_report import Awaited, GroupReport, TreeReport, read_group, read_tree
from zkcoord.operating.waiting import waits_for, why_not_stable
from zkcoord.tree.paths import DRAFT

HOLD_MS = 30_000
NAME = "consumer0"
SLACK_MS = 1_500


def tools(script: Script) -> tuple[TreeReport, GroupReport]:
    """The reports that the tools would read now."""
    tree = Tree(script.world.ensemble)
    return read_tree(tree, "here"), read_group(tree, DRAFT, GROUP)


def told(script: Script, name: str) -> list[Mapping[str, Any]]:
    """The fields of the coordinators' events of this name, without their reasons."""
    return [{k: v for k, v in event.fields.items() if k != "why"} for event in script.world.events(name)]


def goes_away(script: Script, clean: bool) -> None:
    """The static member ends, and its absence is written into the state."""
    if clean:
        script.leave(NAME)
    else:
        script.world.crash(NAME, restart_after_ms=None)
    script.world.run_until(lambda: bool(script.world.events("instance_away")), 20_000, "it is away")
    script.world.run_for(SLACK_MS)


@on_seeds()
@pytest.mark.parametrize("clean", [True, False])
def test_f65_a_held_share_is_told_by_log_and_tools_until_its_instance_is_back(seed: int, clean: bool) -> None:
    script = Script(seed, consumers=3, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    world, member, share = script.world, script.member(NAME), script.owned(NAME)
    goes_away(script, clean)

    above, report = tools(script)
    noted_ms = world.now_ms
    assert (report.phase, report.settled) == (Phase.AWAITING_MEMBER, False)
    (awaited,) = report.awaited.values()
    assert (list(report.awaited), awaited.consumer, list(awaited.partitions)) == ([NAME], member, share)
    until_ms = awaited.until_ms(above)
    assert until_ms is not None
    assert abs(until_ms - HOLD_MS - noted_ms) <= 2 * SLACK_MS
    assert "start it again" in why_not_stable(above, report)
    away = {"group": GROUP, "instance": NAME, "consumer": member, "partitions": 2, "hold_ms": HOLD_MS}
    assert told(script, "instance_away") == [away]
    assert world.events("group_phase")[-1].fields["state"] == "AwaitingMember"

    script.process(NAME).restarts = True
    if clean:
        world.crash(NAME, restart_after_ms=100)
    else:
        world.restart(NAME)
    script.settle("it is back")
    world.run_for(SLACK_MS)
    assert told(script, "instance_returned") == [{"group": GROUP, "instance": NAME, "consumer": script.member(NAME)}]
    assert (tools(script)[1].phase, tools(script)[1].awaited) == (Phase.STABLE, {})
    assert world.events("rebalance_stable")[-1].time_ms > noted_ms
    assert told(script, "instance_given_up") == []
    script.calm()


@on_seeds()
def test_f65_after_a_failover_the_tools_tell_the_later_end_of_the_hold_that_began_anew(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 6}, hold_ms=HOLD_MS)
    script.settle()
    world, share = script.world, script.owned(NAME)
    goes_away(script, True)
    world.run_for(HOLD_MS // 2)
    first = tools(script)[1].awaited[NAME].until_ms(tools(script)[0])
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: world.ensemble.stat(DRAFT.coordinator) is None, 20_000, "nobody serves")
    above, report = tools(script)
    assert (above.coordinator, report.awaited[NAME].until_ms(above)) == (None, None)
    assert f"for {HOLD_MS} ms from the next election on" in waits_for(above, report.awaited[NAME])

    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(SLACK_MS)
    above, report = tools(script)
    until_ms = report.awaited[NAME].until_ms(above)
    assert first is not None
    assert until_ms is not None
    assert until_ms > first
    world.run_until(lambda: all(script.owner(p) for p in share), 20_000, "they are given on")
    assert abs(world.now_ms - until_ms) <= 2 * SLACK_MS
    assert told(script, "instance_given_up") == [{"group": GROUP, "instance": NAME}]
    world.stop(NAME)
    script.calm()


@on_seeds()
def test_f65_a_stable_group_is_read_whoever_is_away(seed: int) -> None:
    script = Script(seed, consumers=3, topics={"t": 6}, hold_ms=HOLD_MS)
    compared = Compared(script)
    script.settle()
    goes_away(script, False)
    script.world.run_for(HOLD_MS + 2 * SLACK_MS)
    assert compared.phases[Phase.AWAITING_MEMBER]
    script.world.stop(NAME)
    script.calm()


@on_seeds()
def test_a_pause_that_has_come_to_rest_has_a_phase_of_its_own(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    script.request("pause")
    script.world.run_until(lambda: script.answered("pause"), what="it is paused")
    script.world.run_for(SLACK_MS)
    assert tools(script)[1].phase is Phase.PAUSED
    assert [event.fields["state"] for event in script.world.events("group_phase")][-2:] == [
        "PreparingRebalance",
        "Paused",
    ]
    script.resume()
    script.settle()
    script.world.run_for(SLACK_MS)
    assert tools(script)[1].phase is Phase.STABLE


def test_an_absence_that_nobody_noted_has_no_end_that_anybody_knows() -> None:
    above = TreeReport(layout=DRAFT, coordinator="0", epoch=3, epoch_since_ms=1_000)
    awaited = Awaited(consumer="c", partitions=(), hold_ms=500, noted_ms=None)
    assert awaited.until_ms(above) is None
    assert waits_for(above, awaited) == "0 partitions without a reader, kept for it for 500 ms, nobody noted since when"
