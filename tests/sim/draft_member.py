"""A consumer that knows only the draft of 2012: no marker, drains its channel, deletes what it obeyed."""

from __future__ import annotations

import json

from tests.sim.actors import GROUP
from tests.sim.process import SimProcess
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import (
    CommitDone,
    FromStore,
    Input,
    Link,
    LinkChanged,
    ReadDone,
    StoreInput,
    SyncDone,
    WatchFired,
)
from zkcoord.tree.paths import DRAFT, EVICTED_MARK
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import CreateNode, DeleteNode, Transaction


class SessionOverError(Exception):
    """Its session ended, or it was evicted: such a program ends, and is started again."""


class DraftMember:
    """One session of such a member. With `obeys` False it looks at nothing any more. For the checkers it is its own
    application."""

    def __init__(self, process: SimProcess) -> None:
        self.consumer_id = f"{GROUP}_{process.name}-{process.world.now_ms}-{process.random_hex()}"
        self.channel = DRAFT.channel(GROUP, self.consumer_id)
        self.reading: set[TopicPartition] = set()
        self.obeyed: list[str] = []
        self.obeys = True
        self._process, self._token, self._dirty = process, 0, True
        self._commands: list[Node] = []
        self._waiting = self._linked = False
        self._syncing = False  # a sync has no answer yet: no other is sent, so that the client notices a silent server
        process.group, process.application = GROUP, self
        self.store = process.open_session(lambda item: process.inbox.put(FromStore(1, item)))
        self._sync_ms = self._every_ms = 0

    def lag(self, partition: TopicPartition) -> int | None:
        """0 for a partition that the member reads, else None: the checkers ask an application for its lag."""
        return 0 if partition in self.reading else None

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        """Take inputs, obey one command at a time, keep the session alive."""
        for item in inputs:
            if isinstance(item, FromStore):
                self._take(item.item, now_ms)
        if self._every_ms and now_ms >= self._sync_ms:
            self._sync_ms = now_ms + self._every_ms
            if not self._syncing:
                self._syncing = True
                self.store.sync(0)
        if self._linked and not self._waiting and self.obeys:
            self._act()
        return self._sync_ms or None

    def _take(self, item: StoreInput, now_ms: int) -> None:
        match item:
            case LinkChanged(Link.CONNECTED, _, timeout_ms):
                self._sync_ms, self._every_ms = now_ms, timeout_ms // 6
                self._commands, self._dirty, self._linked = [], True, True  # reads everything again
                registration = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}
                node = DRAFT.registration(GROUP, self.consumer_id)
                self._commit(CreateNode(self.channel))
                self._commit(CreateNode(node, json.dumps(registration).encode(), ephemeral=True))
            case LinkChanged(Link.LOST):
                raise SessionOverError
            case LinkChanged():
                self._linked = False
            case SyncDone():
                self._syncing = False
            case WatchFired():
                self._dirty = True
            case CommitDone():
                self._waiting = False
            case ReadDone(_, nodes):
                self._waiting = False
                self._dirty |= nodes is None
                for node in nodes or ():
                    if node.kind is Kind.CHILDREN and (not node.exists or EVICTED_MARK in node.children):
                        raise SessionOverError
                    if node.kind is Kind.CHILDREN:
                        self._ask(*(Read(f"{self.channel}/{name}") for name in sorted(node.children) if name.isdigit()))
                    elif node.exists:
                        self._commands.append(node)

    def _act(self) -> None:
        if self._commands:
            node = self._commands.pop(0)
            command = json.loads(node.data)
            partitions = {
                TopicPartition(k.rpartition("-")[0], int(k.rpartition("-")[2])) for k in command["ownershipMap"]
            }
            self.obeyed.append(command["option"])
            self.reading = (
                self.reading | partitions if command["option"] == "start-fetcher" else self.reading - partitions
            )
            self._commit(DeleteNode(node.path, node.stat.version if node.stat else 0))
        elif self._dirty:
            self._dirty = False
            self._ask(Read(self.channel, Kind.CHILDREN, watch=True))

    def _ask(self, *reads: Read) -> None:
        if reads:
            self._token, self._waiting = self._token + 1, True
            self.store.read(self._token, reads)

    def _commit(self, write: CreateNode | DeleteNode) -> None:
        self._token, self._waiting = self._token + 1, True
        self.store.commit(self._token, Transaction(writes=(write,), why="draft member"))
