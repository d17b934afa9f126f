"""The source of topics is changed under a running group: the tool may die at any write, and a storm changes it again
and again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest

from tests.sim.mirror_scene import Mirrored
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import on_seeds
from tests.sim.store_tool import ToolDiedError, ToolTree
from tests.sim.switch_scene import LossyTree, Switched, come_to, switchers
from zkcoord.core.topics import DELETED_MS
from zkcoord.tree.paths import DRAFT, EPOCH
from zkcoord.tree.writes import CreateNode, Transaction

WRITES_MAX = 10
OTHER = {"zookeeper": "kafka", "kafka": "zookeeper"}
SHORT = (("kafka", 2, True), ("kafka", 3, False), ("zookeeper", 2, False))  # goal, write, dies after it


def begun(goal: str, seed: int = 0) -> Switched:
    """A group that reads topics from the other source."""
    scene = Switched(seed, source=OTHER[goal], coordinators=2, consumers=2)
    scene.settle()
    scene.world.run_for(3_000)
    return scene


def judged(scene: Switched, goal: str, since_ms: int) -> None:
    """Check the switch: no topic was dropped, nobody was stopped, and the group follows topics of the new source."""
    scene.settled(goal)
    world = scene.world
    assert (world.events("stop_sent", since_ms), world.events("topic_dropped")) == ([], [])
    scene.grow("t", 6)
    world.run_until(lambda: len(scene.field.holdings) == 6, what="the new partitions are read")
    if goal == "kafka":
        scene.calm()
    else:
        super(Mirrored, scene).calm()  # without the checks of the mirror


def dies(goal: str, dies_at: int, *, behind: bool, ends: str) -> bool:
    """Kill the tool at that write, and let another run end in `ends`. False if the tool came to its end first."""
    scene = begun(goal)
    since_ms = scene.world.now_ms
    died = False
    try:
        scene.switch(goal, LossyTree(scene.world.ensemble, dies_at, behind=behind))
    except ToolDiedError:
        died = True
        scene.world.run_for(5_000)
    come_to(scene, ends)
    judged(scene, ends, since_ms)
    return died


@pytest.mark.parametrize(("goal", "at", "behind"), SHORT)
def test_f157_members_read_on_wherever_the_switch_dies_and_another_run_finishes_it(
    goal: str, at: int, behind: bool
) -> None:
    assert dies(goal, at, behind=behind, ends=goal)


@pytest.mark.parametrize(("goal", "at", "behind"), SHORT)
def test_f157_members_read_on_wherever_the_switch_dies_and_the_other_direction_gives_it_up(
    goal: str, at: int, behind: bool
) -> None:
    assert dies(goal, at, behind=behind, ends=OTHER[goal])


@pytest.mark.long
@pytest.mark.parametrize("ends", ["kafka", "zookeeper"])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("goal", ["kafka", "zookeeper"])
def test_f157_every_write_of_the_switch_may_be_the_last_one_of_its_run(goal: str, behind: bool, ends: str) -> None:
    for at in range(1, WRITES_MAX):
        if not dies(goal, at, behind=behind, ends=ends):
            break
    assert {"kafka": 4, "zookeeper": 2}[goal] <= at - 1 < WRITES_MAX - 1


@pytest.mark.parametrize("loses_at", [1, 2, 3])
def test_f157_a_run_that_loses_an_answer_goes_on_by_what_it_reads(loses_at: int) -> None:
    scene = begun("kafka")
    since_ms = scene.world.now_ms
    assert scene.switch("kafka", LossyTree(scene.world.ensemble, loses_at=loses_at)) is True
    judged(scene, "kafka", since_ms)


@pytest.mark.parametrize("again", [False, True])
def test_f207_an_accepted_answer_without_topics_drops_nothing_until_another_comes(again: bool) -> None:
    """The broker had just started and knew no topic. Then no broker answers for minutes. `again`: the tree has a mirror
    already."""
    scene = begun("kafka")
    world = scene.world
    if again:
        for source in ("kafka", "zookeeper"):
            scene.switch(source)
            scene.settled(source)
    nothing = scene.cluster()
    since_ms, scene.metadata.away = world.now_ms, True
    scene.switch("kafka", told=replace(nothing, cluster=replace(nothing.cluster, topics={})))
    world.run_for(3 * DELETED_MS)
    assert (world.events("topic_dropped"), world.events("stop_sent", since_ms)) == ([], [])
    scene.metadata.away = False
    judged(scene, "kafka", since_ms)


def elects(transaction: Transaction) -> bool:
    return any(isinstance(write, CreateNode) and write.path == DRAFT.coordinator for write in transaction.writes)


@on_seeds()
def test_f157_a_coordinator_elected_as_the_switch_began_serves_under_neither_epoch(
    seed: int,
) -> None:
    """It did not hear of its election before the switch raised the epoch. So the epoch that it reads is not its own."""
    scene = begun("kafka", seed)
    world, ensemble = scene.world, scene.world.ensemble
    standby = scene.standby()
    world.strike(standby, elects, "reply_lost")
    world.crash(scene.leader(), exact=True, restart_after_ms=None)
    world.run_until(lambda: world.struck and ensemble.stat(DRAFT.coordinator) is not None, what="the other is elected")
    begun_ms = world.now_ms
    with pytest.raises(ToolDiedError):
        scene.switch("kafka", ToolTree(ensemble, 1, behind=True))
    world.run_for(10_000)
    assert world.events("elected", begun_ms) == []
    scene.switch("zookeeper")
    world.run_until(lambda: bool(world.events("elected", begun_ms)), what="it is elected again")
    scene.settle()
    [elected] = world.events("elected", begun_ms)
    assert str(elected.fields["epoch"]).encode() == ensemble.data(EPOCH)
    super(Mirrored, scene).calm()


@cache
def switching_storm(seed: int) -> Switched:
    """One seed: no offset is lost, no partition has two readers, however often the source is switched."""
    drawn = Random(f"switch {int(seed)}")
    source, goal = drawn.choice(("zookeeper", "kafka")), drawn.choice(("zookeeper", "kafka"))
    scene = Switched(seed, None, source=source, coordinators=2, consumers=3, topics={"t": 5, "u": 3})
    world, metadata = scene.world, scene.metadata
    if drawn.random() < 0.5:
        scene.share()

    def trouble() -> None:
        if world.stormy:
            metadata.away = drawn.random() < 0.15
            metadata.partial_rate = drawn.choice((0.0, 0.0, 0.2))
            for broker in metadata.lag_ms:
                metadata.lag_ms[broker] = drawn.choice((0, 0, 300, 3_000, 10_000))

    def later() -> int:
        return world.now_ms + drawn.randrange(STORM_MS)

    for _ in range(6):
        world.at(later(), trouble)
    switchers(scene, drawn)
    deleted_ms = later()
    world.at(deleted_ms, partial(scene.delete_topic, "u"))
    gap_ms = int(drawn.random() ** 4 * 1.5 * DELETED_MS)
    world.at(deleted_ms + gap_ms, partial(scene.create_topic, "u", drawn.randint(1, 4)))
    world.at(later(), partial(scene.grow, "t", 7))
    world.at(later(), partial(scene.join, "late"))
    world.at(later(), partial(scene.create_topic, "v", 2))
    world.storm(2_500)
    world.at(world.now_ms, scene.mend)
    come_to(scene, goal)
    if goal == "kafka":
        scene.calm()
    else:
        super(Mirrored, scene).calm()
    return scene


@pytest.mark.parametrize("seed", seeds(12))
def test_a_storm_in_which_people_switch_the_source_ends_in_a_calm(seed: int) -> None:
    switching_storm(seed)


def test_the_storm_reaches_switches_to_both_sources_that_died_and_that_were_refused() -> None:
    runs = [run for seed in range(10) for run in switching_storm(seed).runs]
    assert {(goal, how) for goal in OTHER for how in ("done", "died")} <= set(runs)
    assert any("the two sources differ" in how for _, how in runs)
