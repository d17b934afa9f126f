"""Features: what can be said about a world at one moment, in few words. A world with a new feature is in a state that
no world before has reached.

There are several views of each program, and not one view of everything: in one view almost each moment would be new.
Some features are noted only near a violation, for example while a member reads that has been evicted, so that the
search goes to states that few worlds have reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.sim.process import SimProcess
from tests.sim.world import World

Feature = tuple[Any, ...]
SILENT_MIN = 2  # thirds of the session timeout
PARTS_MAX = 6
"""A time is told in thirds of the session timeout, up to so many."""

LOOKS_PER_TIMEOUT = 30
"""So often in a session timeout a program is looked at that has not been stepped meanwhile."""


class Sight(NamedTuple):
    """When a feature was seen first in a world, and at which process ("": not at a single process)."""

    step: int
    name: str = ""
    depth: int = 0  # how near the state is to the violation of an invariant; 0: not known


class Seen:
    """The features of one world, each with the place where it was seen first. `look` is called every few steps."""

    def __init__(self) -> None:
        self.features: dict[Feature, Sight] = {}
        self._tasks: dict[str, tuple[Any, int]] = {}  # process -> its present task, and since when
        self._gone: dict[str, int] = {}  # registration -> when it was first seen missing
        self._heard_ms: dict[int, int] = {}  # number of a store -> when its connection was last whole
        self._looked: dict[SimProcess, tuple[Any, ...]] = {}  # process -> its state when it was last looked at
        self._serving: dict[SimProcess, tuple[Any, ...]] = {}  # coordinators, in their state at the last look

    def look(self, world: World) -> None:
        """Note the features of the present moment."""
        moment = world.now_ms * LOOKS_PER_TIMEOUT // world.options.session_timeout_ms
        for process in world.processes.values():
            loop = getattr(process.actor, "loop", None)
            if loop is None or not process.running:
                self._serving.pop(process, None)
                continue
            wire = process.stores[-1].wire if process.stores else None
            at = loop, getattr(loop, "_steps", world.steps), wire, wire is not None and wire.whole, moment
            if self._looked.get(process) == at:
                continue  # most processes have not changed
            self._looked[process] = at
            role = getattr(process.actor, "role", None)
            if hasattr(role, "term"):
                self._serving[process] = self._coordinator(world, process, loop, role)
            elif hasattr(role, "lease"):
                self._consumer(world, process, loop, role)
        self._note(world, "", "coordinators", *sorted(set(self._serving.values())), world.ensemble.serving)

    def _note(self, world: World, name: str, *feature: Any, depth: int = 0) -> None:
        if feature not in self.features:
            self.features[feature] = Sight(world.steps, name, depth)

    def _coordinator(self, world: World, process: SimProcess, loop: Any, role: Any) -> tuple[Any, ...]:
        link, silent = self._link(loop), self._silent(world, process)
        self._note(
            world, process.name, "coordinator", link, silent, role.term is not None, min(loop.commits_in_flight, 3)
        )
        return link, role.term is not None

    def _consumer(self, world: World, process: SimProcess, loop: Any, role: Any) -> None:
        name, link, silent = process.name, self._link(loop), self._silent(world, process)
        registered, lease = role.registered, role.lease
        if registered is None or lease is None:
            self._note(world, name, "outside", link, silent)
            return
        memory, at_work = registered.memory, registered.application
        running, path, timeout_ms = bool(at_work.running), registered.paths.registration, lease.timeout_ms
        left = _thirds(lease.until_ms - process.clock.now_ms(), timeout_ms)
        gone_ms = self._gone_ms(world, path) if role.member else -1
        gone = -1 if gone_ms < 0 else _thirds(gone_ms, timeout_ms)
        reads = left > 0 and _may_read(process.application, role.readable)
        doing = _doing(memory, at_work.calls)
        at = _thirds(self._at_ms(world, name, _obeyed(memory)), timeout_ms)
        hung = bool(getattr(process.application, "hung", False))
        commands = min(len(registered.watch.nodes.view.commands), 2)
        certain = memory.commit is None or bool(loop.commits_in_flight)
        self._note(world, name, "lease", link, role.member, left, gone, reads)
        self._note(world, name, "link", link, role.member, silent, running)
        self._note(world, name, "task", link, doing, bool(at_work.resuming), certain, commands)
        self._note(world, name, "loss", doing, gone, left, min(len(at_work.calls), 2))
        self._note(world, name, "overdue", hung, reads, at, link)
        # states on the way to two readers, to a member that hangs, and to a session that ends while its reader reads
        if reads and gone_ms >= 0:
            parts = gone_ms * 10 // timeout_ms
            self._note(world, name, "grace", link, parts, depth=1 + parts)
            owners = _owners(world, registered.paths, process.application.positions)
            self._note(world, name, "owned", gone, *owners, depth=1 + 3 * gone)
        if silent > SILENT_MIN:
            self._note(world, name, "stuck", role.member, silent, running, doing is None, depth=silent)
        if role._calls.reading and role.member:
            self._note(world, name, "losing", link, running, left, depth=1)

    def _at_ms(self, world: World, name: str, task: str | None) -> int:
        """For how long a consumer has been at its task."""
        if task is None or self._tasks.get(name, (None, 0))[0] != task:
            self._tasks[name] = task, world.now_ms
        return world.now_ms - self._tasks[name][1]

    def _link(self, loop: Any) -> str:
        if loop._session is None:
            return "none"
        if not loop.connected:
            return "suspended" if loop._session.opened else "opening"
        return "settled" if loop.settled else "gated"

    def _silent(self, world: World, process: SimProcess) -> int:
        """For how long a process has had no whole connection, in thirds of the session timeout; -1: it has no
        session."""
        store = process.stores[-1] if process.stores else None
        if store is None or store.over:
            return -1
        wire = store.wire
        if wire is not None and wire.whole:
            self._heard_ms[store.number] = world.now_ms
        since_ms = self._heard_ms.setdefault(store.number, world.now_ms)
        return _thirds(world.now_ms - since_ms, store.timeout_ms)

    def _gone_ms(self, world: World, registration: str) -> int:
        """For how many ms the registration has been missing; -1: it exists."""
        if registration in world.ensemble.leader.nodes:
            return -1
        return world.now_ms - self._gone.setdefault(registration, world.now_ms)


def _owners(world: World, paths: Any, partitions: Iterable[Any]) -> list[str]:
    """Who owns these partitions, by the owner nodes."""
    return sorted({_owner(world.ensemble.data(paths.owner(p)), paths.consumer_id.encode()) for p in partitions})


def _owner(data: bytes | None, mine: bytes) -> str:
    if not data:
        return "no node" if data is None else "nobody"
    return "marked" if data.startswith(b"!") else "its own" if mine in data else "another"


def _may_read(application: Any, readable: frozenset[Any]) -> bool:
    """True when an application reads partitions that it may read while its lease holds."""
    if getattr(application, "hung", False) and not application._reads_on:
        return False
    return bool(getattr(application, "positions", {}).keys() & readable)


def _thirds(ms: int, timeout_ms: int) -> int:
    """A duration in thirds of the session timeout, from 0 (none) to PARTS_MAX."""
    return min(max(0, -(-ms * 3 // timeout_ms)), PARTS_MAX)


def _obeyed(memory: Any) -> str | None:
    """The command that a member obeys now, by its sequence; None: none."""
    if memory.start is not None:
        return str(memory.start.name)
    return None if memory.stop is None else str(memory.stop.sequence)


def _doing(memory: Any, calls: Any) -> tuple[Any, ...] | None:
    """The command that a member obeys now, and how far it has come; None: none."""
    start, stop = memory.start, memory.stop
    if start is None and stop is None:
        return None
    asked = tuple(sorted({call.name for call in calls.values() if not call.resumes}))
    sent = (start is not None and start.acknowledged) or (stop is not None and stop.released)
    return "start" if start is not None else "stop", memory.cleaning, asked, sent
