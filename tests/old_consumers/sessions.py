"""When old members' sessions ended, as ZooKeeper says: each reads on until it notices."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.client import KazooClient

from tests.old_consumers.our_member import wall_ms


class SessionEnds:
    """Sees registrations go."""

    def __init__(self, zk: KazooClient, ids: str) -> None:
        """`ids`: the path of the registrations."""
        self._registered: set[str] = set()
        self._gone: dict[str, list[int]] = {}
        zk.ensure_path(ids)
        zk.ChildrenWatch(ids, self._see)

    def _see(self, names: list[str]) -> None:
        now_ms = wall_ms()
        for name in self._registered - set(names):
            self._gone.setdefault(name, []).append(now_ms)
        self._registered = set(names)

    def of(self, consumer_id: str) -> Sequence[int]:
        """When this registration went, by the wall clock, in ms."""
        return tuple(self._gone.get(consumer_id, ()))
