"""A group that goes on while people change where topics come from; supervisors restart the coordinators with the new
source."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from tests.sim.actors import ProductActor, coordinator
from tests.sim.metadata import CLUSTER
from tests.sim.mirror_scene import MIRRORED, Mirrored
from tests.sim.options import Options
from tests.sim.process import SimProcess
from tests.sim.script import QUIET
from tests.sim.store_tool import ToolDiedError, ToolTree
from zkcoord.core.topic_mirror import Mirror, Topic
from zkcoord.errors import ZkcoordError
from zkcoord.migrate import current, upgrade
from zkcoord.migrate.topics import ClusterTopics, TopicSwitch
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import BROKERS, CLUSTER_ID, DRAFT
from zkcoord.tree.schema import Schema
from zkcoord.tree.writes import Transaction

SOURCES = {"zookeeper": DRAFT, "kafka": MIRRORED}
SUPERVISED_MS = 700  # interval at which supervisors look


class LossyTree(ToolTree):
    """A tool's tree whose `loses_at`-th write has an unknown outcome."""

    def __init__(self, *given: Any, loses_at: int | None = None, **more: Any) -> None:
        super().__init__(*given, **more)
        self._loses_at = loses_at

    def commit(self, transaction: Transaction) -> CommitDone:
        done = super().commit(transaction)
        return CommitDone(0, Outcome.UNKNOWN) if self.tried == self._loses_at else done


class Switched(Mirrored):
    """Coordinators are started with the source that the schema names. They end when the schema names another source."""

    def __init__(self, seed: int, options: Options | None = QUIET, *, source: str = "zookeeper", **size: Any) -> None:
        self.runs: list[tuple[str, str]] = []  # goal, and how the run ended
        super().__init__(seed, options, layout=SOURCES[source], **size)
        self.world.run_until(lambda: self._schema() is not None, what="a tree")
        upgrade(ToolTree(self.world.ensemble), run_id="setup")
        self._supervise()

    def begins(self) -> None:
        """Kafka's brokers are registered in ZooKeeper, too."""
        super().begins()
        ensemble = self.world.ensemble
        ensemble.ensure("/cluster", b"")
        ensemble.ensure(CLUSTER_ID, b'{"version":"1","id":"%s"}' % CLUSTER.encode())
        for number in self.metadata.brokers:
            ensemble.ensure(f"{BROKERS}/{number}", b'{"version":5,"host":"h","port":9092}')

    def _coordinate(self, process: SimProcess) -> ProductActor:
        return coordinator(process, layout=SOURCES[self.source()], kafka=self.metadata.connect(process))

    def _schema(self) -> Schema | None:
        return current(ToolTree(self.world.ensemble))

    def source(self) -> str:
        """The source of topics that the schema names."""
        schema = self._schema()
        return self.world.layout.source if schema is None else schema.topics

    def _supervise(self) -> None:
        """Start coordinators that have ended again, with the options that their error names."""
        self.world.layout = SOURCES[self.source()]
        for name, process in sorted(self.world.processes.items()):
            actor = process.actor
            if name.startswith("coordinator") and isinstance(actor, ProductActor) and actor.loop.fatal is not None:
                self.world.crash(name, exact=True, restart_after_ms=10)
        self.world.at(self.world.now_ms + SUPERVISED_MS, self._supervise)

    def cluster(self, broker: int = 0) -> ClusterTopics:
        """The cluster as this broker tells a tool."""
        seen = self.metadata.seen(broker)
        topics = {
            name: Topic(topic_id=one.topic_id, partitions=one.partitions)
            for name, one in seen.items()
            if one.topic_id is not None
        }
        found = Mirror(cluster_id=CLUSTER, topics=topics, brokers=self.metadata.brokers, whole=True)
        return ClusterTopics(cluster=found, nameless=tuple(sorted(seen.keys() - topics.keys())))

    def switch(
        self, goal: str, tree: ToolTree | None = None, broker: int = 0, told: ClusterTopics | None = None
    ) -> bool:
        """One run of the tool. `told`: Kafka's answer; its differences from the tree are accepted."""
        run_id = f"ann-{len(self.runs)}"
        tree = tree or ToolTree(self.world.ensemble)
        self.runs.append((goal, "died"))
        try:
            ask = partial(self.cluster, broker) if told is None else lambda: told
            done = TopicSwitch(tree=tree, goal=goal, ask=ask, run_id=run_id, accepts=told is not None).carry_out()
        except ZkcoordError as error:
            self.runs[-1] = goal, str(error)
            raise
        finally:
            self.world.trace("switch", *self.runs[-1])
        self.runs[-1] = goal, "done" if done else "nothing to do"
        return done

    def settled(self, source: str) -> None:
        """Run until a coordinator of this source serves."""
        assert self.source() == source
        session = self.field.epoch_session

        def serves() -> bool:
            now = self.field.epoch_session
            return now is not None and now is not session

        if session is None or self.world.layout is not SOURCES[source]:
            self.world.run_until(serves, what=f"a coordinator with topics from {source} serves")
        self.settle()


def switchers(scene: Switched, drawn: Random) -> None:
    """While the storm lasts, people run the tool in either direction. Some runs die, or lose an answer."""

    def look() -> None:
        if not scene.world.stormy:
            return
        dies_at, loses_at = drawn.choice((None, None, 1, 2, 3, 4)), drawn.choice((None, None, 1, 2, 3))
        tree = LossyTree(scene.world.ensemble, dies_at, behind=drawn.random() < 0.5, loses_at=loses_at)
        with suppress(ToolDiedError, ZkcoordError):  # the next run takes over from it
            scene.switch(drawn.choice(tuple(SOURCES)), tree, drawn.choice(sorted(scene.metadata.brokers)))
        scene.world.at(scene.world.now_ms + drawn.randrange(200, 6_000), look)

    scene.world.at(scene.world.now_ms + drawn.randrange(2_000), look)


def come_to(scene: Switched, goal: str) -> None:
    """Run the tool until it has reached the goal. It can do so once Kafka and ZooKeeper do not differ."""

    def done() -> bool:
        try:
            scene.switch(goal)
        except ZkcoordError:
            return False
        schema = scene._schema()
        return schema is not None and schema.migration is None and schema.topics == goal

    deadline_ms = scene.world.now_ms + 200_000
    while not done():
        assert scene.world.now_ms < deadline_ms, "the switch does not come to its end"
        scene.world.run_for(2_000)
