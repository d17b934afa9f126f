"""The faults of a storm. Each draws its victim and its end from the world's random numbers. `heal` ends all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from tests.sim.places import OWNER, place_of
from zkcoord.tree.writes import ANY_VERSION, DeleteNode, SetNode

if TYPE_CHECKING:
    from tests.sim.process import SimProcess
    from tests.sim.store import SimStore
    from tests.sim.wire import Wire
    from tests.sim.world import World

T = TypeVar("T")

NEVER_HEALS = 0.3
"""Of the connections on which nothing moves: so many stay so until their clients leave them."""
FLAPS_MAX, ANSWERS_MAX = 8, 3
"""A link breaks so often in a row, each time after so many answers."""


@runtime_checkable
class Hangs(Protocol):
    """An application that can hang."""

    hung: bool

    def hang(self, *, reads_on: bool) -> None: ...

    def go_on(self) -> None: ...


def inject(world: World) -> None:
    """One fault of a kind that this world has."""
    kinds = [kind for kind, weight in world.options.faults.items() for _ in range(weight)]
    if kinds:
        INJECTORS[_pick(world, kinds)](world, None)


def strike(world: World, kind: str, name: str) -> None:
    """Inject a fault of this kind into the process of this name (any process if there is none of this name)."""
    INJECTORS[kind](world, world.processes.get(name))


def heal(world: World) -> None:
    """End all faults: links work, paused and hung processes go on, and crashed processes are started again. Only black
    holes that never heal remain: their clients must leave them."""
    if not world.ensemble.serving:
        restore(world)
    for replica in world.ensemble.replicas:
        replica.cut = False
    for process in world.processes.values():
        process.cut = False
        process.resume()
        go_on(process)
        if not process.running and process.restarts:
            process.start()
    for store in list(world.stores):
        store.flaps.clear()
        unblock(store)


def unblock(store: SimStore) -> None:
    """Both directions of a store's connection work again, unless its process is cut off or the connection never
    heals."""
    if store.wire is not None and not store.process.cut and not store.wire.dead:
        store.wire.up = store.wire.down = True
        store.refresh()


def cut(world: World, process: SimProcess) -> None:
    """The process reaches no server any more; its connections become black holes."""
    world.trace(process.client, "is cut off from ZooKeeper")
    process.cut = True
    for store in process.stores:
        if store.wire is not None:
            store.wire.up = store.wire.down = False
            store.refresh()


def uncut(world: World, process: SimProcess) -> None:
    """The network of a process works again."""
    if process.cut:
        world.trace(process.client, "reaches ZooKeeper again")
        process.cut = False
        for store in list(process.stores):
            unblock(store)


def _pick(world: World, choices: Sequence[T]) -> T:
    return choices[int(world.rng.random() * len(choices))]


def _duration_ms(world: World) -> int:
    """A duration, mostly short, and at most as long as the options allow."""
    longest = world.options.fault_sessions_max * world.options.session_timeout_ms
    return 1 + int(world.rng.random() * world.rng.random() * longest)


def _later(world: World, action: Callable[[], None]) -> None:
    world.at(world.now_ms + _duration_ms(world), action)


def _victim(world: World, process: SimProcess | None) -> SimProcess | None:
    """This process (None: any process), if it runs."""
    running = [p for p in world.processes.values() if p.running and not p.paused and process in (None, p)]
    return _pick(world, running) if running else None


def _connected(world: World, process: SimProcess | None) -> SimStore | None:
    """A connection of this process (None: of any process)."""
    stores = [s for s in world.stores if s.wire is not None and process in (None, s.process)]
    return _pick(world, stores) if stores else None


def _disconnect(world: World, process: SimProcess | None) -> None:
    store = _connected(world, process)
    if store is not None:
        store.break_wire("fault")


def _block(world: World, process: SimProcess | None, *, up: bool, down: bool) -> None:
    store = _connected(world, process)
    if store is None:
        return
    wire: Wire | None = store.wire
    assert wire is not None
    world.trace(store.client, "black hole" if not up else "hears nothing")
    wire.up, wire.down = up, down
    store.refresh()

    def end() -> None:
        if store.wire is wire:
            unblock(store)

    wire.dead = world.rng.random() < NEVER_HEALS
    _later(world, end)


def _black_hole(world: World, process: SimProcess | None) -> None:
    _block(world, process, up=False, down=False)


def _deaf(world: World, process: SimProcess | None) -> None:
    _block(world, process, up=True, down=False)


def _cut(world: World, process: SimProcess | None) -> None:
    victim = _victim(world, process)
    if victim is not None and not victim.cut:
        cut(world, victim)
        _later(world, lambda: uncut(world, victim))


def _pause(world: World, process: SimProcess | None) -> None:
    victim = _victim(world, process)
    if victim is not None:
        victim.pause()
        _later(world, victim.resume)


def _crash(world: World, process: SimProcess | None) -> None:
    victim = _victim(world, process)
    if victim is not None and victim.restarts:
        world.crash(victim.name, restart_after_ms=_duration_ms(world))


def _follower_cut(world: World, _process: SimProcess | None) -> None:
    whole = [r for r in world.ensemble.followers if not r.cut]
    if not whole:
        return
    replica = _pick(world, whole)
    world.trace(replica.name, "is cut off from the leader")
    replica.cut = True
    stores = [s for s in world.stores if s.wire is not None and s.wire.replica is replica]
    for store in stores:
        store.refresh()

    def end() -> None:
        if not replica.cut:
            return
        world.trace(replica.name, "follows again")
        replica.cut = False
        gives_up = world.rng.random() < 0.5
        for store in [s for s in world.stores if s.wire is not None and s.wire.replica is replica]:
            if gives_up:
                store.break_wire("its server left the quorum")
            else:
                store.refresh()

    _later(world, end)


def _outage(world: World, _process: SimProcess | None) -> None:
    ensemble = world.ensemble
    if not ensemble.serving:
        return
    world.trace("no quorum")
    ensemble.serving = False
    for store in [s for s in world.stores if s.wire is not None]:
        store.break_wire("no quorum")

    def end() -> None:
        if not ensemble.serving:
            world.trace("quorum again")
            restore(world)

    _later(world, end)


def restore(world: World) -> None:
    """A quorum again: a new leader gives every session its whole timeout."""
    world.ensemble.serving = True
    for session in world.ensemble.sessions.values():
        world.ensemble.starve(session, world.now_ms + session.timeout_ms)


def _flap(world: World, process: SimProcess | None) -> None:
    store = _connected(world, process)
    if store is not None:
        flaps = 1 + int(world.rng.random() * FLAPS_MAX)
        store.flaps = deque(1 + int(world.rng.random() * ANSWERS_MAX) for _ in range(flaps))
        store.break_wire("the first of some flaps")


def _hang(world: World, process: SimProcess | None) -> None:
    victim = _victim(world, process)
    application = victim.application if victim is not None else None
    if victim is not None and isinstance(application, Hangs) and not application.hung:
        application.hang(reads_on=True)
        _later(world, lambda: go_on(victim))


def go_on(process: SimProcess) -> None:
    """The program of a process works again, if it hangs."""
    application = process.application
    if isinstance(application, Hangs) and application.hung:
        application.go_on()


def _owner(world: World, process: SimProcess | None) -> None:
    """Somebody edits an owner by hand while its consumer reads: sets it empty (perhaps after data that nobody can
    parse), names a consumer that never existed, or deletes the node."""
    mine = None if process is None else f"_{process.name}-".encode()
    nodes = world.ensemble.leader.nodes
    owned = [path for path, node in nodes.items() if node.data and (mine is None or mine in node.data)]
    owned = sorted(path for path in owned if (place := place_of(path)) is not None and place.kind == OWNER)
    if not owned:
        return
    path = _pick(world, owned)
    hand = _pick(world, (b"", b"", b"xx yy", b"nobody_was-1-aaaaaaaa-0", None))
    world.trace("somebody edits", path, hand)
    world.ensemble.operate(DeleteNode(path, ANY_VERSION) if hand is None else SetNode(path, hand, ANY_VERSION))
    if hand == b"xx yy":  # as the tools ask people to do
        _later(world, lambda: _mend_owner(world, path, hand))


def _mend_owner(world: World, path: str, data: bytes) -> None:
    if world.ensemble.data(path) == data:
        world.ensemble.operate(SetNode(path, b"", ANY_VERSION))


INJECTORS: dict[str, Callable[[World, SimProcess | None], None]] = {
    "disconnect": _disconnect,
    "black_hole": _black_hole,
    "deaf": _deaf,
    "cut": _cut,
    "pause": _pause,
    "crash": _crash,
    "follower_cut": _follower_cut,
    "outage": _outage,
    "flap": _flap,
    "hang": _hang,
    "owner": _owner,
}
