"""`TreeStore` on ZooKeeper: it turns requests into calls, and answers into inputs. It puts the chroot before every
path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from zkcoord import settings
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.shell.ports import CommitDone, Outcome, ReadDone, StoreInput, SyncDone, too_large
from zkcoord.shell.zk import jute, multi
from zkcoord.shell.zk.abilities import Abilities
from zkcoord.shell.zk.config import ZooKeeperConfig, parse_connect
from zkcoord.shell.zk.connection import CONNECTION_LOSS, Call
from zkcoord.shell.zk.jute import Op
from zkcoord.shell.zk.reading import Reading
from zkcoord.shell.zk.session import Session
from zkcoord.shell.zk.watches import Awaited, Watches
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import Transaction

SESSION_TIMEOUT_MS_MAX = 2**31 - 1  # the protocol has 32 bits for it


def ignore(_error: ZkcoordError) -> None:
    """Ignore an error that ends a session: it was logged."""


def _nobody(_here: bool) -> None:
    """Ignore the note that something was reported."""


class KazooStore:
    """One session (`shell.ports.TreeStore`). Before the first CONNECTED, while SUSPENDED and after an expiry nothing is
    sent: reads are answered as unread and commits as UNKNOWN, at once. After LOST and after `close` nothing is
    reported."""

    def __init__(self, session: Session, acl: bytes) -> None:
        self._session = session
        self._chroot = session.address.chroot
        self._acl = acl

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """See `TreeStore.read`.

        Several requests have several answers. So an event between this call and its ReadDone may come from a watch that
        this call has left. Then the ReadDone still shows the state before the event.
        """
        reading = Reading(token, tuple(reads), self._session)
        if not reading.reads:
            self._session.post(ReadDone(token, ()))
        elif not self._session.send(reading.calls):
            reading.fail()

    def commit(self, token: int, transaction: Transaction) -> None:
        """See `TreeStore.commit`."""
        body = multi.encode(transaction, self._chroot, self._acl)
        if len(body) > multi.REQUEST_BYTES_MAX:
            self._session.post(too_large(token, transaction))
            return
        session = self._session
        lists = {session.absolute(path): number for path, number in transaction.listings().items()}

        def call() -> Sequence[Call]:
            watches = session.watches
            answer = partial(self._committed, token, transaction, watches, watches.awaited(lists))
            return (Call(Op.MULTI, body, answer),)

        if not session.send(call):
            session.post(CommitDone(token, Outcome.UNKNOWN, reason=multi.reason(CONNECTION_LOSS)))

    def sync(self, token: int) -> None:
        """See `TreeStore.sync`."""
        body = jute.text(self._chroot or "/")
        if not self._send(Call(Op.SYNC, body, partial(self._synced, token))):
            self._session.post(SyncDone(token, ok=False))

    def drop_connection(self) -> None:
        """See `TreeStore.drop_connection`."""
        self._session.drop()

    def close(self) -> None:
        """See `TreeStore.close`. Nothing is reported after it. Requests in flight are still executed."""
        self._session.finish()

    def join(self, timeout_ms: int) -> bool:
        """After `close`, wait until the session has ended and no thread of it is left. False: that took longer."""
        return self._session.join(timeout_ms)

    def _send(self, call: Call) -> bool:
        return self._session.send(lambda: (call,))

    @property
    def session(self) -> Session:
        """The session below."""
        return self._session

    def _committed(
        self,
        token: int,
        transaction: Transaction,
        watches: Watches,
        awaited: Sequence[Awaited],
        error: int,
        frame: bytes,
        offset: int,
    ) -> None:
        done = multi.decode(token, error, frame, offset, transaction.sequential())
        alone = watches.alone(awaited) if awaited and done.outcome is Outcome.COMMITTED else ()
        if alone or done.made:
            cut = len(self._chroot)
            made, lists = (tuple(path[cut:] or "/" for path in paths) for paths in (done.made, alone))
            done = done._replace(made=made, alone=lists)
        self._session.post(done)

    def _synced(self, token: int, error: int, _frame: bytes, _offset: int) -> None:
        self._session.post(SyncDone(token, ok=not error))


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
        self.told: Callable[[bool], None] = _nobody
        """Called whenever something was reported, and once for all that came together. With True the connection's
        thread calls it and has nothing else to do: the callee may use the store there, for a few milliseconds."""

    def __call__(self, sink: Callable[[StoreInput], None]) -> KazooStore:
        """Open a session. Returns at once."""
        asked = (self.address, self._session_timeout_ms, self._config, self._abilities)
        session = Session(*asked, sink, self._fatal, prompt=self._prompt, told=self.told)
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
    """Return a factory of sessions with ZooKeeper at `connect` (`H:P[,H:P…][/chroot]`). Raises UsageError for an
    impossible address, timeout or `config`.

    A session looks for a server for ever. When it finds none, it logs so to `zkcoord.zk`, at most once a minute.
    `fatal` is called, on the session's thread, for errors that waiting cannot mend: a missing chroot or refused
    credentials (LOST follows). With `prompt`, sink and `fatal` are called where an answer arrives, without a thread of
    their own; so they may only pass on what they are given (to an inbox).
    """
    if type(session_timeout_ms) is not int or not 0 < session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise UsageError(f"a session timeout of {session_timeout_ms!r} ms: choose from 1 to {SESSION_TIMEOUT_MS_MAX}")
    if not isinstance(config, ZooKeeperConfig | None):
        raise UsageError(f"zookeeper_config is {config!r}; give what load_config(file) returns")
    return KazooSessions(connect, session_timeout_ms, config or ZooKeeperConfig(), fatal, prompt=prompt)
