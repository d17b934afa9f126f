"""Scenes that several tests play: a group of real loops in a world."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from tests.sim import checkers
from tests.sim.actors import GROUP, ConsumerFactory, ProductActor, coordinator, make_topics, topic_json
from tests.sim.application import Logs
from tests.sim.batches import BatchApplication, Sink
from tests.sim.field import Field, parse_json
from tests.sim.process import SimProcess
from tests.sim.world import World
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.topics import DELETED_MS
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.paths import TOPICS as BROKER_TOPICS
from zkcoord.tree.record import encode_record
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode

TOPICS = {"t": 8, "u": 3}
RECORD, STATE = DRAFT.record(GROUP), DRAFT.state(GROUP)
ADOPTED = replace(DEFAULT_RECORD, adoption=Adoption(offsets="zookeeper", strategy="range", kafka="0.11"))
CALM_STEPS = 60_000
STORM_MS = 20_000  # about how long a storm lasts; later events come in the calm


class Scene:
    """A world with topics, coordinators and consumers of one group, every invariant checked from the start."""

    def __init__(
        self,
        world: World,
        *,
        coordinators: int = 2,
        consumers: int = 3,
        topics: Mapping[str, int] = TOPICS,
        rebalance_timeout_ms: int = 8_000,
        hold_ms: int = 0,
        coordinates: Callable[[SimProcess], ProductActor] = coordinator,
        batches: bool = False,
    ) -> None:
        self.world = world
        self.field: Field = checkers.watch(world)
        if world.layout.adopts:
            world.ensemble.ensure(RECORD, encode_record(ADOPTED))
        self.world.reads_disturb = False
        make_topics(world, topics)
        self._topics = topics
        self.logs = Logs(world)
        self.consumers = ConsumerFactory(self.logs, dict.fromkeys(topics, 1), rebalance_timeout_ms=rebalance_timeout_ms)
        if batches:
            self.consumers.announce(BatchApplication)
            self.sink = Sink(world, lambda group, topic: self.field.incarnations.get((group, topic), 0))
            world.rest_checks.append(self.sink.complete)
        if hold_ms:
            self.consumers.are_static(hold_ms)
        self.begins()
        for n in range(coordinators):
            world.spawn(f"coordinator{n}", coordinates)
        for n in range(consumers):
            self.join(f"consumer{n}")

    def begins(self) -> None:
        """Called before any program is spawned; a test can put something into the world here."""

    def join(self, name: str) -> None:
        """One more consumer starts."""
        self.world.spawn(name, self.consumers)

    def share(self) -> None:
        """Run until everything is read, each consumer has a share of it, and no command stands."""
        field, consumers = self.field, sum(bool(process.group) for process in self.world.processes.values())
        total = sum(self._topics.values())

        def shared() -> bool:
            if len(field.holdings) < total or any(field.commands.values()):
                return False
            return len({held.consumer for held in field.holdings.values()}) == consumers

        self.world.run_until(shared, what="a share for each")

    def calm(self) -> None:
        """No more faults; everything must come to rest."""
        self.world.calm(CALM_STEPS)

    def leave(self, name: str) -> None:
        """A consumer is asked to leave, as by SIGTERM."""
        process = self.world.processes[name]
        if process.running:
            process.inbox.put(Request("stop", None, Future()))

    def record(self) -> dict[str, Any]:
        """The group's record."""
        return parse_json(self.world.ensemble.data(RECORD) or b"")

    def state(self) -> dict[str, Any]:
        """The group's state."""
        return parse_json(self.world.ensemble.data(STATE) or b"")

    def held(self) -> list[TopicPartition]:
        """The partitions that members of the group hold."""
        return sorted(
            p for (g, p), held in self.field.holdings.items() if (g, held.consumer) in self.field.registrations
        )

    def edit_record(self, **values: Any) -> None:
        """Change values in the group's record, as an operator does; do nothing when there is no record yet."""
        stat = self.world.ensemble.stat(RECORD)
        if stat is not None:
            text = json.dumps({**self.record(), **values}).encode()
            self.world.ensemble.operate(SetNode(RECORD, text, stat.version))

    def request(self, name: str, run: str = "", **fields: Any) -> None:
        """A tool writes a request into the record."""
        request = {"who": "test", "run": run or f"{name}-{self.world.now_ms}", **fields}
        self.edit_record(wish={**self.record().get("wish", {}), name: request})

    def answered(self, name: str) -> bool:
        """True when the record has an answer to that request."""
        return name in (self.record().get("done") or {})

    def resume(self) -> None:
        """A tool takes back a hold and a pause."""
        self.edit_record(wish={**self.record().get("wish", {}), "hold": None, "pause": None})

    def stopped(self, run: str) -> bool:
        """True when the record lets the tool of this reset write offsets."""
        return bool((self.record().get("done") or {}).get("reset") == {"run": run, "state": "stopped"})

    def end_reset(self) -> None:
        """The tool has written all offsets."""
        self.edit_record(wish={**self.record().get("wish", {}), "reset": None})

    def delete_topic(self, topic: str) -> None:
        """Delete the topic."""
        self.world.trace("a broker deletes", topic)
        self.world.ensemble.operate(DeleteNode(f"{BROKER_TOPICS}/{topic}", ANY_VERSION))

    def create_topic(self, topic: str, partitions: int, *, topic_id: str | None = None) -> None:
        """Create a topic; if it existed before, its logs are empty now."""
        self.world.trace("a broker creates", topic, partitions)
        data = topic_json(partitions, topic_id)
        if not self.world.ensemble.operate(CreateNode(f"{BROKER_TOPICS}/{topic}", data)).reason:
            self.logs.empty(topic)

    def incarnation(self, topic: str) -> int:
        """The number of a topic's incarnation, by the group's mark; 0: no mark."""
        return int(
            parse_json(self.world.ensemble.data(self.world.layout.mark(GROUP, topic)) or b"").get("incarnation", 0)
        )

    def grow(self, topic: str, partitions: int) -> None:
        """A broker gives the topic this many partitions; nothing happens when the topic is gone."""
        self.world.ensemble.operate(SetNode(f"{BROKER_TOPICS}/{topic}", topic_json(partitions), ANY_VERSION))


def storm(seed: int, coordinates: Callable[[SimProcess], ProductActor] = coordinator) -> World:
    """One seed: two coordinators and three consumers in a storm, then the calm; returns the world at rest.

    In every other group each consumer has its share before the storm. During the storm a consumer joins, another one
    leaves, a topic grows, and another topic is deleted and may be created again.
    """
    world = World(seed)
    scene = Scene(world, coordinates=coordinates)
    if seed % 2:
        scene.share()
    kinds = tuple(kind for kind in ("eager", "cooperative") if world.rng.random() < world.options.eager_rate)
    for kind in kinds:
        world.at(world.now_ms + int(world.rng.random() * STORM_MS), partial(scene.edit_record, rebalance=kind))
    for name in ("hold", "pause", "rebalance"):
        if world.rng.random() < world.options.request_rate:
            world.at(world.now_ms + int(world.rng.random() * STORM_MS), partial(scene.request, name))
    if world.options.request_rate and world.rng.random() < 0.7:
        world.at(world.now_ms + int((0.5 + world.rng.random() / 2) * STORM_MS), scene.resume)
    for action in (
        lambda: scene.join("late"),
        lambda: scene.leave("consumer0"),
        lambda: scene.grow("t", TOPICS["t"] + 2),
        lambda: scene.delete_topic("u"),
        lambda: scene.create_topic("u", TOPICS["u"]),
    ):
        world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
    world.storm(1_500)
    scene.calm()
    return world


def announcing_storm(seed: int) -> Scene:
    """One seed of a group that announces its ranges. Every program may die anywhere, and its sink must be exact.

    In every other seed the topic is deleted while ranges are announced, and created again, soon or late.
    """
    world = World(seed)
    scene = Scene(world, topics={"t": 5}, batches=True, hold_ms=(0, 0, 8_000)[seed % 3])
    if seed % 2:
        scene.share()
    if world.rng.random() < world.options.eager_rate:
        world.at(world.now_ms + int(world.rng.random() * STORM_MS), partial(scene.edit_record, rebalance="eager"))
    for action in (
        lambda: scene.join("late"),
        lambda: scene.leave("consumer0"),
        lambda: scene.grow("t", 6),
        lambda: scene.request("pause"),
    ):
        world.at(world.now_ms + int(world.rng.random() * STORM_MS), action)
    world.at(world.now_ms + STORM_MS, scene.resume)
    drawn = Random(f"topics {seed}")
    if drawn.random() < 0.5:
        deleted_ms = world.now_ms + int(drawn.random() * STORM_MS)
        partitions, gap_ms = drawn.randint(1, 6), int(drawn.random() ** 6 * 2 * DELETED_MS)
        world.at(deleted_ms, lambda: scene.delete_topic("t"))
        world.at(deleted_ms + gap_ms, lambda: scene.create_topic("t", partitions))
    world.storm(2_500)
    scene.calm()
    return scene


def storm_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """Values by which two runs of one seed are compared: random numbers, every write, steps and time."""
    return storm(seed).random_fingerprint()
