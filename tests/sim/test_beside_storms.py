"""Storms of groups in which members of ours and old members work side by side, come, go and switch the group's mode.

Violations of the rules by old code are named and counted (`tests/sim/old_rules.py`); our code never breaks a rule.
After the storm everything is read, except partitions that old members gave up; after a poke these are read, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.sim.actors import GROUP
from tests.sim.adoption_tool import NotAdopted, ReleasedForAWhile
from tests.sim.beside_scene import BesideScene
from tests.sim.old_settings import PATIENCE, V08, VERSIONS
from tests.sim.options import seeds
from tests.sim.scenarios import STORM_MS
from tests.sim.script import ScriptWorld
from zkcoord.core.adoption import Adoption
from zkcoord.core.mode import Mode
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.legacy.planning import RANGE, ROUND_ROBIN
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode

SEEDS = 40
TOPICS = {"t": 6, "u": 3}
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"topics": {"t": 2, "u": 1}},
    {"topics": {"t": 1}},
    {"topics": {"u": 3}},
    {"wildcard": "t|u"},
)
OFFSETS_TOPIC = "__consumer_offsets"
TAKES_INTERNAL = {"wildcard": f"t|u|{OFFSETS_TOPIC}"}
STEPS = 5_000
COMMITS_MS = 2_000
PYKAFKA, UNREADABLE = "h:12345678-1234-1234-1234-123456789abc", "g_old-1416335000123-1a2b3c4d"
OLD_LEFTOVERS = ("gave up", "does not notice that its owner node is gone")


class Reached(NamedTuple):
    """The result of a storm."""

    scene: BesideScene
    modes: tuple[Mode, ...]  # the mode at the end, and all modes on the way
    left_over: tuple[str, ...]
    releases: int  # releases after which the group was adopted again
    adoption: Adoption


@cache
def beside(seed: int) -> Reached:
    """One seed: old members and members of ours, with no, one or two coordinators. Some members come, some go."""
    drawn, habits = Random(f"beside {int(seed)}"), Random(f"habits {int(seed)}")
    strategy, version = drawn.choice((RANGE, RANGE, ROUND_ROBIN)), drawn.choice(VERSIONS)
    world = ScriptWorld(seed, None)
    adoption = adoption_of(habits, strategy, version)
    scene = BesideScene(world, TOPICS, coordinators=drawn.choice((0, 1, 1, 2)), adoption=adoption)
    modes: dict[Mode, None] = {}
    olds, ours = drawn.choice(((1, 1), (1, 2), (2, 1), (2, 2), (3, 0), (0, 3)))

    def start_old(name: str, *, restarts: bool = True, **settings: Any) -> None:
        settings |= {"version": version, "strategy": strategy, "commit_interval_ms": COMMITS_MS}
        settings |= {"retries": adoption.retries, "backoff_ms": adoption.backoff_ms}
        settings |= {"exclude_internal": adoption.exclude_internal}
        if strategy == RANGE:
            settings = {**drawn.choice(SUBSCRIPTIONS), **settings}
        elif version != V08:  # round robin of 0.8.2 refuses groups whose members have different subscriptions
            settings = {**habits.choice(SUBSCRIPTIONS), **settings}
        scene.start_old(name, restarts=restarts, **settings)

    def all_leave(kind: str) -> None:
        for name in list(world.processes):
            if name.startswith(kind):
                scene.ask_to_leave(name)

    def look(_txn: object) -> None:
        mode = scene.mode()
        if mode is not None:
            modes[mode] = None

    world.ensemble.on_applied.append(look)
    for n in range(olds):
        start_old(f"old{n}")
    for n in range(ours):
        scene.enter(f"consumer{n}")
    for action in (
        partial(start_old, "oldlate"),
        partial(scene.enter, "consumerlate"),
        partial(scene.leave_if_there, drawn.choice(("old0", "consumer0"))),
        partial(scene.write_topic, "t", TOPICS["t"] + 2),
        partial(scene.write_topic, "u", TOPICS["u"]),
        *drawn.choice(([], [partial(all_leave, "old")], [partial(all_leave, "consumer")])),
    ):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    if drawn.random() < 0.4:
        stranger_comes_and_goes(world, drawn)
    if version != V08 or strategy == RANGE:
        takes_internal_topics(scene, habits, start_old, goes=not adoption.exclude_internal)
    guard = NotAdopted(scene)
    if drawn.random() < 0.4:
        released_for_a_while(scene, drawn, replace(DEFAULT_RECORD, adoption=adoption))
    world.storm(STEPS)
    scene.bring_coordinator()
    world.rest_checks.append(lambda: [why for why in _told(scene) if not _of_old_code(why, strategy)])
    scene.calm()
    left_over = tuple(_told(scene))
    world.rest_checks.append(lambda: _told(scene))
    scene.poke()
    scene.calm()
    return Reached(scene, tuple(modes), left_over, guard.reopened, adoption)


def adoption_of(habits: Random, strategy: str, version: str) -> Adoption:
    """The adoption of a group whose old members wait for as long as is drawn."""
    retries, backoff_ms = habits.choice(PATIENCE)
    return Adoption(
        offsets="zookeeper",
        strategy=strategy,
        kafka=version,
        retries=retries,
        backoff_ms=backoff_ms,
        auto_commit_interval_ms=COMMITS_MS,
        exclude_internal=habits.random() < 0.5,
    )


def takes_internal_topics(scene: BesideScene, habits: Random, start_old: Callable[..., None], *, goes: bool) -> None:
    """An old member joins whose wildcard matches a topic of Kafka's own. `goes`: it takes this topic, so the group is
    observed; then it dies later."""
    world = scene.world
    scene.write_topic(OFFSETS_TOPIC, 2)
    comes_ms, goes_ms = sorted(int(habits.random() * STORM_MS) for _ in range(2))
    world.at(world.now_ms + comes_ms, partial(start_old, "oldall", restarts=not goes, **TAKES_INTERNAL))
    if goes:
        world.at(world.now_ms + goes_ms, partial(scene.kill, "oldall"))


def stranger_comes_and_goes(world: ScriptWorld, drawn: Random) -> None:
    """For a part of the storm there is a registration that nobody can share a group with, or that nobody can parse."""
    name, data = drawn.choice(((PYKAFKA, b"t"), (UNREADABLE, b"")))
    path = f"{LEGACY.ids(GROUP)}/{name}"
    comes_ms, goes_ms = sorted(int(drawn.random() * STORM_MS) for _ in range(2))
    world.at(world.now_ms + comes_ms, lambda: world.ensemble.operate(CreateNode(path, data)))
    world.at(world.now_ms + goes_ms, lambda: world.ensemble.operate(DeleteNode(path, ANY_VERSION)))


def released_for_a_while(scene: BesideScene, drawn: Random, record: GroupRecord) -> None:
    """The group is released during the storm, and adopted again before the end of it. Then some members of ours join
    again."""
    world = scene.world
    from_ms, until_ms = sorted(world.now_ms + int(drawn.random() * STORM_MS) for _ in range(2))

    def again() -> None:
        scene.decide_on(record)
        scene.enter("consumer8", "consumer9")

    ReleasedForAWhile(scene, from_ms, until_ms, again)


def _told(scene: BesideScene) -> list[str]:
    """The partitions that are not read as they should be, except those that wait for the end of an old member that
    forgot an owner node."""
    excused = scene.rules.behind_forgotten()
    return [f"{p}: {why}" for p, why in scene.rules.unsettled().items() if p not in excused]


def _of_old_code(why: str, strategy: str) -> bool:
    """True for what only a poke ends. Round robin deals the partitions of all topics together, but an old member
    watches only topics that it reads: when another one grows, it keeps its earlier share."""
    return why.endswith(OLD_LEFTOVERS) or (strategy == ROUND_ROBIN and f" does not own it: {GROUP}_old" in why)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_of_old_members_and_ours_ends_in_a_calm(seed: int) -> None:
    beside(seed)


def test_such_storms_switch_modes_and_meet_what_old_members_do() -> None:
    """Otherwise the test above would prove nothing."""
    modes, excused, releases = Counter[tuple[Mode, ...]](), Counter[str](), 0
    habits, reasons = set[object](), list[str]()
    for seed in range(SEEDS):
        reached = beside(seed)
        modes[reached.modes] += 1
        releases += reached.releases
        excused += reached.scene.rules.excused
        told = reached.adoption
        habits |= {(told.retries, told.backoff_ms), (told.strategy, told.exclude_internal)}
        reasons += [each.fields["why"] for each in reached.scene.world.events("mode_changed")]
    assert set(Mode) == {mode for seen in modes for mode in seen}
    assert excused
    assert releases >= 2
    assert habits == {*PATIENCE, *product((RANGE, ROUND_ROBIN), (True, False))}
    assert any("wildcards take Kafka's internal topics" in why for why in reasons)
