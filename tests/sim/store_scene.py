"""Groups that keep offsets in Kafka, too: a scene with an offset log, a scripted tool that changes the group's store,
and storms."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.field import parse_json
from tests.sim.log_checkers import Ledger
from tests.sim.offset_log import TIMEOUT_MS, LogClient, LogFaults, OffsetLog
from tests.sim.options import Options
from tests.sim.scenarios import STORM_MS, Scene
from tests.sim.script import QUIET, Script, standing
from zkcoord.core.model import TopicPartition

STORES = ("zookeeper", "dual", "kafka")
NEIGHBOURS = {"zookeeper": ("dual",), "dual": ("zookeeper", "kafka"), "kafka": ("dual",)}
CHECKPOINT_MS = 60_000
PATIENCE_MS = TIMEOUT_MS + 100
STORM_STEPS = 2_500
TOOL_MS = 500


class Steps(Scene):
    """A group whose members can use all three stores, and a scripted tool that changes its store."""

    log: OffsetLog
    ledger: Ledger

    def store(self) -> tuple[str, int]:
        """The store that the record names, and the number of its step."""
        offsets = self.record().get("offsets") or {}
        return str(offsets.get("store", "zookeeper")), int(offsets.get("step", 0))

    def told(self) -> bool:
        """True when each member's status says that it uses the record's store, and no outstanding start names another
        store."""
        name, step = self.store()
        wanted = {"name": name, "step": step}
        for group, consumer in self.field.registrations:
            status = parse_json(self.world.ensemble.data(self.field.channel(group, consumer)) or b"")
            uses = status.get("store", {})
            if uses != wanted and (name != "zookeeper" or uses.get("name", "") not in ("", "zookeeper")):
                return False
            for sequence in self.field.commands.get((group, consumer), {}):
                path = f"{self.field.channel(group, consumer)}/{sequence}"
                if parse_json(self.world.ensemble.data(path) or b"").get("offsets", "zookeeper") != name:
                    return False
        return True

    def step_to(self, store: str) -> None:
        """Write the next step into the record."""
        self.world.trace("a tool moves the group to", store)
        self.edit_record(offsets={"store": store, "step": self.store()[1] + 1})
        assert self.store()[0] == store, "there is no record yet"

    def move(self, *stores: str) -> None:
        """Change the group's store, step by step. Each step is done before the next one begins."""
        for store in stores:
            self.step_to(store)
            self.world.run_until(self.told, what=f"everybody has come to {store}")

    def wander(self, drawn: Random, steps: int) -> None:
        """In the background, take this many steps between neighbouring stores, each as soon as the last one is done. No
        step leads to `zookeeper` while an offset that counts is only in Kafka, for example that of a dead owner. (The
        real tool sets its node.)"""

        def look(left: int) -> None:
            if left and not self.told():
                self.world.at(self.world.now_ms + TOOL_MS, partial(look, left))
            elif left:
                goal = drawn.choice(NEIGHBOURS[self.store()[0]])
                self.step_to(goal if goal != "zookeeper" or self.nodes_count() else "kafka")
                self.world.at(self.world.now_ms + TOOL_MS, partial(look, left - 1))

        self.world.at(self.world.now_ms + TOOL_MS, partial(look, steps))

    def nodes_count(self) -> bool:
        """True when, for every partition with an offset, the node has the offset that counts."""
        ensemble, layout = self.world.ensemble, self.world.layout
        counted = {p: self.ledger.counted(p) for p in self.partitions()}
        return all(
            offset is None or ensemble.data(layout.offset(GROUP, p)) == str(offset).encode()
            for p, offset in counted.items()
        )

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the existing topics."""
        return standing(self.world)


class StoreScene(Steps, Script):
    """A group whose members can use all three stores. `log` has its commits in Kafka, `ledger` checks both stores."""

    def __init__(
        self,
        seed: int,
        options: Options | None = QUIET,
        *,
        faults: LogFaults | None = None,
        checkpoint_ms: int = CHECKPOINT_MS,
        consumers: int = 3,
        **size: Any,
    ) -> None:
        super().__init__(seed, options, consumers=0, **size)
        self.log = OffsetLog(self.world, faults=faults)
        self.ledger = Ledger(self.world, self.field, self.log)
        connect = partial(LogClient, log=self.log)
        self.consumers.commit_to(connect, checkpoint_ms=checkpoint_ms, patience_ms=PATIENCE_MS)
        for n in range(consumers):
            self.join(f"consumer{n}")

    # -- the present state

    def in_kafka(self, partition: TopicPartition) -> int | None:
        """The partition's offset in Kafka."""
        commit = self.log.commits.get(partition)
        return None if commit is None else commit.offset

    def node(self, partition: TopicPartition) -> int:
        """The partition's offset in ZooKeeper."""
        data = self.world.ensemble.data(self.world.layout.offset(GROUP, partition))
        assert data is not None, partition
        return int(data)


def begin_in(seed: int, store: str, options: Options | None = QUIET, **size: Any) -> StoreScene:
    """Run until the group has settled and keeps its offsets in this store."""
    scene = StoreScene(seed, options, **size)
    scene.settle()
    scene.move(*{"zookeeper": (), "dual": ("dual",), "kafka": ("dual", "kafka")}[store])
    return scene


def store_storm(seed: int, store: str = "", steps: int | None = None) -> StoreScene:
    """One seed: a group in this store (None: any store) in a storm over ZooKeeper and Kafka, then the calm.

    During the storm a tool moves the group between the stores, a consumer joins, and another one leaves.
    """
    drawn = Random(f"stores {int(seed)}")
    store = store or drawn.choice(STORES)
    steps = drawn.choice((0, 2, 6)) if steps is None else steps
    scene = begin_in(seed, store, None, topics={"t": 6}, hold_ms=drawn.choice((0, 0, 8_000)))
    world = scene.world
    scene.log.faults = LogFaults.drawn(seed)
    scene.log.trouble(world.now_ms, world.now_ms + STORM_MS, scene.partitions())
    scene.wander(drawn, steps)
    for action in (lambda: scene.join("late"), lambda: Script.leave(scene, "consumer0")):
        world.at(world.now_ms + int(drawn.random() * STORM_MS), action)
    world.storm(STORM_STEPS)
    scene.calm()
    return scene
