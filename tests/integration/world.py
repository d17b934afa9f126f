"""A tree that a test may spoil, real members in it, and everything that zkcoord has reported."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from zkcoord import Consumer, Coordinator, TopicPartition
from zkcoord.logs import EVENTS, plain
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import TOPICS
from zkcoord.tree.snapshot import Kind, Read, parents
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction, Write

PATIENCE_SECONDS = 120.0  # only what fails takes so long
TURN_SECONDS = 0.01


class Reports(logging.Handler):
    """All events, in order: name and fields, these as JSON has them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event."""
        event = getattr(record, "zkcoord_event", None)
        if event is not None:
            self.seen.append((event, plain(record.__dict__["zkcoord_fields"])))

    def of(self, event: str) -> list[dict[str, Any]]:
        """The fields of each event of this name."""
        return [fields for name, fields in list(self.seen) if name == event]

    def paths(self, event: str) -> dict[str, str]:
        """Path -> why, for events that tell both."""
        return {fields["path"]: fields["why"] for fields in self.of(event)}


class Member:
    """A consumer that reads nothing and notes what it was told."""

    def __init__(self, zookeeper: str, group: str, topics: Sequence[str], **settings: Any) -> None:
        self.begun: dict[TopicPartition, int] = {}  # where it was last told to start
        self.consumer = Consumer(
            *(zookeeper, group, topics),
            on_start=self.begun.update,
            on_stop=lambda partitions: {},
            on_lost=lambda partitions: None,
            reset=lambda partitions: dict.fromkeys(partitions, 0),
            **settings,
        )

    def held(self) -> list[str]:
        """What it may read now."""
        return [str(partition) for partition in sorted(self.begun) if self.consumer.allowed(partition)]


class World:
    """One chroot. Coordinators and members that were started here are stopped at the end."""

    def __init__(self, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self.reports = Reports()
        self.tree = Tree(zookeeper)
        self._stack = ExitStack()

    def put(self, path: str, data: bytes | Mapping[str, Any] = b"") -> None:
        """Create or replace a node, parents included; what a coordinator writes at the same moment is replaced."""
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        reason = "NodeExists"
        while reason in ("NodeExists", "BadVersion"):
            reason = self.tree.commit(Transaction(writes=tuple(self._putting(path, content)))).reason
        assert not reason, reason

    def _putting(self, path: str, content: bytes) -> list[Write]:
        (node,) = self.tree.read([Read(path)])
        if node.stat is not None:
            return [SetNode(path, content, node.stat.version)]
        missing = [parent for parent in self.tree.read([Read(p) for p in parents(path)]) if not parent.exists]
        return [*(CreateNode(parent.path) for parent in missing), CreateNode(path, content)]

    def make(self, nodes: Mapping[str, bytes]) -> None:
        """Create these at once: nobody sees one without the others."""
        self._commit(*(CreateNode(path, data) for path, data in nodes.items()))

    def append(self, parent: str, data: bytes | Mapping[str, Any]) -> None:
        """Create a sequential node."""
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        self._commit(CreateNode(parent, content, sequential=True))

    def remove(self, path: str) -> None:
        """Delete a node."""
        self._commit(DeleteNode(path, -1))

    def _commit(self, *writes: Write) -> None:
        done = self.tree.commit(Transaction(writes=writes))
        assert not done.reason, done

    def data(self, path: str) -> bytes:
        """A node's data."""
        return self.tree.read([Read(path)])[0].data

    def children(self, path: str) -> list[str]:
        """A node's children, in order."""
        return sorted(self.tree.read([Read(path, Kind.CHILDREN)])[0].children)

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic, or give it more partitions, as a broker does."""
        self.put(f"{TOPICS}/{name}", {"version": 1, "partitions": {str(n): [1] for n in range(partitions)}})

    def coordinate(self, layout: str = "draft", **source: Any) -> Coordinator:
        """Start a coordinator, which takes topics from there; returns when it serves."""
        serving = threading.Event()
        coordinator = Coordinator(
            self.zookeeper, layout=layout, on_serving=lambda _number, _epoch: serving.set(), **source
        )
        coordinator.start()
        self._stack.callback(coordinator.stop)
        assert serving.wait(PATIENCE_SECONDS)
        return coordinator

    def stand_by(self) -> Coordinator:
        """Start a coordinator beside one that serves."""
        coordinator = Coordinator(self.zookeeper)
        coordinator.start()
        self._stack.callback(coordinator.stop)
        return coordinator

    def join(self, group: str, *topics: str, **settings: Any) -> Member:
        """Start a member."""
        member = Member(self.zookeeper, group, topics, **settings)
        member.consumer.start()
        self._stack.callback(member.consumer.stop)
        return member

    def __enter__(self) -> Self:
        self._level = EVENTS.level
        EVENTS.setLevel(logging.INFO)
        EVENTS.addHandler(self.reports)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.close()
        finally:
            self.tree.close()
            EVENTS.removeHandler(self.reports)
            EVENTS.setLevel(self._level)


def named(topic: str, *numbers: int) -> list[str]:
    """Partitions as `Member.held` spells them."""
    return [f"{topic}-{number}" for number in numbers]
