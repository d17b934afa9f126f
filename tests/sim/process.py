"""A simulated process: an actor that takes steps, its inbox, its clock, its sessions. It can be paused and killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.sim.store import NUMBERS, SimStore
from zkcoord.shell.ports import FromStore, Input, StoreInput, SyncDone

if TYPE_CHECKING:
    from tests.sim.world import CrashPlan, World


class Actor(Protocol):
    """The program of a process: a coordinator's or a consumer's loop."""

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        """Take the inputs. Returns the time of the next call at the latest, by this process's clock (None: at the next
        input)."""


IDLE_STEPS_MAX = 50
"""Steps without an input in one millisecond of virtual time; more is a busy loop."""

NEVER_MS = 1 << 62
"""A wake-up time that does not come."""

Factory = Callable[["SimProcess"], Actor]


class SimInbox:
    """The queue of inputs. `take` never blocks: the world calls only processes that have an input or are due."""

    __slots__ = ("_awake", "_process", "items")

    def __init__(self, process: SimProcess) -> None:
        self._process, self._awake = process, process.world.awake
        self.items: list[Input] = []

    def put(self, item: Input) -> None:
        """Add an input."""
        self.items.append(item)
        self._awake[self._process] = None

    def take(self, until_ms: int | None = None) -> list[Input]:
        """Return and remove all inputs, oldest first."""
        items, self.items = self.items, []
        return items


class SimClock:
    """Monotonic milliseconds of one process, with a zero and a rate of its own (in thousandths of the world's)."""

    __slots__ = ("_world", "permille", "zero_ms")

    def __init__(self, world: World, zero_ms: int, permille: int) -> None:
        self._world = world
        self.zero_ms = zero_ms
        self.permille = permille

    def now_ms(self) -> int:
        """The present time by this process's clock."""
        return self.zero_ms + self._world.now_ms * self.permille // 1000

    def world_ms(self, local_ms: int) -> int:
        """The first moment of the world at which this clock shows `local_ms` or more."""
        return -((self.zero_ms - local_ms) * 1000 // self.permille)


class SimProcess:
    """One process. `client` names its incarnation. Everything in memory ends with the incarnation."""

    def __init__(self, world: World, name: str, factory: Factory) -> None:
        self.world = world
        self.name = name
        self.number = next(NUMBERS)  # by the order of creation
        self.factory = factory
        self.incarnation = 0
        self.client = f"{name}#0"
        self.running = False
        self.paused = False
        self.cut = False
        self.restarts = True  # the world starts it again after a crash
        self.dies_of: tuple[type[BaseException], ...] = ()
        self.inbox = SimInbox(self)
        self.clock = SimClock(world, 0, 1000)
        self.actor: Actor | None = None
        self.application: Any = None
        self.group = ""
        self.wake_ms = NEVER_MS  # in the world's time
        self.dies_after_step: CrashPlan | None = None
        self.stores: list[SimStore] = []
        self._deferred: list[Callable[[], None]] = []
        self._busy_ms = -1
        self._busy_steps = 0

    def start(self) -> None:
        """A new incarnation with an empty memory."""
        world, rng = self.world, self.world.rng
        self.incarnation += 1
        self.client = f"{self.name}#{self.incarnation}"
        self.running, self.paused, self.dies_after_step = True, False, None
        skew = world.options.clock_skew_permille_max
        permille = 1000 + (int(rng.random() * (2 * skew + 1)) - skew if skew else 0)
        self.clock = SimClock(world, int(rng.random() * 1_000_000), permille)
        self.inbox = SimInbox(self)
        self.application = None
        self.stores = []
        self._deferred = []
        self.wake_ms = world.now_ms
        world.awake[self] = None
        world.trace(self.client, "starts")
        self.actor = self.factory(self)

    def open_session(self, sink: Callable[[StoreInput], None]) -> SimStore:
        """A StoreFactory: a new session of this incarnation."""
        store = SimStore(self.world, self, sink, self.world.options.session_timeout_ms)
        self.stores.append(store)
        self.world.stores.append(store)
        return store

    def random_hex(self, digits: int = 8) -> str:
        """Randomness for names; drawn from the seed."""
        return f"{self.world.rng.getrandbits(4 * digits):0{digits}x}"

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` in this incarnation after `delay_ms`. A pause delays the call; a crash cancels it."""
        self.world.at(self.world.now_ms + delay_ms, partial(self._due, self.incarnation, action))

    def _due(self, incarnation: int, action: Callable[[], None]) -> None:
        if not self.running or self.incarnation != incarnation:
            return
        if self.paused:
            self._deferred.append(partial(self._due, incarnation, action))
        else:
            action()

    def step(self) -> None:
        """One step of the actor with all inputs of its inbox."""
        items = self.inbox.take()
        if items:
            self._busy_ms = -1
        else:
            self._check_busy()
        for item in items:
            if not (type(item) is FromStore and type(item.item) is SyncDone and item.item.ok):
                self.world.trace(self.client, "step", items)  # lease renewals would drive out other lines
                break
        self.wake_ms = NEVER_MS
        assert self.actor is not None
        try:
            wake_ms = self.actor.step(items, self.clock.now_ms())
        except self.dies_of as error:
            self.world.trace(self.client, "dies of", error)
            self.world.crash(self.name)
            return
        if wake_ms is not None and self.running:
            self.wake_ms = self.clock.world_ms(wake_ms)

    def _check_busy(self) -> None:
        """Fail if an actor asks again and again to be called at once, without an input: then time would never pass."""
        if self._busy_ms != self.world.now_ms:
            self._busy_ms, self._busy_steps = self.world.now_ms, 0
            return
        self._busy_steps += 1
        if self._busy_steps > IDLE_STEPS_MAX:
            self.world.fail(f"{self.client} asks to be called at once, {IDLE_STEPS_MAX} times in one millisecond")

    def pause(self) -> None:
        """SIGSTOP: no step, no heartbeat."""
        if self.running and not self.paused:
            self.paused = True
            self.world.trace(self.client, "is paused")
            self.refresh()

    def resume(self) -> None:
        """SIGCONT."""
        if not self.paused:
            return
        self.paused = False
        self.world.trace(self.client, "is resumed")
        self.refresh()
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()

    def kill(self, *, exact: bool = False) -> None:
        """SIGKILL: memory is lost, and sessions are not closed. `exact`: no request that was sent is executed any
        more."""
        if not self.running:
            return
        self.world.trace(self.client, "is killed")
        self.running, self.paused = False, False
        self.wake_ms = NEVER_MS
        for store in self.stores:
            if exact and store.wire is not None:
                store.wire.requests.clear()
            store.abandon()
        self.inbox.items = []
        self.actor = None
        self.application = None

    def refresh(self) -> None:
        """Update for the ensemble which of this process's sessions still send heartbeats."""
        for store in self.stores:
            store.refresh()
