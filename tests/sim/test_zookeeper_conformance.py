"""The simulated ZooKeeper answers as a real one does: one script of operations gives the same transcript in both.

The script is made from a fixed seed without looking at any answer. After each operation every session makes a `sync`,
so that all events of that operation have arrived on both sides before the next line of the transcript.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

import pytest

from tests.sim.options import Options, seeds
from tests.sim.world import World
from zkcoord.shell import ports
from zkcoord.shell.ports import CommitDone, Link, LinkChanged, Outcome, ReadDone, StoreInput, SyncDone, WatchFired
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction, Write

SESSIONS = ("one", "two", "three")
PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/x", "/b/q", "/missing/child")
ANSWER_TIMEOUT_S = 20


class Step(NamedTuple):
    """One operation of one session: open, close, read, commit, or burst (several requests sent without waiting)."""

    session: str
    verb: str
    argument: Any = None


# -- the script


def random_script(seed: int, length: int) -> list[Step]:
    """Operations on few paths, so that they collide. Every session opens first, and may close and open again."""
    rng = Random(seed)
    script = [Step(name, "open") for name in SESSIONS]
    for _ in range(length):
        name = rng.choice(SESSIONS)
        draw = rng.random()
        if draw < 0.03:
            script += [Step(name, "close"), Step(name, "open")]
        elif draw < 0.4:
            script.append(Step(name, "read", random_reads(rng, watch_rate=0.7)))
        elif draw < 0.9:
            script.append(Step(name, "commit", random_transaction(rng)))
        else:
            script.append(Step(name, "burst", [random_request(rng) for _ in range(rng.randint(2, 5))]))
    return script


def random_request(rng: Random) -> list[Read] | Transaction:
    """A transaction, or a read without watches. (A watched read of a missing node is answered after later requests.)"""
    return random_reads(rng, watch_rate=0) if rng.random() < 0.4 else random_transaction(rng)


def random_reads(rng: Random, *, watch_rate: float) -> list[Read]:
    """One to four reads."""
    kinds = (Kind.DATA, Kind.CHILDREN)
    return [Read(rng.choice(PATHS), rng.choice(kinds), rng.random() < watch_rate) for _ in range(rng.randint(1, 4))]


def random_transaction(rng: Random) -> Transaction:
    """One to four writes. Most transactions can be applied; some are refused at each of their writes."""
    return Transaction(writes=tuple(random_write(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4)))))


def random_write(rng: Random) -> Write:
    """One write, with a version that is sometimes right."""
    path, version = rng.choice(PATHS), rng.choice((-1, -1, 0, 0, 1, 2))
    match rng.choice(("create", "create", "create", "sequential", "ephemeral", "set", "set", "delete", "check")):
        case "create":
            return CreateNode(path, rng.randbytes(3))
        case "sequential":
            return CreateNode(path, b"s", ephemeral=rng.random() < 0.3, sequential=True)
        case "ephemeral":
            return CreateNode(path, b"e", ephemeral=True)
        case "set":
            return SetNode(path, rng.randbytes(3), version)
        case "delete":
            return DeleteNode(path, version)
    return CheckNode(path, version)


def commit(name: str, *writes: Write) -> Step:
    """A step that commits."""
    return Step(name, "commit", Transaction(writes=writes))


def watched(name: str, path: str, *kinds: Kind) -> Step:
    """A step that reads and watches a path."""
    return Step(name, "read", [Read(path, kind, True) for kind in kinds])


WRITTEN_SCRIPT = [
    *(Step(name, "open") for name in SESSIONS),
    # counters: of a parent, after deletions, after the parent was created again, within one multi
    commit("one", CreateNode("/p")),
    commit("one", CreateNode("/p", sequential=True), CreateNode("/p", sequential=True)),
    commit("one", CreateNode("/p/plain")),
    commit("one", CreateNode("/p", sequential=True)),
    commit("one", DeleteNode("/p/0000000001", 0), CreateNode("/p", sequential=True)),
    commit("one", CreateNode("/p", sequential=True), CheckNode("/p/nobody", -1)),
    commit("one", CreateNode("/p", sequential=True)),
    Step("one", "read", [Read("/p", Kind.CHILDREN)]),
    commit("one", CreateNode("/r"), CreateNode("/r", sequential=True), DeleteNode("/r/0000000000", 0)),
    commit("one", DeleteNode("/r", 0), CreateNode("/r"), CreateNode("/r", sequential=True)),
    Step("one", "read", [Read("/r", Kind.CHILDREN), Read("/r/0000000000")]),
    watched("two", "/p", Kind.CHILDREN),  # a node that comes and goes in one multi fires a watch, and is counted
    commit("one", CreateNode("/p/brief"), DeleteNode("/p/brief", 0)),
    Step("one", "read", [Read("/p", Kind.CHILDREN), Read("/p")]),
    # each error, at each place of a multi
    commit("two", CreateNode("/p")),
    commit("two", CreateNode("/x/y")),
    commit("two", SetNode("/x", b"", -1)),
    commit("two", DeleteNode("/p", 7)),
    commit("two", DeleteNode("/p", 0)),
    commit("two", CheckNode("/p", 3), CreateNode("/p")),
    commit("two", CreateNode("/e", b"e", ephemeral=True)),
    commit("two", CreateNode("/e/child")),
    commit("two", CreateNode("/e", sequential=True)),
    commit("two", CreateNode("/n"), SetNode("/n", b"1", 0), SetNode("/n", b"2", 1), CheckNode("/n", 2)),
    commit("two", CreateNode("/m"), SetNode("/m", b"1", 0), SetNode("/m", b"2", 0)),
    commit("two", CheckNode("/m", -1)),
    commit("two", DeleteNode("/n", 2), CheckNode("/n", -1)),
    commit("two", DeleteNode("/n", 2), CreateNode("/n"), CheckNode("/n", 0)),
    # watches: of data, of children, both, of missing nodes; ended by each kind of change
    watched("three", "/n", Kind.DATA, Kind.CHILDREN),
    watched("two", "/n", Kind.CHILDREN),
    commit("one", DeleteNode("/n", 0)),
    watched("three", "/n", Kind.DATA),
    watched("two", "/n", Kind.CHILDREN),
    commit("one", CreateNode("/n"), SetNode("/n", b"1", 0)),
    watched("three", "/n", Kind.DATA, Kind.CHILDREN),
    watched("two", "/", Kind.CHILDREN),
    commit("one", CreateNode("/n/c"), SetNode("/n", b"2", 1), DeleteNode("/n/c", 0), DeleteNode("/n", 2)),
    watched("three", "/n", Kind.DATA, Kind.CHILDREN),
    commit("one", CreateNode("/n")),
    watched("one", "/n", Kind.DATA, Kind.CHILDREN),
    commit("one", SetNode("/n", b"own", 0)),
    commit("one", CreateNode("/n/c")),
    # ephemerals end with their session, and fire watches
    watched("three", "/e", Kind.DATA),
    commit("two", CreateNode("/n", b"e", ephemeral=True, sequential=True)),
    watched("three", "/n", Kind.CHILDREN),
    Step("two", "close"),
    Step("three", "read", [Read("/e"), Read("/n", Kind.CHILDREN)]),
    Step("two", "open"),
    commit("two", CreateNode("/e", b"again", ephemeral=True)),
    Step("three", "read", [Read("/e")]),
    # requests that do not wait for answers keep their order
    Step("one", "burst", [Transaction(writes=(SetNode("/n", b"%d" % n, n + 1),)) for n in range(5)]),
    Step(
        "one",
        "burst",
        [
            [Read("/n", Kind.DATA, True)],
            Transaction(writes=(SetNode("/n", b"x", 6),)),
            [Read("/n", Kind.DATA, True), Read("/p", Kind.CHILDREN)],
            Transaction(writes=(SetNode("/n", b"x", 6),)),
            [Read("/n")],
        ],
    ),
]


# -- the two sides


class Side(Protocol):
    """One of the two ensembles. It opens sessions, and runs until `ready`."""

    def open(self, sink: Callable[[StoreInput], None]) -> ports.TreeStore:
        """Open a new session."""

    def wait(self, ready: Callable[[], bool]) -> None:
        """Return when `ready()` is true; fail if that takes too long."""

    def stop(self) -> None:
        """Called when nothing is used any more."""


class Simulated:
    """The side of the simulated ZooKeeper."""

    def __init__(self, seed: int) -> None:
        self._world = World(seed, Options(session_timeout_ms=30_000))
        self._process = self._world.spawn("client", lambda process: Idle())

    def open(self, sink: Callable[[StoreInput], None]) -> ports.TreeStore:
        return self._process.open_session(sink)

    def wait(self, ready: Callable[[], bool]) -> None:
        self._world.run_until(ready, 2_000)

    def stop(self) -> None:
        self._world.stop("client")


class Idle:
    """An actor that does nothing: the transcript uses its stores."""

    def step(self, inputs: list[ports.Input], now_ms: int) -> int | None:
        return None


class Real:
    """The side of a real server. Inputs come on the client's threads, and a queue hands them over."""

    def __init__(self, factory: ports.StoreFactory) -> None:
        self._factory = factory
        self._inputs: queue.Queue[Callable[[], None]] = queue.Queue()

    def open(self, sink: Callable[[StoreInput], None]) -> ports.TreeStore:
        return self._factory(lambda item: self._inputs.put(lambda: sink(item)))

    def wait(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._inputs.get(timeout=ANSWER_TIMEOUT_S)()

    def stop(self) -> None:
        """Do nothing: the transcript has closed the sessions."""


# -- the transcript


@dataclass
class Client:
    """One session of the transcript."""

    name: str
    store: ports.TreeStore
    session_id: int = 0
    answers: dict[int, StoreInput] = field(default_factory=dict)
    events: list[WatchFired] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # answers and events in the order in which they came

    def take(self, item: StoreInput) -> None:
        """Take an input of this session's store."""
        match item:
            case LinkChanged(Link.CONNECTED, session_id):
                self.session_id = session_id
            case LinkChanged(link):
                self.order.append(str(link))
            case WatchFired():
                self.order.append(f"event {item.path} data={item.data} children={item.children}")
            case ReadDone(token) | CommitDone(token) | SyncDone(token):
                self.answers[token] = item
                if not isinstance(item, SyncDone):
                    self.order.append(f"answer {token}")


class Transcript:
    """Runs a script on one side. It writes down what every session saw, in terms that are the same on both sides."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._clients: dict[str, Client] = {}
        self._owners: dict[int, str] = {0: "nobody"}
        self._token = 0
        self.lines: list[Any] = []
        self._zxids: list[int] = []

    def run(self, script: list[Step]) -> list[Any]:
        """The transcript of the whole script. Zxids are replaced by their ranks."""
        try:
            for step in script:
                self._run(step)
        finally:
            for client in self._clients.values():
                client.store.close()
            self._side.stop()
        rank = {zxid: n for n, zxid in enumerate(sorted(set(self._zxids)))}
        return [_ranked(line, rank) for line in self.lines]

    def _run(self, step: Step) -> None:
        if step.verb == "open":
            self._open(step.session)
        elif step.verb == "close":
            self._close(step.session)
        else:
            requests = step.argument if step.verb == "burst" else [step.argument]
            client = self._clients[step.session]
            tokens = [self._send(client, request) for request in requests]
            self._side.wait(lambda: all(token in client.answers for token in tokens))
            self.lines += [(step, self._told(client.answers.pop(token))) for token in tokens]
        self._barrier(ordered=step.verb != "close")

    def _open(self, name: str) -> None:
        box: list[Client] = []
        early: list[StoreInput] = []
        store = self._side.open(lambda item: box[0].take(item) if box else early.append(item))
        client = self._clients[name] = Client(name, store)
        box.append(client)
        for item in early:
            client.take(item)
        self._side.wait(lambda: client.session_id != 0)
        self._owners[client.session_id] = f"{name}, opened at line {len(self.lines)}"

    def _close(self, name: str) -> None:
        """Close the session, and wait until the others can see that (its ephemeral probe is gone)."""
        client, watcher = self._clients.pop(name), next(iter(c for n, c in self._clients.items() if n != name))
        probe = f"/probe-{name}"
        token = self._send(client, Transaction(writes=(CreateNode(probe, ephemeral=True),)))
        self._side.wait(lambda: token in client.answers)
        client.store.close()
        while True:
            token = self._send(watcher, [Read(probe)])
            self._side.wait(lambda token=token: token in watcher.answers)  # type: ignore[misc]
            answer = watcher.answers.pop(token)
            watcher.order.remove(f"answer {token}")
            if isinstance(answer, ReadDone) and answer.nodes and not answer.nodes[0].exists:
                return

    def _send(self, client: Client, request: list[Read] | Transaction) -> int:
        self._token += 1
        if isinstance(request, Transaction):
            client.store.commit(self._token, request)
        else:
            client.store.read(self._token, request)
        return self._token

    def _barrier(self, *, ordered: bool) -> None:
        """Let every session sync. Then write down all answers and events, in order.

        A real server keeps a session's ephemerals in a hash set. So the order in which they are deleted at its end
        depends on their names, including the chroot.
        """
        for client in self._clients.values():
            self._token += 1
            token = self._token
            client.store.sync(token)
            self._side.wait(lambda c=client, t=token: t in c.answers)  # type: ignore[misc]
            del client.answers[token]
        for name in sorted(self._clients):
            order, self._clients[name].order = self._clients[name].order, []
            self.lines += [(name, _relative(order if ordered else sorted(order)))]

    def _told(self, answer: StoreInput) -> Any:
        match answer:
            case CommitDone(_, outcome, versions, failed_at, reason, made, zxid):
                return outcome, versions, failed_at, reason, made, zxid > 0
            case ReadDone(_, nodes) if nodes is not None:
                return [self._node(node) for node in nodes]
        return "unread"

    def _node(self, node: Node) -> Any:
        if node.stat is None:
            return node.path, node.kind, None
        self._zxids += [node.stat.czxid, node.stat.mzxid]
        owner = self._owners.get(node.stat.ephemeral_owner, "unknown")
        told = node.stat.version, node.stat.child_changes, Zxid(node.stat.czxid), Zxid(node.stat.mzxid), owner
        return node.path, node.kind, *told, node.data, node.children


class Zxid(NamedTuple):
    """A transaction's number in a transcript; replaced by its rank."""

    value: int


def _ranked(value: Any, rank: dict[int, int]) -> Any:
    if isinstance(value, Zxid):
        return rank[value.value]
    if isinstance(value, list):
        return [_ranked(each, rank) for each in value]
    if type(value) is tuple:
        return tuple(_ranked(each, rank) for each in value)
    return value


def _relative(order: list[str]) -> list[str]:
    """Replace tokens by their places within the step, since the sides differ in how many reads a close needs."""
    answers = [line for line in order if line.startswith("answer")]
    return [f"answer {answers.index(line)}" if line in answers else line for line in order]


def test_the_simulated_ensemble_answers_its_own_script_twice_the_same() -> None:
    script = random_script(seed=1, length=200)
    assert Transcript(Simulated(1)).run(script) == Transcript(Simulated(2)).run(script)


@pytest.mark.zookeeper
@pytest.mark.parametrize("seed", [None, *seeds(3, first=1)])
def test_the_simulated_and_a_real_zookeeper_answer_the_same(chroot: str, seed: int | None) -> None:
    from zkcoord.shell.zk.store import zookeeper_sessions

    script = WRITTEN_SCRIPT if seed is None else random_script(seed, 250)
    real = Transcript(Real(zookeeper_sessions(chroot, session_timeout_ms=30_000))).run(script)
    simulated = Transcript(Simulated(0)).run(script)
    for line, (expected, found) in enumerate(zip(real, simulated, strict=True)):
        assert found == expected, f"line {line}"
    assert any(told[0] is Outcome.REFUSED for _, told in real if isinstance(told, tuple))
