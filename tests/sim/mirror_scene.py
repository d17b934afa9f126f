"""A group whose tree takes its topics from Kafka's metadata, and events of topics and brokers."""

from __future__ import annotations

from typing import Any

from tests.sim.actors import ProductActor, coordinator, topic_json
from tests.sim.field import parse_json
from tests.sim.metadata import CLUSTER, Metadata
from tests.sim.mirror_checker import MirrorChecker
from tests.sim.options import Options
from tests.sim.process import SimProcess
from tests.sim.script import QUIET, Script
from zkcoord.tree.paths import CLUSTER_ID, DRAFT, TOPICS, Layout, layout_named
from zkcoord.tree.writes import ANY_VERSION, DeleteNode, SetNode

MIRRORED = layout_named(DRAFT.name, "kafka")


class Mirrored(Script):
    """Every topic has an id. A topic that is created again has another id. Partitions have three replicas at most."""

    metadata: Metadata
    mirror_checker: MirrorChecker

    def __init__(self, seed: int, options: Options | None = QUIET, *, layout: Layout = MIRRORED, **size: Any) -> None:
        self._made = 0
        super().__init__(seed, options, layout=layout, coordinates=self._coordinate, **size)

    def name_cluster(self) -> None:
        """Write the cluster's id into ZooKeeper, beside the tree, as brokers do that use this ZooKeeper."""
        self.world.ensemble.ensure("/cluster", b"")
        self.world.ensemble.ensure(CLUSTER_ID, b'{"version":"1","id":"%s"}' % CLUSTER.encode())

    def _coordinate(self, process: SimProcess) -> ProductActor:
        return coordinator(process, kafka=self.metadata.connect(process))

    def begins(self) -> None:
        """Give the existing topics ids, and let Kafka answer."""
        for topic in self.world.ensemble.names(TOPICS):
            self._set(topic, len(self.partitions_of(topic)), self.new_id())
        self.metadata = Metadata(self.world)
        self.mirror_checker = MirrorChecker(self.world, MIRRORED, self.metadata)

    def new_id(self) -> str:
        """An id that no other topic has."""
        self._made += 1
        return f"id{self._made:020}"

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions that the topic has in the cluster."""
        return [p.partition for p in self.partitions() if p.topic == topic]

    def _set(self, topic: str, partitions: int, topic_id: str) -> None:
        self.world.ensemble.operate(SetNode(f"{TOPICS}/{topic}", topic_json(partitions, topic_id), ANY_VERSION))

    def create_topic(self, topic: str, partitions: int, *, topic_id: str | None = None) -> None:
        """A topic is created, with an id of its own."""
        super().create_topic(topic, partitions, topic_id=topic_id or self.new_id())

    def grow(self, topic: str, partitions: int) -> None:
        """The topic gets more partitions under the same id. Nothing happens when the topic is gone or already has that
        many."""
        topic_id = self._id_of(topic)
        if topic_id is not None and partitions > len(self.partitions_of(topic)):
            self._set(topic, partitions, topic_id)

    def _id_of(self, topic: str) -> str | None:
        topic_id = parse_json(self.world.ensemble.data(f"{TOPICS}/{topic}") or b"").get("topic_id")
        return None if topic_id is None else str(topic_id)

    def mirrored(self) -> dict[str, str]:
        """Topic -> id, in the mirror."""
        ensemble, above = self.world.ensemble, MIRRORED.topics
        names = sorted(ensemble.names(above)) if ensemble.stat(above) else []
        return {name: parse_json(ensemble.data(f"{above}/{name}") or b"")["topic_id"] for name in names}

    def calm(self) -> None:
        """Brokers answer well. Everything must come to rest, and the mirror must be equal to the cluster."""
        self.world.at(self.world.now_ms, self.mend)
        super().calm()
        known = {name: self._id_of(name) for name in sorted(self.world.ensemble.names(TOPICS))}
        if self.mirrored() != known:  # an answer was late, and the next question waits for that answer
            self.world.run_until(lambda: self.mirrored() == known, what="the mirror is as the cluster")
            super().calm()
        assert self.mirrored() == known
        for name in known:
            data = self.world.ensemble.data(MIRRORED.topic(name)) or b""
            assert sorted(map(int, parse_json(data)["partitions"])) == self.partitions_of(name)

    def mend(self) -> None:
        """All brokers answer, and none lags."""
        metadata = self.metadata
        metadata.away, metadata.silent_rate, metadata.partial_rate, metadata.no_ids = False, 0.0, 0.0, False
        metadata.lag_ms = dict.fromkeys(metadata.brokers, 0)
        metadata.answer_ms_max, metadata.list_ms = 5, 0
        metadata.no_controller_rate = metadata.few_brokers_rate = metadata.late_rate = metadata.stranger_rate = 0.0
        metadata.between_rate = 0.0
        metadata.strange_next.clear()

    def lose_mirror(self) -> None:
        """Remove the mirror from the tree."""
        ensemble = self.world.ensemble
        self.mirror_checker.lost = True
        for above in (MIRRORED.topics, MIRRORED.brokers):
            for name in sorted(ensemble.names(above)):
                ensemble.operate(DeleteNode(f"{above}/{name}", ANY_VERSION))
            ensemble.operate(DeleteNode(above, ANY_VERSION))
        self.mirror_checker.lost = False
