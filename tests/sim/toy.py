"""A small actor for the simulator's own tests: it counts `/count` up to a goal, by compare-and-set, in one session."""

from __future__ import annotations

from tests.sim.options import Options
from tests.sim.process import SimProcess
from tests.sim.world import World
from tests.sim.zookeeper import Txn
from zkcoord.shell.ports import CommitDone, FromStore, Input, Link, LinkChanged, ReadDone, StoreInput, WatchFired
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import ANY_VERSION, SetNode, Transaction

PATH = "/count"
GOAL = 60
SYNCS_PER_TIMEOUT, LEAVES_AFTER = 6, 4
"""It asks so often in a session timeout, and leaves a server that has not answered for the time of so many."""


class Counter:
    """Reads the count and writes the next one with the version that it read (`blind`: with any version), until the goal
    is reached."""

    def __init__(self, process: SimProcess, *, blind: bool = False, restless: bool = False) -> None:
        self._process = process
        self._blind = blind
        self._restless = restless
        self._sessions = 0
        self._token = 0
        self.inputs: list[StoreInput] = []
        self._open()

    def _open(self) -> None:
        self._sessions += 1
        number, put = self._sessions, self._process.inbox.put
        self.store = self._process.open_session(lambda item: put(FromStore(number, item)))
        self._linked = self._busy = False
        self._node: Node | None = None
        self._sync_ms, self._every_ms = 0, 0
        self._asked_ms: int | None = None  # since when it has had no answer

    def step(self, inputs: list[Input], now_ms: int) -> int | None:
        for item in inputs:
            if isinstance(item, FromStore) and item.session == self._sessions:
                self._take(item.item, now_ms)
        if not self._linked:
            return None
        if not self._busy:
            self._act()
        if now_ms >= self._sync_ms:
            self._sync_ms = now_ms + self._every_ms
            if self._asked_ms is not None and now_ms >= self._asked_ms + LEAVES_AFTER * self._every_ms:
                self.store.drop_connection()  # its pings would not notice this: see `heartbeats`
                return None
            self._asked_ms = now_ms if self._asked_ms is None else self._asked_ms
            self.store.sync(0)
        return self._sync_ms

    def _take(self, item: StoreInput, now_ms: int) -> None:
        self.inputs.append(item)
        self._asked_ms = None
        match item:
            case LinkChanged(Link.LOST):
                self._open()
            case LinkChanged(link, _, timeout_ms):
                self._linked, self._busy, self._node = link is Link.CONNECTED, False, None
                self._sync_ms, self._every_ms = now_ms, timeout_ms // SYNCS_PER_TIMEOUT
            case WatchFired():
                self._node = None
            case ReadDone(_, nodes):
                self._busy = False
                self._node = nodes[0] if nodes else None
            case CommitDone():
                self._busy, self._node = False, None

    def _act(self) -> None:
        node = self._node
        self._token += 1
        if node is None:
            self._busy = True
            self.store.read(self._token, [Read(PATH, watch=True)])
        elif node.stat is not None and (self._restless or int(node.data) < GOAL):
            self._busy = True
            version = ANY_VERSION if self._blind else node.stat.version
            write = SetNode(PATH, b"%d" % (int(node.data) + 1), version)
            self.store.commit(self._token, Transaction(writes=(write,), why="count"))


def counting_world(seed: int, options: Options | None = None, *, counters: int = 4, blind: bool = False) -> World:
    """A world of counters, with a check that no increment is lost."""
    world = World(seed, options)
    world.ensemble.ensure(PATH, b"0")

    def applied(txn: Txn) -> None:
        for path, before, after in txn.changes:
            if path == PATH and before and after and int(after.data) != int(before.data) + 1:
                world.fail(f"an increment was lost: {before.data!r} became {after.data!r}")

    world.ensemble.on_applied.append(applied)
    for n in range(counters):
        world.spawn(f"counter-{n}", lambda process: Counter(process, blind=blind))
    return world


def count(world: World) -> None:
    """Play a storm and a calm; the goal must be reached."""
    world.storm(600)
    world.calm(5_000, quiet_ms=5_000)
    assert int(world.ensemble.data(PATH) or b"0") >= GOAL


def fingerprint(seed: int) -> str:
    """The result of a run of this seed, with its whole trace."""
    world = counting_world(seed)
    count(world)
    return f"{world.random_fingerprint()} {hash_of(world.trace_lines(10_000))}"


def hash_of(lines: list[str]) -> int:
    """A checksum that does not depend on PYTHONHASHSEED."""
    import zlib

    return zlib.crc32("\n".join(lines).encode())
