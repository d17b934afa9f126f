"""What can be told of a world at a moment, in few words: features. A world with a new one is somewhere else than all
that were played before.

Several views of each program, not one of everything: of everything almost each moment would be new.
"""

from __future__ import annotations

from typing import Any

from tests.sim.process import SimProcess
from tests.sim.world import World

Feature = tuple[Any, ...]
PARTS_MAX = 6
"""A time is told in thirds of the session timeout, up to so many."""


class Seen:
    """The features of one world, each with the step at which it was seen first. `look` is called now and then."""

    def __init__(self) -> None:
        self.features: dict[Feature, int] = {}
        self._gone_ms: dict[str, int] = {}  # by registration: when it was first seen not to stand
        self._heard_ms: dict[int, int] = {}  # by number of a session's client: when its connection last was whole

    def look(self, world: World) -> None:
        """Note what there is to be seen now."""
        served = []
        for process in world.processes.values():
            loop = getattr(process.actor, "loop", None)
            role = getattr(process.actor, "role", None)
            if loop is None or not process.running:
                continue
            if hasattr(role, "term"):
                served.append(self._coordinator(world, process, loop, role))
            elif hasattr(role, "lease"):
                self._consumer(world, process, loop, role)
        self._note(world, "coordinators", *sorted(set(served)), world.ensemble.serving)

    def _note(self, world: World, *feature: Any) -> None:
        self.features.setdefault(feature, world.steps)

    def _coordinator(self, world: World, process: SimProcess, loop: Any, role: Any) -> tuple[Any, ...]:
        link, silent = self._link(loop), self._silent(world, process)
        self._note(world, "coordinator", link, silent, role.term is not None, min(loop.commits_in_flight, 3))
        return link, role.term is not None

    def _consumer(self, world: World, process: SimProcess, loop: Any, role: Any) -> None:
        link, silent = self._link(loop), self._silent(world, process)
        session, lease = role.session, role.lease
        if session is None or lease is None:
            self._note(world, "outside", link, silent)
            return
        running = session.holdings.running
        left = _thirds(lease.until_ms - process.clock.now_ms(), lease.timeout_ms)
        gone = self._gone(world, session.paths.registration, lease.timeout_ms) if role.member else -1
        application = process.application
        reads = bool(application is not None and getattr(application, "positions", None) and running and left)
        task = role._task
        doing = None if task is None else (type(task).__name__, task.step)
        self._note(world, "lease", link, role.member, left, gone, reads)
        self._note(world, "link", link, role.member, silent, bool(running))
        self._note(world, "task", link, doing, bool(role._revived), session.uncertain, min(len(session.commands), 2))
        self._note(world, "loss", doing, gone, left, min(len(session.calls), 2))

    def _link(self, loop: Any) -> str:
        if loop._session is None:
            return "none"
        if not loop.connected:
            return "suspended" if loop._session.opened else "opening"
        return "settled" if loop.settled else "gated"

    def _silent(self, world: World, process: SimProcess) -> int:
        """For how long nothing gets through to a server, or back."""
        store = process.stores[-1] if process.stores else None
        if store is None or store.over:
            return -1
        wire = store.wire
        if wire is not None and wire.whole:
            self._heard_ms[store.number] = world.now_ms
        since_ms = self._heard_ms.setdefault(store.number, world.now_ms)
        return _thirds(world.now_ms - since_ms, store.timeout_ms)

    def _gone(self, world: World, registration: str, timeout_ms: int) -> int:
        """For how long a member is none any more; -1: its registration stands."""
        if registration in world.ensemble.leader.nodes:
            return -1
        return _thirds(world.now_ms - self._gone_ms.setdefault(registration, world.now_ms), timeout_ms)


def _thirds(ms: int, timeout_ms: int) -> int:
    """In thirds of the session timeout, from 0 (none) to PARTS_MAX."""
    return min(max(0, -(-ms * 3 // timeout_ms)), PARTS_MAX)
