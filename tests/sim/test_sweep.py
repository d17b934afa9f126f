"""Crash-point sweep: in each scenario every role is killed at each of its writes, and loses the reply of each.

Every moment of every write is played, also in scenarios in whose middle the serving coordinator is killed. Most
scenarios begin alike, with the writes by which a group forms. Some scenarios are swept with these writes (`WHOLE`), the
others from there on. The marker `long` sweeps all scenarios with these writes, and adds other interleavings, and
ensembles with followers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.sim.actors import GROUP, topic_json
from tests.sim.options import Options
from tests.sim.rest_checkers import state_of
from tests.sim.scenarios import Scene
from tests.sim.script import SESSION_MS, hold_calls
from tests.sim.sweep import KILLS, LOSSES, crash_points, play_again
from tests.sim.sweep_scene import (
    OPTIONS,
    REBALANCE_MS,
    SETTLE_STEPS,
    SMALL,
    Middle,
    at_rest,
    failover_in_between,
    scene,
    settle,
    settled,
    undisturbed,
)
from tests.sim.world import World
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT, EPOCH
from zkcoord.tree.writes import SetNode


def cold_start(world: World, middle: Middle = undisturbed) -> None:
    """Everybody starts with an empty tree."""
    played = scene(world)
    middle(played, lambda: settled(played, 2))
    at_rest(played)


def join(world: World, middle: Middle = undisturbed) -> None:
    """One more consumer joins."""
    played = scene(world)
    settle(played, 2)
    played.join("late")

    def joined() -> bool:
        return _members(played, "late") == 1 and settled(played)

    middle(played, joined)
    world.run_until(joined, SETTLE_STEPS, "it has joined")
    at_rest(played)


def leave(world: World, middle: Middle = undisturbed) -> None:
    """A consumer leaves cleanly (unless it is killed first, and comes back)."""
    played = scene(world, consumers=3)
    settle(played, 3)
    began_ms = world.now_ms
    world.processes["consumer1"].inbox.put(Request("stop", None, Future()))
    middle(played, lambda: world.now_ms - began_ms > SESSION_MS and settled(played))
    world.run_for(2 * SESSION_MS)
    at_rest(played)


def hard_death(world: World, middle: Middle = undisturbed) -> None:
    """A consumer is killed, and does not come back."""
    played = scene(world, consumers=3)
    settle(played, 3)
    world.run_until(lambda: world.processes["consumer1"].running, SETTLE_STEPS, "it lives")
    world.stop("consumer1")
    world.run_until(lambda: _members(played, "consumer1") == 0, SETTLE_STEPS, "its session ends")
    middle(played, lambda: settled(played, 2))
    settle(played, 2)
    at_rest(played)


def failover(world: World) -> None:
    """The serving coordinator is killed while a member joins and another one dies."""
    played = scene(world)
    settle(played, 2)
    session = played.field.epoch_session
    assert session is not None
    played.join("late")
    world.run_until(lambda: _members(played, "late") == 1, SETTLE_STEPS, "it is registered")
    world.run_until(lambda: world.processes["consumer1"].running, SETTLE_STEPS, "it lives")
    world.stop("consumer1")
    if world.processes[session.process].running:
        world.crash(session.process, restart_after_ms=3 * SESSION_MS)
    world.run_until(lambda: played.field.epoch_session is not session, SETTLE_STEPS, "another is elected")
    settle(played, 2)
    at_rest(played)


def eviction(world: World, middle: Middle = undisturbed) -> None:
    """Partitions are added. A silent member is evicted, and its partitions wait for the grace."""
    played = scene(world)
    settle(played, 2)
    _no_retries(world)
    silent = world.processes["consumer0"]
    held = silent.application
    if held is not None:
        hold_calls(held)
    path = "/brokers/topics/t"
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, topic_json(9), stat.version)).reason

    def evicted() -> bool:
        return bool(played.field.evicted) or silent.application is not held

    middle(played, evicted)
    world.run_until(evicted, SETTLE_STEPS, "it is evicted")
    world.run_for(SESSION_MS // 2)
    if silent.application is held:
        world.crash("consumer0", restart_after_ms=2 * SESSION_MS)
    at_rest(played)


def eager_join(world: World, middle: Middle = undisturbed) -> None:
    """One more consumer joins an eager group: all members stop, and then all start."""
    played = scene(world)
    settle(played, 2)
    played.edit_record(rebalance="eager")
    played.join("late")

    def joined() -> bool:
        return _members(played, "late") == 1 and settled(played)

    middle(played, joined)
    world.run_until(joined, SETTLE_STEPS, "it has joined")
    at_rest(played)


def switch(world: World, middle: Middle = undisturbed) -> None:
    """A group becomes eager while a consumer joins, and cooperative again in the middle of the stops."""
    played = scene(world)
    settle(played, 2)
    played.edit_record(rebalance="eager")
    played.join("late")

    def joined() -> bool:
        return _members(played, "late") == 1 and settled(played)

    world.run_until(
        lambda: bool(played.state().get("stopping")) or joined(), SETTLE_STEPS, "everybody is being stopped"
    )
    played.edit_record(rebalance="cooperative")
    middle(played, joined)
    world.run_until(joined, SETTLE_STEPS, "it has joined")
    at_rest(played)


def pause(world: World, middle: Middle = undisturbed) -> None:
    """A group is paused, stands still, and is resumed."""
    played = scene(world)
    settle(played, 2)
    played.request("pause")
    middle(played, lambda: not played.held())
    world.run_until(lambda: not played.held(), SETTLE_STEPS, "everything is stopped")
    world.run_for(SESSION_MS // 2)
    played.resume()
    settle(played, 2)
    at_rest(played)


def reset(world: World, middle: Middle = undisturbed) -> None:
    """A tool stops all partitions, sets an offset back, and lets the group go on from there."""
    played = scene(world)
    settle(played, 2)
    partition = played.held()[0]
    path = world.layout.offset(GROUP, partition)
    played.request("reset", run="r1")
    middle(played, lambda: played.stopped("r1"))
    world.run_until(lambda: played.stopped("r1"), SETTLE_STEPS, "everything is stopped")
    assert played.held() == []
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, b"0", stat.version)).reason
    played.end_reset()
    settle(played, 2)
    at_rest(played)


def hold(world: World) -> None:
    """A held group keeps its owners while a consumer joins and another one dies. Then it is resumed."""
    played = scene(world, consumers=3)
    settle(played, 3)
    played.request("hold")
    played.join("late")
    world.run_until(lambda: _members(played, "late") == 1, SETTLE_STEPS, "it has joined")
    world.run_until(lambda: world.processes["consumer1"].running, SETTLE_STEPS, "it lives")
    world.stop("consumer1")
    world.run_until(lambda: _members(played, "consumer1") == 0, SETTLE_STEPS, "its session ends")
    played.resume()
    settle(played, 3)
    at_rest(played)


def recreated_topic(world: World, middle: Middle = undisturbed) -> None:
    """A topic is deleted and created again with fewer partitions, while it is read."""
    played = scene(world)
    settle(played, 2)
    played.delete_topic("t")
    world.run_for(200)
    played.create_topic("t", 2)
    middle(played, lambda: played.incarnation("t") == 2 and settled(played, 2))
    world.run_until(lambda: played.incarnation("t") == 2, SETTLE_STEPS, "the mark tells of another topic")
    settle(played, 2)
    at_rest(played)


def static_restart(world: World) -> None:
    """A static member is killed and comes back within its hold."""
    played = Scene(world, consumers=2, topics=SMALL, rebalance_timeout_ms=REBALANCE_MS, hold_ms=30_000)
    settle(played, 2)
    world.run_until(lambda: world.processes["consumer1"].running, SETTLE_STEPS, "it lives")
    world.crash("consumer1", restart_after_ms=500)
    world.run_until(lambda: world.processes["consumer1"].running, SETTLE_STEPS, "it starts again")
    settle(played, 2)
    at_rest(played)


def announced(world: World) -> None:
    """A consumer that has announced a batch is killed in the middle of it, and so is its successor."""
    played = Scene(world, consumers=3, topics=SMALL, rebalance_timeout_ms=REBALANCE_MS, batches=True)
    settle(played, 3)
    for name in ("consumer1", "consumer2"):
        began = len(world.journal)
        world.run_until(
            lambda name=name, began=began: any(e.event == "read" and e.process == name for e in world.journal[began:]),  # type: ignore[misc]
            SETTLE_STEPS,
            "it processes",
        )
        world.run_until(lambda name=name: world.processes[name].running, SETTLE_STEPS, "it lives")  # type: ignore[misc]
        world.stop(name)
        world.run_until(lambda name=name: _members(played, name) == 0, SETTLE_STEPS, "its session ends")  # type: ignore[misc]
    settle(played, 1)
    played.calm()  # a batch takes three rounds of a draining application, so there is no limit of time
    assert settled(played)


def deletion(world: World, middle: Middle = undisturbed) -> None:
    """A group whose members are gone is deleted with its offsets."""
    played = _deserted(world)
    played.request("delete", offsets=True)
    middle(played, lambda: "done" not in played.record() or bool(played.record()["done"]))
    world.run_until(lambda: not played.record(), SETTLE_STEPS, "the record goes")
    played.calm()
    assert world.ensemble.stat(DRAFT.group(GROUP)) is None


def deletion_without_offsets(world: World, middle: Middle = undisturbed) -> None:
    """A group whose members are gone is deleted without its offsets. Then a consumer joins it."""
    played = _deserted(world)
    played.request("delete")
    middle(played, lambda: not played.record().get("wish") or bool(played.record()["done"]))
    world.run_until(lambda: world.ensemble.data(DRAFT.record(GROUP)) == b"", SETTLE_STEPS, "the record is emptied")
    assert state_of(played.field, GROUP)["deleted"] is True
    played.join("consumer2")
    settle(played, 1)
    world.run_until(
        lambda: "deleted" not in state_of(played.field, GROUP), SETTLE_STEPS, "it is an ordinary group again"
    )
    at_rest(played)


def _deserted(world: World) -> Scene:
    """A group whose members are gone."""
    played = scene(world)
    settle(played, 2)
    for name in ("consumer0", "consumer1"):
        world.run_until(lambda name=name: world.processes[name].running, SETTLE_STEPS, "it lives")  # type: ignore[misc]
        world.stop(name)
    world.run_until(lambda: not played.field.registrations, SETTLE_STEPS, "all are gone")
    return played


def _members(played: Scene, name: str) -> int:
    return sum(f"_{name}-" in consumer for _, consumer in played.field.registrations)


def _no_retries(world: World) -> None:
    path = DRAFT.record(GROUP)
    stat, data = world.ensemble.stat(path), world.ensemble.data(path)
    assert stat is not None
    assert data is not None
    assert b'"max_rebalance_retries":4' in data
    text = data.replace(b'"max_rebalance_retries":4', b'"max_rebalance_retries":0')
    assert not world.ensemble.operate(SetNode(path, text, stat.version)).reason


ALONE: Mapping[str, Callable[[World], None]] = {
    "failover": failover,
    "hold": hold,
    "static-restart": static_restart,
    "announced": announced,
}
WITH_A_MIDDLE: Mapping[str, Callable[[World, Middle], None]] = {
    "cold-start": cold_start,
    "join": join,
    "leave": leave,
    "hard-death": hard_death,
    "eviction": eviction,
    "eager-join": eager_join,
    "switch": switch,
    "pause": pause,
    "reset": reset,
    "recreated-topic": recreated_topic,
    "deletion": deletion,
    "deletion-without-offsets": deletion_without_offsets,
}
SCENARIOS: Mapping[str, Callable[[World], None]] = {
    **ALONE,
    **{name: partial(scenario, middle=undisturbed) for name, scenario in WITH_A_MIDDLE.items()},
    **{f"{name}-failover": partial(scenario, middle=failover_in_between) for name, scenario in WITH_A_MIDDLE.items()},
}
MOMENTS = KILLS + LOSSES
POINTS_MIN = 15 * len(MOMENTS)  # for the writes of the shortest scenario
OWN_POINTS_MIN = 6 * len(MOMENTS)  # without the writes by which its group forms
WHOLE = ("cold-start", "cold-start-failover", "hard-death", "static-restart", "announced")
"""Two consumers, three, static ones, those that announce batches: every other scenario begins as one of these does."""
LONG = [
    (seed, replace(OPTIONS, followers=followers, torn_rate=0.3 if followers else 0.0))
    for followers in (0, 2)
    for seed in range(1 if followers else 0, 4)
]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_role_may_die_or_lose_a_reply_at_each_of_its_writes(name: str) -> None:
    own = name not in WHOLE
    points = crash_points(SCENARIOS[name], 0, OPTIONS, own=own)
    assert len(points) == points_of(name, 0, OPTIONS, own=own) >= (OWN_POINTS_MIN if own else POINTS_MIN)


def points_of(name: str, seed: int, options: Options, *, own: bool = False) -> int:
    """The number of a scenario's crash points: every write of every role, at every moment."""
    world = World(seed, options)
    before: list[str] = []  # writes before its group has settled

    def at_write(process: str, number: int) -> None:
        if not world.settled:
            before.append(process)

    world.at_write = at_write
    SCENARIOS[name](world)
    return (sum(world.write_counts.values()) - own * len(before)) * len(MOMENTS)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name.endswith("-failover")])
def test_in_the_middle_of_a_scenario_another_coordinator_is_elected(name: str) -> None:
    """Otherwise half of the sweep would prove nothing: the first one is killed while its scenario still has commands to
    send."""
    world = World(0, OPTIONS)
    SCENARIOS[name](world)
    assert int(world.ensemble.data(EPOCH) or b"0") == 2


def test_the_guide_tells_how_many_cases_there_are() -> None:
    """CONTRIBUTING.md has two numbers, rounded down: of the short tier, and of the short and the long tier together."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    said = re.search(r"([\d,]+) such\s+cases \(over\s+([\d,]+) with `long`\)", text)
    assert said
    short = sum(points_of(name, 0, OPTIONS, own=name not in WHOLE) for name in SCENARIOS)
    both = sum(points_of(name, seed, options) for name in SCENARIOS for seed, options in LONG)
    for number, actual in zip(said.groups(), (short, both), strict=True):
        assert int(number.replace(",", "")) <= actual < 1.2 * int(number.replace(",", ""))


def test_a_forked_point_of_real_loops_equals_the_one_replayed_from_its_start() -> None:
    options = replace(OPTIONS, followers=2, torn_rate=0.3)
    for point in crash_points(failover, 1, options, near_steps=0)[::11]:
        assert play_again(failover, point.plan, 1, options) == point


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(LONG)))
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_role_may_die_at_every_moment_of_each_of_its_writes(name: str, place: int) -> None:
    seed, options = LONG[place]
    assert len(crash_points(SCENARIOS[name], seed, options)) >= POINTS_MIN
