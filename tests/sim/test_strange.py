"""Storms in strange conditions: tiny limits, a bad assignor of a user's own, rights that come and go, and more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tests.sim.actors import GROUP, ConsumerFactory, coordinator
from tests.sim.field import parse_json
from tests.sim.options import Options, seeds
from tests.sim.scenarios import Scene
from tests.sim.test_churn import LIFE, Churn
from tests.sim.world import World
from zkcoord.core import topics
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.model import TopicPartition
from zkcoord.core.retention import RETENTION_MS
from zkcoord.serving import role as coordinating
from zkcoord.shell import tracker
from zkcoord.shell.ports import Request
from zkcoord.tree import writes
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CreateNode

SEEDS = 60
STEPS = 2_500
LIMITS: tuple[tuple[ModuleType, str, tuple[int, ...]], ...] = (
    (writes, "ITEMS_MAX", (1, 2, 3, 1_000)),
    (coordinating, "DECISIONS_MAX", (1, 2, 5, 10_000)),
    (tracker, "READS_PER_REQUEST_MAX", (3, 10, 2_000)),
    (topics, "DROPS_MAX", (1, 20)),
)
STRANGE = (*LIFE, "close", "close", "nonsense", "change_subscription", "rules", "odd_rules", "rebalance", "join_odd")
MEMBERS_MAX = 7


class Strange(Churn):
    """The acts of `Churn`, and acts in strange conditions."""

    def close(self) -> None:
        """For a while nobody may read some node."""
        world, roots = self.world, (f"{DRAFT.group(GROUP)}/", "/zkcoord/groups", "/brokers")
        path = self._pick(sorted(path for path in world.ensemble.leader.nodes if path.startswith(roots)))
        world.trace("nobody may read", path)
        world.ensemble.closed.add(path)
        world.at(world.now_ms + int(world.rng.random() * 15_000), lambda: world.ensemble.closed.discard(path))

    def nonsense(self) -> None:
        """Somebody sends a command that nobody can parse."""
        channels = DRAFT.channels_of(GROUP)
        names = self.world.ensemble.names(channels) if self.world.ensemble.stat(channels) else ()
        if names:
            data = self._pick([b"nonsense", b'{"version":1,"option":"dance"}'])
            self.world.ensemble.operate(CreateNode(f"{channels}/{self._pick(names)}", data, sequential=True))

    def change_subscription(self) -> None:
        """A program registers a second time, with another subscription. Its first registration ends later."""
        world, ids = self.world, DRAFT.ids(GROUP)
        present = world.ensemble.names(ids) if world.ensemble.stat(ids) else ()
        names = [name for name in self._live("consumer") if world.processes[name].running]
        own = [(n, c) for n in names for c in present if c.startswith(f"{GROUP}_{n}-")]
        if not own or len(names) >= MEMBERS_MAX:
            return
        name, replaced = self._pick(own)
        fields: dict[str, Any] = {"replaces": replaced}
        if world.rng.random() < 0.5:
            fields["instance"] = name
        self._join(self._pick([{"t": 1}, {"t": 2, "u": 1}, {"u": 1}]), ("sticky", "range"), fields)
        process = world.processes[name]
        process.restarts = False
        later_ms = world.now_ms + int(world.rng.random() * 20_000)
        world.at(later_ms, lambda: process.inbox.put(Request("stop", None, Future())) if process.running else None)

    def odd_rules(self) -> None:
        """An operator chooses rare values of the policy."""
        pick, path = self._pick, DRAFT.record(GROUP)
        record = parse_json(self.world.ensemble.data(path) or b"")
        if record:
            policy = {"on_timeout": pick(["evict", "evict", "fail"]), "max_moves": pick([None, 1, 2])}
            record["policy"] = {**record.get("policy", {}), **policy, "initial_delay_ms": pick([0, 1_000, 5_000])}
            record["assignor"] = pick([None, "range", "roundrobin-1.0", "mad", "nobodys"])
            record["weights"] = pick([{}, {"t-0": 5, "u-1": 3}, {"t-1": 100}])
            record["racks"] = pick([{}, {"t-0": "a", "t-1": "b"}])
            self._set(path, json.dumps(record).encode())

    def rebalance(self) -> None:
        self.scene.request("rebalance")

    def join_odd(self) -> None:
        """A consumer joins with a rack, with a capacity, with an instance name that others have, or without pings."""
        if len(self._live("consumer")) < MEMBERS_MAX:
            subscription = self._pick([{"t": 1, "u": 1}, {"t": 3}, {"u": 2}])
            assignors = self._pick([("sticky", "range", "mad"), ("roundrobin-1.0", "sticky")])
            static, no_pings = {"instance": "x", "hold_ms": 5_000}, {"offers": frozenset[str]()}
            odd = [{"rack": "a"}, {"rack": "b", "capacity": 200}, static, no_pings]
            self._join(subscription, assignors, self._pick(odd))

    def _join(self, subscription: dict[str, int], assignors: tuple[str, ...], fields: dict[str, Any]) -> None:
        factory = ConsumerFactory(self.scene.logs, subscription, assignors=assignors)
        factory.registers(**fields)
        self.world.spawn(f"consumer{self.next_consumer}", factory)
        self.next_consumer += 1

    def begin(self) -> None:
        """Start the first members."""
        for n in range(4):
            self.scene.join(f"consumer{n}")

    def ordinary_rules(self) -> None:
        """Set a policy under which a group comes to rest."""
        self.no_more_probes()
        self.world.ensemble.closed.clear()
        policy = self.scene.record().get("policy", {})
        self.scene.edit_record(assignor=None, policy={**policy, "on_timeout": "evict"})


def mad(rng: Random, given: AssignorInput) -> dict[TopicPartition, str]:
    """A user's assignor that answers at random, and sometimes raises."""
    if rng.random() < 0.2:
        raise ValueError("mad")
    threads = {topic: [t for s in given.subscribers for t in s.thread_ids(topic)] for topic in given.partitions}
    return {
        TopicPartition(topic, number): threads[topic][int(rng.random() * len(threads[topic]))]
        for topic, numbers in given.partitions.items()
        for number in numbers
        if threads[topic]
    }


@contextmanager
def small_limits(rng: Random) -> Iterator[None]:
    """Lower the product's limits, so that a world of this size reaches them."""
    before = [(module, name, getattr(module, name)) for module, name, _ in LIMITS]
    for module, name, values in LIMITS:
        setattr(module, name, rng.choice(values))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def odd_scene(seed: int, acts: type[Strange], kinds: Sequence[str], *, batches: bool = False) -> Scene:
    """One seed of a storm with such acts and small limits, and the calm after it."""
    rng = Random(f"strange {seed}")
    world = World(seed, Options.drawn(rng, time_step_ms_max=rng.choice((5, 50))))
    assignors = {**ASSIGNORS, "mad": partial(mad, world.rng)}
    coordinates = partial(coordinator, assignors=assignors, retention_ms=rng.choice((10_000, RETENTION_MS)))
    with small_limits(rng):
        hold_ms = rng.choice((0, 0, 2_000, 20_000))
        scene = Scene(world, consumers=0, hold_ms=hold_ms, coordinates=coordinates, batches=batches)
        churning = acts(world, scene, kinds, coordinates)
        churning.begin()
        for _ in range(STEPS // 80):
            world.storm(80)
            churning.act()
        churning.ordinary_rules()
        scene.calm()
    return scene


def strange(seed: int) -> World:
    """One seed of such a storm."""
    return odd_scene(seed, Strange, STRANGE).world


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_storm_in_strange_conditions_ends_in_a_calm(seed: int) -> None:
    strange(seed)
