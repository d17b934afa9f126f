"""Scripted scenes: a world that keeps all transactions and events, faults at one exact write, and settled groups.

The failure cases (docs/failures.md) are played on these scenes. Their options have no faults except the scripted one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest

from tests.sim.actors import GROUP, ProductActor
from tests.sim.application import Application
from tests.sim.field import consumer_of, parse_json
from tests.sim.options import Options, seeds
from tests.sim.process import SimProcess
from tests.sim.scenarios import Scene
from tests.sim.store import SimStore
from tests.sim.wire import READ, Ask, Wire
from tests.sim.world import CrashPlan, Entry, World
from tests.sim.zookeeper import Result
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT, Layout
from zkcoord.tree.writes import CreateNode, DeleteNode, SetNode, Transaction

CHANNEL = re.compile("/channels?/")  # in either layout
SESSION_MS = 6_000
QUIET = Options(session_timeout_ms=SESSION_MS, call_ms_max=20, read_ms_max=500, reconnect_ms_max=50)
SETTLE_STEPS = 10_000


class Told(NamedTuple):
    """An event that a role reported."""

    time_ms: int
    client: str
    name: str
    fields: Mapping[str, Any]


class Tried(NamedTuple):
    """A transaction that was executed, or lost on its way (`result.reason` is "Lost"). Refused ones are kept, too."""

    time_ms: int
    client: str
    transaction: Transaction
    result: Result

    def commands(self, option: str, partition: TopicPartition | None = None) -> list[CreateNode]:
        """The commands of this option that the transaction creates (about this partition)."""
        return [
            write
            for write in self.transaction.writes
            if isinstance(write, CreateNode) and write.sequential and _is_command(write.data, option, partition)
        ]

    @property
    def applied(self) -> bool:
        """True when the transaction was applied."""
        return not self.result.reason


def _is_command(data: bytes, option: str, partition: TopicPartition | None) -> bool:
    text = parse_json(data)
    return text.get("option") == option and (partition is None or str(partition) in text.get("ownershipMap", {}))


Chosen = Callable[[Transaction], bool]


class ScriptWorld(World):
    """A world without faults of its own. `strike` places a fault at a write that is chosen by its content."""

    def __init__(self, seed: int, options: Options | None = QUIET) -> None:
        self.told: list[Told] = []
        self.tried: list[Tried] = []
        self.asked: list[tuple[int, str, str]] = []  # time, client and path of each read
        self._strikes: list[tuple[str, Chosen, str, int | None]] = []
        super().__init__(seed, options)

    def trace(self, *words: Any) -> None:
        """Keep the roles' events."""
        if len(words) == 3 and isinstance(words[2], Mapping):
            self.told.append(Told(self.now_ms, *words))
        super().trace(*words)

    def strike(self, process: str, chosen: Chosen, when: str, restart_after_ms: int | None = 1_000) -> None:
        """At this process's next write that is `chosen`, the fault `when` of a CrashPlan happens, once."""
        self._strikes.append((process, chosen, when, restart_after_ms))

    @property
    def struck(self) -> bool:
        """True when every strike has happened."""
        return not self._strikes

    def before_write(self, store: SimStore, transaction: Transaction) -> str:
        """Turn a matching strike into a crash plan for this write."""
        name = store.process.name
        for strike in self._strikes:
            if strike[0] == name and strike[1](transaction):
                self._strikes.remove(strike)
                self.plan(CrashPlan(name, self.write_counts[name] + 1, strike[2], strike[3]))
                break
        return super().before_write(store, transaction)

    def after_write(self, store: SimStore, ask: Ask, result: Result) -> None:
        """Keep the transaction and its result."""
        self.tried.append(Tried(self.now_ms, store.client, ask.payload, result))
        super().after_write(store, ask, result)

    def replied(self, store: SimStore, ask: Ask) -> None:
        """Keep the paths that were read."""
        if ask.kind is READ:
            self.asked += [(self.now_ms, store.client, read.path) for read in ask.payload]
        super().replied(store, ask)

    def events(self, name: str, since_ms: int = 0) -> list[Told]:
        """The events of this name."""
        return [told for told in self.told if told.name == name and told.time_ms >= since_ms]


class Script(Scene):
    """A scene of one group, with the questions that the failure cases ask of it."""

    world: ScriptWorld

    def __init__(self, seed: int, options: Options | None = QUIET, *, layout: Layout = DRAFT, **size: Any) -> None:
        size.setdefault("topics", {"t": 4})
        world = ScriptWorld(seed, options)
        world.layout = layout
        super().__init__(world, **size)

    # -- processes

    def leader(self) -> str:
        """The name of the coordinator that serves."""
        session = self.field.epoch_session
        assert session is not None, "nobody was elected"
        return session.process

    def standby(self) -> str:
        """The name of a coordinator that does not serve."""
        names = [name for name in self.world.processes if name.startswith("coordinator") and name != self.leader()]
        return names[0]

    def process(self, name: str) -> SimProcess:
        """A process by name."""
        return self.world.processes[name]

    def client(self, name: str) -> str:
        """The client name of a process's present incarnation."""
        return self.process(name).client

    def actor(self, name: str) -> ProductActor:
        """The actor of a process."""
        actor = self.process(name).actor
        assert isinstance(actor, ProductActor)
        return actor

    def application(self, name: str) -> Application:
        """The application behind a consumer."""
        application = self.process(name).application
        assert isinstance(application, Application)
        return application

    def wire(self, name: str) -> Wire:
        """The present connection of a process."""
        wires = [store.wire for store in self.process(name).stores if store.wire is not None and not store.over]
        assert wires, f"{name} is not connected"
        return wires[-1]

    def refresh(self, name: str) -> None:
        """Call this after the test has blocked or opened `wire(name)`."""
        self.process(name).refresh()

    def connect_to(self, servers: Mapping[str, str]) -> None:
        """Let every process reconnect until it has the server that is named for it; a process that is not named gets
        the leader."""
        for name in self.world.processes:
            while self.wire(name).replica.name != servers.get(name, "leader"):
                store = next(s for s in self.process(name).stores if s.wire is not None)
                store.break_wire("another server, please")
                self.world.run_until(lambda store=store: store.wire is not None, what="a connection")  # type: ignore[misc]
        self.settle("everybody is connected again")

    def member(self, name: str) -> str:
        """The consumer id of a process's present registration."""
        client = self.client(name)
        found = [c for (_, c), made in self.field.registrations.items() if made.session.client == client]
        assert found, f"{name} is not registered"
        return found[-1]

    def registered(self, name: str) -> bool:
        """True while the present incarnation of a process is a member."""
        client = self.client(name)
        return any(made.session.client == client for made in self.field.registrations.values())

    # -- the present state

    def owner(self, partition: TopicPartition) -> str:
        """The consumer that owns a partition; "" when it is free."""
        return consumer_of(self.field.owners.get((GROUP, partition), ""))

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the existing topics."""
        return standing(self.world)

    def owned(self, name: str) -> list[TopicPartition]:
        """The partitions that a process's present registration owns."""
        consumer = self.member(name)
        return [p for p in self.partitions() if self.owner(p) == consumer]

    def outstanding(self, name: str | None = None) -> int:
        """How many commands are outstanding (in one consumer's channel)."""
        if name is None:
            return sum(len(commands) for commands in self.field.commands.values())
        return len(self.field.commands.get((GROUP, self.member(name)), {}))

    def all_held(self) -> bool:
        """True when every partition is owned and was started by a member, and no command is outstanding."""
        if self.outstanding():
            return False
        for partition in self.partitions():
            holding = self.field.holdings.get((GROUP, partition))
            owner = self.owner(partition)
            if holding is None or holding.consumer != owner or (GROUP, owner) not in self.field.registrations:
                return False
        return True

    def balanced(self) -> bool:
        """True when all partitions are held, and every running consumer is a member and holds its share."""
        names = [n for n, p in self.world.processes.items() if p.group and p.running and not p.paused and not p.cut]
        if not self.all_held() or not all(self.registered(name) for name in names):
            return False
        shares = [len(self.owned(name)) for name in names]
        return not shares or max(shares) - min(shares) <= 1

    def settle(self, what: str = "balance") -> None:
        """Run until the group is balanced."""
        self.world.run_until(self.balanced, SETTLE_STEPS, what)

    def generation(self) -> int:
        """The group's generation."""
        return int(self.state().get("generation", -1))

    # -- the past

    def set_policy(self, **policy: Any) -> None:
        """Change the policy in the group's record, as an operator."""
        self.edit_record(policy={**self.record().get("policy", {}), **policy})

    def leave(self, name: str) -> Future[None]:
        """Let a consumer leave cleanly."""
        future: Future[None] = Future()
        self.process(name).restarts = False
        self.process(name).inbox.put(Request("stop", None, future))
        return future

    def writes_to(self, path: str, since_ms: int = 0) -> int:
        """How often a node was created, set or deleted."""
        return sum(
            1 for txn in self.world.ensemble.log if txn.time_ms >= since_ms for c in txn.changes if c.path == path
        )

    def changes_below(self, path: str, since_ms: int = 0) -> list[str]:
        """Which nodes below a path were written since then, in order."""
        return [
            change.path
            for txn in self.world.ensemble.log
            if txn.time_ms >= since_ms
            for change in txn.changes
            if change.path.startswith(f"{path}/")
        ]

    def touched_below(self, path: str, since_ms: int) -> list[str]:
        """The nodes at or below a path that a coordinator wrote or read since then."""
        log = [txn for txn in self.world.ensemble.log if txn.session.client.startswith("coordinator")]
        written = [change.path for txn in log if txn.time_ms >= since_ms for change in txn.changes]
        read = [p for at_ms, who, p in self.world.asked if at_ms >= since_ms and who.startswith("coordinator")]
        return [p for p in written + read if p == path or p.startswith(f"{path}/")]

    def journal(self, event: str, partition: TopicPartition | None = None, since_ms: int = 0) -> list[Entry]:
        """The lines of the applications' journal."""
        return [
            entry
            for entry in self.world.journal
            if entry.event == event
            and entry.group == GROUP
            and (partition is None or entry.partition == partition)
            and entry.time_ms >= since_ms
        ]

    def commands_sent(self, option: str, partition: TopicPartition | None = None, since_ms: int = 0) -> list[Tried]:
        """The applied transactions that sent such a command."""
        return [
            tried
            for tried in self.world.tried
            if tried.applied and tried.time_ms >= since_ms and tried.commands(option, partition)
        ]


SCRIPT_SEEDS = 2


def standing(world: World) -> list[TopicPartition]:
    """All partitions of the existing topics."""
    ensemble, found = world.ensemble, list[TopicPartition]()
    for topic in ensemble.names("/brokers/topics"):
        numbers = parse_json(ensemble.data(f"/brokers/topics/{topic}") or b"").get("partitions", {})
        found += [TopicPartition(topic, int(number)) for number in numbers]
    return sorted(found)


def on_seeds(count: int = SCRIPT_SEEDS) -> pytest.MarkDecorator:
    """Play a script with several interleavings: the argument `seed` of the test names one."""
    return pytest.mark.parametrize("seed", seeds(count))


# -- writes at which a fault can be placed


def sends(option: str) -> Chosen:
    """A coordinator's transaction that creates such a command."""
    return lambda transaction: bool(Tried(0, "", transaction, Result(0)).commands(option))


def acknowledges(transaction: Transaction) -> bool:
    """A consumer's transaction that deletes a command."""
    return any(isinstance(w, DeleteNode) and CHANNEL.search(w.path) for w in transaction.writes)


def releases(transaction: Transaction) -> bool:
    """A consumer's transaction that empties an owner, or deletes its claim."""
    owners = [w for w in transaction.writes if "/owners/" in w.path]
    return any(isinstance(w, DeleteNode) or (isinstance(w, SetNode) and not w.data) for w in owners)


def registers(transaction: Transaction) -> bool:
    """A consumer's transaction that makes it a member."""
    return any(isinstance(w, CreateNode) and "/ids/" in w.path for w in transaction.writes)


def makes_channel(transaction: Transaction) -> bool:
    """A consumer's transaction that creates its channel."""
    first = transaction.writes[0]
    return len(transaction.writes) == 1 and isinstance(first, CreateNode) and bool(CHANNEL.search(first.path))


def unversioned(transaction: Transaction) -> Iterator[str]:
    """The sets and deletes that carry no version."""
    for write in transaction.writes:
        if isinstance(write, SetNode | DeleteNode) and write.version < 0:
            yield f"{type(write).__name__} {write.path} without a version"


# -- an application that answers late


def hold_calls(application: Application) -> Callable[[], None]:
    """From now on the application answers no callback. The returned function lets it answer again, in order."""
    application._next_call = lambda: None  # type: ignore[method-assign]

    def go_on() -> None:
        del application._next_call  # type: ignore[attr-defined]
        if application._calls:
            application._next_call()

    return go_on
