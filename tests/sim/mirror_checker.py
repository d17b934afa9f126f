"""Compares every change of the mirror of Kafka's topics with the cluster's state when the change is applied."""

from __future__ import annotations

from tests.sim.metadata import Metadata, Seen
from tests.sim.world import World
from tests.sim.zookeeper import Txn
from zkcoord.core.topic_mirror import Topic
from zkcoord.tree.paths import Layout
from zkcoord.tree.topic_mirror import decode_mirrored


class MirrorChecker:
    """Raises AssertionError at a change that no answer of this cluster can justify."""

    def __init__(self, world: World, layout: Layout, metadata: Metadata) -> None:
        self._world, self._above, self._metadata = world, layout.topics, metadata
        self._known: dict[str, Topic] = {}
        self._over: set[tuple[str, str]] = set()  # topics that have been replaced by one with another id
        self.lost = False  # the scene removed the mirror: its topics were not deleted
        world.ensemble.on_applied.append(self._applied)

    def _applied(self, txn: Txn) -> None:
        for path, _, _ in txn.changes:
            parent, _, name = path.rpartition("/")
            if parent == self._above:
                data = self._world.ensemble.data(path) if self._world.ensemble.stat(path) else None
                self._changed(name, None if data is None else decode_mirrored(data))

    def _changed(self, name: str, topic: Topic | None) -> None:
        before, now = self._known.get(name), self._metadata.now.get(name)
        present = None if now is None else now.topic_id
        if topic is None:
            gone = self._known.pop(name, None)
            assert self.lost or gone is None or gone.topic_id != present, f"{name} is removed, and the cluster has it"
            return
        self._known[name] = topic
        back = (name, topic.topic_id) in self._over and topic.topic_id != present
        assert not back, f"{topic.topic_id} of {name} was replaced, and is back"
        if before is not None and before.topic_id != topic.topic_id:
            assert before.topic_id != present, f"{before.topic_id} of {name} is replaced, and the cluster has it"
            self._over.add((name, before.topic_id))
        elif before is not None:
            assert before.partitions.keys() <= topic.partitions.keys(), f"{name} has fewer partitions under its id"
        assert topic.partitions.keys() <= self._ever(name, topic.topic_id), f"{name} never had all of {topic}"

    def _ever(self, name: str, topic_id: str) -> set[int]:
        """All partitions that the topic of this id has ever had."""
        found: set[int] = set()
        for state in self._metadata.states:
            seen: Seen | None = state.get(name)
            if seen is not None and seen.topic_id == topic_id:
                found |= seen.partitions.keys()
        return found
