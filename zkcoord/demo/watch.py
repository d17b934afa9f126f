"""Notes when the nodes of members and of the coordinator were seen to be gone: after a death everybody waits for
that."""

from __future__ import annotations

import threading

from zkcoord.clock import mono_ms
from zkcoord.demo.options import GROUP
from zkcoord.shell.ports import Link, LinkChanged, ReadDone, StoreInput, WatchFired
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Read

READS = (Read(DRAFT.ids(GROUP), Kind.CHILDREN, watch=True), Read(DRAFT.coordinator, watch=True))


class Watch:
    """One session that watches the registrations and the coordinator's node. Times are monotonic."""

    def __init__(self, zookeeper: str) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, set[str]] = {}  # path -> what was there
        self._fired_ms: dict[str, int] = {}
        self._gone_ms: dict[str, int] = {}
        with self._lock:
            self._store = zookeeper_sessions(zookeeper)(self._take)

    def gone_ms(self) -> dict[str, int]:
        """Return what is gone -> since when. The keys are consumer ids, and coordinators' numbers as text."""
        with self._lock:
            return dict(self._gone_ms)

    def close(self) -> None:
        """End the session."""
        self._store.close()

    def _take(self, item: StoreInput) -> None:
        """Take in an input of the session, on the session's thread."""
        with self._lock:
            match item:
                case LinkChanged(link=Link.CONNECTED):
                    self._store.read(0, READS)
                case WatchFired(path=path):
                    self._fired_ms[path] = mono_ms()
                    self._store.read(0, [read for read in READS if read.path == path])
                case ReadDone(nodes=nodes) if nodes:
                    for node in nodes:
                        data = {node.data.decode()} if node.exists else set()
                        self._see(node.path, set(node.children) if node.kind is Kind.CHILDREN else data)
                case _:
                    pass

    def _see(self, path: str, now: set[str]) -> None:
        for name in self._seen.get(path, set()) - now:
            self._gone_ms[name] = self._fired_ms.get(path, mono_ms())
        self._seen[path] = now
