"""A tree with one group that tests of the command line write by hand."""

import json
from dataclasses import replace
from typing import Any

from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.state import GroupState
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.registration import MARKER, Registration, encode_registration
from zkcoord.tree.snapshot import Read, parents
from zkcoord.tree.state import digest, encode_state
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

A, B = "g_h-1-aaaaaaaa", "g_h-2-bbbbbbbb"
P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
TARGET = {P0: f"{A}-0", P1: f"{A}-0"}


class World:
    """A tree that tests write by hand."""

    def __init__(self, tree: Tree, address: str) -> None:
        self.tree, self.address = tree, address
        upgrade(tree, run_id="test")

    def put(self, path: str, data: bytes = b"") -> None:
        """Create or replace a node, parents included."""
        (node,) = self.tree.read([Read(path)])
        if node.stat is not None:
            self._commit(SetNode(path, data, node.stat.version))
            return
        missing = [parent for parent in self.tree.read([Read(p) for p in parents(path)]) if not parent.exists]
        self._commit(*(CreateNode(parent.path) for parent in missing), CreateNode(path, data))

    def remove(self, path: str) -> None:
        self._commit(DeleteNode(path, -1))

    def _commit(self, *writes: CreateNode | SetNode | DeleteNode) -> None:
        done = self.tree.commit(Transaction(writes=writes))
        assert not done.reason, done

    def topic(self, name: str, partitions: int) -> None:
        document = {"version": 1, "partitions": {str(n): [1] for n in range(partitions)}}
        self.put(f"/brokers/topics/{name}", json.dumps(document).encode())

    def member(self, consumer: str, instance: str | None = None, **more: Any) -> None:
        registration = Registration(
            subscription={"clicks": 1},
            timestamp="1",
            coordination=MARKER,
            instance=instance,
            assignors=("sticky",),
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
        )
        registration = replace(registration, **more)
        self.put(DRAFT.channel("g", consumer))
        self.put(DRAFT.channel("g", consumer), b'{"version":1}')
        self.put(DRAFT.registration("g", consumer), encode_registration(registration))

    def settle(self) -> None:
        """A owns all of clicks, in generation 7."""
        self.topic("clicks", 2)
        self.member(A, "etl-1")
        for partition, thread in TARGET.items():
            self.put(DRAFT.mark("g", partition.topic))
            self.put(DRAFT.owner("g", partition), thread.encode())
        self.put(DRAFT.offset("g", P0), b"100")
        self.put(DRAFT.record("g"), encode_record(DEFAULT_RECORD))
        self.put(DRAFT.state("g"), encode_state(GroupState(generation=7, target=digest(TARGET))))

    def start_for_a(self) -> None:
        command = Command(option=Option.START_FETCHER, ownership={P1: f"{A}-0"}, generation=7, epoch=1)
        self.put(f"{DRAFT.channel('g', A)}/0000000003", encode_command(command))
