"""`TreeStore` on ZooKeeper: requests to calls, answers to inputs. The chroot is put before every path here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kazoo.exceptions import BadArgumentsError, NoAuthError, NoNodeError, UnimplementedError

from zkcoord import settings
from zkcoord.errors import UsageError, ZkcoordError, invariant
from zkcoord.shell.ports import CommitDone, Outcome, ReadDone, StoreInput, SyncDone, Unreadable, too_large
from zkcoord.shell.zk import jute, multi, multiread
from zkcoord.shell.zk.config import ZooKeeperConfig, parse_connect
from zkcoord.shell.zk.connection import CONNECTION_LOSS, FRAME_BYTES_MAX, TOO_LARGE, Call
from zkcoord.shell.zk.jute import Op
from zkcoord.shell.zk.session import Abilities, Session
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import Transaction

SESSION_TIMEOUT_MS_MAX = 2**31 - 1  # a session is asked for with 32 bits
ROUNDS_MAX = 10
"""How often a watched read looks again at a node that is deleted and created in between: then it counts as unread."""

WATCHES_MIN = 4
"""Watched reads of data that are asked for together: fewer are quicker one by one, which needs one round trip."""

NO_NODE: int = NoNodeError.code
_UNREADABLE = {
    NoAuthError.code: "ZooKeeper refuses to let us read it (NoAuth): an operator must grant READ",
    BadArgumentsError.code: "ZooKeeper refuses to let us read it (BadArguments): its path is none",
    TOO_LARGE: f"the answer is larger than {FRAME_BYTES_MAX} bytes: an operator must remove some of what is there",
}
"""Errors of a read that asking again does not mend, for people. (All others but NoNode are the connection's or the
session's.)"""


def ignore(_error: ZkcoordError) -> None:
    """Do nothing about an error that ends a session: the log has it."""


class KazooStore:
    """One session (`shell.ports.TreeStore`). Before the first CONNECTED, while SUSPENDED and after an expiry nothing is
    sent: reads are answered unread, commits UNKNOWN, at once. After LOST and after `close` nothing is reported."""

    def __init__(self, session: Session, acl: bytes) -> None:
        self._session = session
        self._chroot = session.address.chroot
        self._acl = acl

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """See `TreeStore.read`. Reads are executed in order; a run of data reads is one multi-read.

        That leaves no watches, so a setWatches behind it does, as of the state that the multi-read has answered: the
        server tells at once of what has changed since. A few watched reads are asked for one by one.

        Several requests have several answers: an event between this call and its ReadDone may be of a watch that this
        call has left. The ReadDone then still shows the state before the event.
        """
        reading = _Reading(token, tuple(reads), self)
        if not reading.reads:
            self._session.post(ReadDone(token, ()))
        elif not self._session.send(reading.calls()):
            reading.fail()

    def commit(self, token: int, transaction: Transaction) -> None:
        """See `TreeStore.commit`."""
        body = multi.encode(transaction, self._chroot, self._acl)
        if len(body) > multi.REQUEST_BYTES_MAX:
            self._session.post(too_large(token, transaction))
        elif not self._session.send([Call(Op.MULTI, body, partial(self._committed, token, transaction))]):
            self._session.post(CommitDone(token, Outcome.UNKNOWN, reason=multi.reason(CONNECTION_LOSS)))

    def sync(self, token: int) -> None:
        """See `TreeStore.sync`."""
        body = jute.text(self._chroot or "/")
        if not self._session.send([Call(Op.SYNC, body, partial(self._synced, token))]):
            self._session.post(SyncDone(token, ok=False))

    def drop_connection(self) -> None:
        """See `TreeStore.drop_connection`."""
        self._session.drop()

    def close(self) -> None:
        """See `TreeStore.close`. Nothing is reported after it; requests in flight are still executed."""
        self._session.finish()

    def join(self, timeout_ms: int) -> bool:
        """Wait, after `close`, until the session has ended and no thread of it is left. False: not in time."""
        return self._session.join(timeout_ms)

    @property
    def session(self) -> Session:
        """The session below."""
        return self._session

    def absolute(self, path: str) -> str:
        """Return `path` as the server spells it."""
        return multi.absolute(self._chroot, path)

    def _committed(self, token: int, transaction: Transaction, error: int, frame: bytes, offset: int) -> None:
        done = multi.decode(token, error, frame, offset, transaction.sequential())
        cut = len(self._chroot)
        self._session.post(done._replace(made=tuple(path[cut:] for path in done.made)) if done.made and cut else done)

    def _synced(self, token: int, error: int, _frame: bytes, _offset: int) -> None:
        self._session.post(SyncDone(token, ok=not error))


class _Reading:
    """One `read` on its way. After it was sent everything here happens on the connection's thread."""

    __slots__ = ("_left", "_nodes", "_over", "_rounds", "_store", "_unreadable", "reads", "token")

    def __init__(self, token: int, reads: tuple[Read, ...], store: KazooStore) -> None:
        self.token = token
        self.reads = reads
        self._store = store
        self._nodes: list[Node | None] = [None] * len(reads)
        self._left = len(reads)
        self._over = False
        self._rounds = 0
        self._unreadable: dict[int, Unreadable] = {}

    def calls(self) -> list[Call]:
        """Return the requests, in the order of the reads."""
        calls: list[Call] = []
        first, count = 0, len(self.reads)
        together = sum(read.watch and read.kind is Kind.DATA for read in self.reads) >= WATCHES_MIN
        while first < count:
            end = first
            while end < count and self.reads[end].kind is Kind.DATA and (together or not self.reads[end].watch):
                end += 1
            if end - first > 1 and self._store.session.multi_read:
                for size, body in multiread.chunks([self._path(n) for n in range(first, end)]):
                    calls.append(Call(Op.MULTI_READ, body, partial(self._bulk, first)))
                    first += size
                continue
            end = max(end, first + 1)
            calls.extend(self._ask(n) for n in range(first, end))
            first = end
        return calls

    def fail(self) -> None:
        """Answer unread, once: the connection broke."""
        if not self._over:
            self._over = True
            self._store.session.post(ReadDone(self.token, None, tuple(self._unreadable.values())))

    def _path(self, index: int) -> str:
        return self._store.absolute(self.reads[index].path)

    def _ask(self, index: int) -> Call:
        read = self.reads[index]
        op = Op.GET_DATA if read.kind is Kind.DATA else Op.GET_CHILDREN
        return Call(op, jute.path_watch(self._path(index), read.watch), partial(self._answer, index))

    def _answer(self, index: int, error: int, frame: bytes, offset: int) -> None:
        read = self.reads[index]
        if error == NO_NODE and read.watch:  # the watch of a failed read was not left: exists leaves one
            look = jute.path_watch(self._path(index), True)
            self._again(Call(Op.EXISTS, look, partial(self._looked, index)))
        elif error:
            self._refused(index, error)
        elif read.kind is Kind.DATA:
            data, stat, _ = jute.read_data(frame, offset)
            self._settle(index, Node(read.path, read.kind, stat, data))
        else:
            names, stat = jute.read_children(frame, offset)
            self._settle(index, Node(read.path, read.kind, stat, children=names))

    def _looked(self, index: int, error: int, _frame: bytes, _offset: int) -> None:
        if not error:
            self._again(self._ask(index))  # created in between
        else:
            self._refused(index, error)

    def _bulk(self, first: int, error: int, frame: bytes, offset: int) -> None:
        if error:
            if error == UnimplementedError.code:
                self._store.session.no_multi_read()
            elif error == TOO_LARGE:  # all together, or one of them? one by one it will be seen
                self._store.session.multi_read = False
            self.fail()
            return
        there: dict[int, Node] = {}
        missing: list[int] = []
        for index, (code, data, stat) in enumerate(multiread.answers(frame, offset), start=first):
            watch, node = self.reads[index].watch, Node(self.reads[index].path, Kind.DATA, stat, data)
            if not code and watch:
                there[index] = node
            elif not code:
                self._settle(index, node)
            elif code == NO_NODE and watch:
                missing.append(index)
            else:
                self._refused(index, code)
        if there or missing:
            zxid: int = jute.REPLY.unpack_from(frame)[1]
            body = jute.watches(zxid, [self._path(n) for n in there], [self._path(n) for n in missing])
            call = Call(Op.SET_WATCHES, body, partial(self._watched, there, missing))
            if self._over or not self._store.session.send([call]):
                self.fail()

    def _watched(self, there: dict[int, Node], missing: list[int], error: int, _frame: bytes, _offset: int) -> None:
        if error:
            self.fail()
            return
        for index, node in there.items():
            self._settle(index, node)
        for index in missing:
            self._refused(index, NO_NODE)

    def _refused(self, index: int, error: int) -> None:
        if error == NO_NODE:
            self._settle(index, Node(self.reads[index].path, self.reads[index].kind, None))
            return
        why = _UNREADABLE.get(error)
        if why is None:
            self.fail()
            return
        read = self.reads[index]
        self._unreadable[index] = Unreadable(read.path, read.kind, why, breaks_link=error == TOO_LARGE)
        self._one_less()

    def _again(self, call: Call) -> None:
        self._rounds += 1
        if self._over or self._rounds > ROUNDS_MAX * len(self.reads) or not self._store.session.send([call]):
            self.fail()

    def _settle(self, index: int, node: Node) -> None:
        invariant(self._nodes[index] is None, f"{node.path} was answered twice")
        self._nodes[index] = node
        self._one_less()

    def _one_less(self) -> None:
        """Count one more answer, and report when all have come."""
        self._left -= 1
        if not self._left and not self._over:
            self._over = True
            nodes = tuple(node for node in self._nodes if node is not None)
            self._store.session.post(ReadDone(self.token, nodes, tuple(self._unreadable.values())))


class KazooSessions:
    """Opens sessions (`shell.ports.StoreFactory`); see `zookeeper_sessions`."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        config: ZooKeeperConfig,
        fatal: Callable[[ZkcoordError], None],
        *,
        prompt: bool,
    ) -> None:
        self.address = parse_connect(connect)
        self._session_timeout_ms = session_timeout_ms
        self._config = config
        self._fatal, self._prompt = fatal, prompt
        self._abilities = Abilities()

    def __call__(self, sink: Callable[[StoreInput], None]) -> KazooStore:
        """Open a session; returns at once."""
        asked = (self.address, self._session_timeout_ms, self._config, self._abilities)
        session = Session(*asked, sink, self._fatal, prompt=self._prompt)
        store = KazooStore(session, self._config.acl_bytes())
        session.open()
        return store


def zookeeper_sessions(
    connect: str,
    *,
    session_timeout_ms: int = settings.SESSION_TIMEOUT_MS,
    config: ZooKeeperConfig | None = None,
    fatal: Callable[[ZkcoordError], None] = ignore,
    prompt: bool = False,
) -> KazooSessions:
    """Return sessions with ZooKeeper at `connect` (`H:P[,H:P…][/chroot]`); UsageError for an impossible address,
    timeout or `config`.

    A session looks for a server for ever, and logs to `zkcoord.zk` at most once a minute when it finds none. `fatal` is
    called, on the session's thread, for what waiting cannot mend: a missing chroot or refused credentials (LOST
    follows). With `prompt`, sink and `fatal` only pass on what they are given (to an inbox): they are called where an
    answer arrives, without a thread of their own.
    """
    if type(session_timeout_ms) is not int or not 0 < session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise UsageError(f"a session timeout of {session_timeout_ms!r} ms: choose from 1 to {SESSION_TIMEOUT_MS_MAX}")
    if not isinstance(config, ZooKeeperConfig | None):
        raise UsageError(f"zookeeper_config is {config!r}; give what load_config(file) returns")
    return KazooSessions(connect, session_timeout_ms, config or ZooKeeperConfig(), fatal, prompt=prompt)
