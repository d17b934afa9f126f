"""Measures the requests of ZooKeeper sessions. It stands between a loop and its sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from zkcoord.metrics.families import Instruments
from zkcoord.metrics.names import LATENCY, REQUESTS, SESSIONS
from zkcoord.shell.ports import CommitDone, Link, LinkChanged, ReadDone, StoreFactory, StoreInput, SyncDone, TreeStore
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import Transaction

READ, COMMIT, SYNC = "read", "commit", "sync"


class MeasuredSessions:
    """Opens sessions (`shell.ports.StoreFactory`) whose requests are counted and timed."""

    def __init__(self, sessions: StoreFactory, instruments: Instruments, role: str) -> None:
        self._sessions, self._instruments, self._role = sessions, instruments, role
        self.connected = False  # True while the session that was opened last is connected

    def __call__(self, sink: Callable[[StoreInput], None]) -> TreeStore:
        """Open a session; returns at once."""
        self._instruments.count(SESSIONS, self._role)
        sent: dict[int, int] = {}
        self.connected = False

        def heard(item: StoreInput) -> None:
            self._heard(item, sent)
            sink(item)

        return _MeasuredStore(self._sessions(heard), sent)

    def _heard(self, item: StoreInput, sent: dict[int, int]) -> None:
        match item:
            case ReadDone():
                self._answered(READ, "broken" if item.nodes is None else "ok", sent.pop(item.token, None))
            case CommitDone():
                self._answered(COMMIT, item.outcome.value, sent.pop(item.token, None))
            case SyncDone():
                self._answered(SYNC, "ok" if item.ok else "broken", sent.pop(item.token, None))
            case LinkChanged():
                self.connected = item.link is Link.CONNECTED

    def _answered(self, kind: str, outcome: str, sent_ns: int | None) -> None:
        self._instruments.count(REQUESTS, self._role, kind, outcome)
        if sent_ns is not None:
            self._instruments.observe(LATENCY, (time.monotonic_ns() - sent_ns) / 1e9, self._role, kind)


class _MeasuredStore:
    """One session. It notes when each request is sent."""

    def __init__(self, store: TreeStore, sent: dict[int, int]) -> None:
        self._store, self._sent = store, sent

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """Ask for nodes."""
        self._sent[token] = time.monotonic_ns()
        self._store.read(token, reads)

    def commit(self, token: int, transaction: Transaction) -> None:
        """Send one multi."""
        self._sent[token] = time.monotonic_ns()
        self._store.commit(token, transaction)

    def sync(self, token: int) -> None:
        """Ask the leader."""
        self._sent[token] = time.monotonic_ns()
        self._store.sync(token)

    def drop_connection(self) -> None:
        """Break the connection."""
        self._store.drop_connection()

    def close(self) -> None:
        """End the session."""
        self._store.close()
