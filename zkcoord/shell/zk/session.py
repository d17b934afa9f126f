"""One ZooKeeper session, from its first connection to its end. Its kazoo client is never used again.

Only the link decides whether a request may be sent: while it is not CONNECTED, nothing is queued. (kazoo itself would
queue requests and send them later, after an expiry in a new session that nobody asked for.)
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, SASLException, UnimplementedError
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.logs import NOTICE
from zkcoord.shell.ports import Heard, Link, LinkChanged, StoreInput, WatchFired
from zkcoord.shell.zk import jute, multi, multiread
from zkcoord.shell.zk.abilities import Abilities
from zkcoord.shell.zk.config import Address, ZooKeeperConfig
from zkcoord.shell.zk.connection import Call, Connection
from zkcoord.shell.zk.handler import OrderedHandler
from zkcoord.shell.zk.jute import Event, Op
from zkcoord.shell.zk.watches import Watches
from zkcoord.tree.snapshot import Kind

RETRY_DELAY_MS, RETRY_DELAY_MAX_MS = 100, 2_000
"""ms of the pause after all servers were tried in vain. It doubles each time, up to the second value: a restarted
server is found within that."""
PROBES_LOST_MAX = 2
"""Number of multi-read probes in a row whose connection breaks without an answer. Then the server is taken to have no
multi-read."""
EXIT_WAIT_MS = 2_000
"""ms for which the end of the interpreter waits for a session to be closed, so that its ephemeral nodes go at once."""
TROUBLE_EVERY_S = 60

T = TypeVar("T")

_LOG = logging.getLogger("zkcoord.zk")
_KAZOO_LOG = logging.getLogger("zkcoord.zk.kazoo")
if _KAZOO_LOG.level == logging.NOTSET:
    _KAZOO_LOG.setLevel(logging.CRITICAL)  # it warns at every attempt; important messages are logged by this module


class _OnceAMinute(logging.Filter):
    """Lets a record through if none passed in the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_s: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        last = self._passed_s
        if last is not None and 0 <= record.created - last < TROUBLE_EVERY_S:
            return False
        self._passed_s = record.created
        return True


class Session(KazooClient):  # type: ignore[misc] # kazoo has no annotations
    """Reports inputs to `sink`, and errors that somebody must act on to `fatal`, in order, one at a time.

    With `prompt` both are called where something happens, usually on the connection's thread. Then they must return at
    once and wait for nobody. Without it they have a thread of their own. Nothing is reported after LOST, and after
    `finish`.
    """

    def __init__(
        self,
        address: Address,
        session_timeout_ms: int,
        config: ZooKeeperConfig,
        abilities: Abilities,
        sink: Callable[[StoreInput], None],
        fatal: Callable[[ZkcoordError], None],
        *,
        prompt: bool = False,
        told: Callable[[bool], None],
    ) -> None:
        handler = OrderedHandler()
        retry = KazooRetry(
            max_tries=-1,
            delay=RETRY_DELAY_MS / 1000,
            max_delay=RETRY_DELAY_MAX_MS / 1000,
            sleep_func=handler.sleep_func,
        )
        settings = config.client_settings()
        super().__init__(
            hosts=address.hosts_text, handler=handler, connection_retry=retry, logger=_KAZOO_LOG, **settings
        )
        self._session_timeout = session_timeout_ms
        self._connection = Connection(self, self._conn_retry.copy(), _KAZOO_LOG, settings["sasl_options"])
        self.address = address
        self.abilities = abilities
        self.multi_read = abilities.multi_read
        self.last_trouble = ""
        self._sink = sink
        self._fatal = fatal
        self._prompt = prompt
        self._told = told
        self._together = False  # True while the connection's thread reports events that arrived together
        self._sends = False  # True if it will send the queued requests right after that
        self._lock = threading.RLock()
        self.watches = Watches(self._lock)  # of the present connection
        self._linked = False  # True while requests may be sent
        self._checked = False  # True once the chroot was seen
        self._closing = False  # True once the caller has closed it
        self._over = False  # True once nothing is reported any more
        self._woken = False  # True while a byte is in the wake-up socket, or is about to be
        self._waking = threading.Lock()  # held while writing to the wake-up socket, so that it is not closed meanwhile
        self._probes_lost = 0
        self._negotiated_ms = 0
        self._quiet = _OnceAMinute()

    # for the store, from any thread

    def open(self) -> None:
        """Begin to connect. Returns at once."""
        atexit.register(self._at_exit)
        self.start_async()

    def send(self, make: Callable[[], Sequence[Call]]) -> bool:
        """Queue requests, in order. Returns False if it is not connected; then none was queued.

        `make` is called while neither the connection nor its `watches` can change.
        """
        with self._lock:
            if not self._linked:
                return False
            self._queue.extend((call, call) for call in make())
            asleep = not self._woken and not self._sends
            self._woken |= asleep
        # not under the lock: the write lets other threads run, and the connection's thread would wait for the lock at
        # once
        if asleep:
            self._write_wakeup()
        return True

    def absolute(self, path: str) -> str:
        """Return `path` as the server writes it."""
        return multi.absolute(self.address.chroot, path)

    def post(self, item: StoreInput) -> None:
        """Report `item` after everything that was reported before."""
        self._report(self._sink, item)

    def tell(self, error: ZkcoordError) -> None:
        """Log an error that somebody must act on, and report it to `fatal` in the order of the inputs."""
        _LOG.error("%s", error)
        self._report(self._fatal, error)

    def drop(self) -> None:
        """Break the connection. The session goes on with the next server."""
        self._connection.drop()

    def finish(self) -> None:
        """End the session, and report nothing more. Returns at once. Any thread may call it. Idempotent."""
        with self._lock:
            if self._closing:
                return
            self._closing = self._over = True
            self._end()

    def join(self, timeout_ms: int) -> bool:
        """Wait until the session and its threads have ended. False if that takes longer."""
        routine: threading.Thread | None = self._connection._connection_routine
        if routine is not None and routine is not threading.current_thread():
            routine.join(timeout_ms / 1000)
            if routine.is_alive():
                return False
        return bool(self.handler.join(timeout_ms))

    @property
    def keeps_watches(self) -> bool:
        """True when the server can be asked for persistent watches."""
        return bool(self.multi_read) and self.abilities.keeps_watches

    def no_kept_watches(self, why: str) -> None:
        """Go on without persistent watches, on a new connection: on this one, changes of nodes read since those watches
        were requested would not be reported. `why` is the server's error."""
        self.abilities.no_kept_watches(self.address.hosts_text, why)
        self.drop()

    def no_multi_read(self) -> None:
        """Close the connection before the server does. The server has answered that it knows no multi-read."""
        self.multi_read = self.abilities.multi_read = False
        self.drop()

    # for the connection, on its thread

    def take_wakeup(self) -> None:
        """The wake-up byte was read."""
        with self._lock:
            self._woken = False

    def wake(self) -> None:
        """Make the connection's thread look into the queue."""
        with self._lock:
            asleep, self._woken = not self._woken, True
            if asleep:
                self._write_wakeup()

    def _write_wakeup(self) -> None:
        with self._waking:
            socket = self._connection._write_sock
            if socket is not None:
                socket.send(b"\0")

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Report everything that arrives in this context in one go, then send the resulting requests at once."""
        self._together = self._sends = True
        try:
            yield
        finally:
            self._together = False
            self._told(True)
            with self._lock:
                self._sends = False
        self._connection.send_queued()

    def connected(self, session_timeout_ms: int) -> None:
        """Take in an accepted session. The first time, check the chroot and try a multi-read."""
        self._negotiated_ms = session_timeout_ms
        self._tell_timeout(session_timeout_ms)
        if self._checked and self.multi_read is not None:
            self._link_up()
            return
        self._first(Op.EXISTS, jute.path_watch(self.address.chroot or "/", False), self._saw_chroot)

    def _tell_timeout(self, given_ms: int) -> None:
        """Log once for each value that the server gives another timeout than requested. Short sessions of tools log
        nothing."""
        if given_ms != self._session_timeout and given_ms != self.abilities.told_timeout_ms and self._prompt:
            self.abilities.told_timeout_ms = given_ms
            _LOG.warning(
                "ZooKeeper gives sessions %d ms, not the %d ms that were asked for, within its limits"
                " (minSessionTimeout, maxSessionTimeout): ask for what it gives, or have them changed",
                *(given_ms, self._session_timeout),
            )

    def fired(self, event: Event, path: str) -> None:
        """Report a watch event. A missing node is watched by exists for data and children alike, so CREATED reports
        both."""
        if not self.watches.fired(event, path):
            return
        path = path.removeprefix(self.address.chroot) or "/"
        self.post(WatchFired(path, data=event is not Event.CHILD, children=event is not Event.CHANGED))

    def hears(self) -> None:
        """Report that more of a large reply has come."""
        self.post(Heard())

    def trouble(self, what: str) -> None:
        """One server could not be reached, or no name resolved."""
        self.last_trouble = what

    def unreachable(self) -> None:
        """Log, at most once a minute, that all servers were tried in vain."""
        if self._stopped.is_set():
            return
        text = f"ZooKeeper cannot be reached at {self.address.hosts_text} ({self.last_trouble}): still trying"
        record = _LOG.makeRecord(_LOG.name, logging.WARNING, __file__, 0, text, (), None)
        if _LOG.isEnabledFor(logging.WARNING) and self._quiet.filter(record):
            self.abilities.told_unreachable = True
            _LOG.handle(record)

    def ended(self, error: BaseException | None) -> None:
        """The connection's thread ends: report LOST, and release everything that the session holds."""
        if isinstance(error, SASLException):
            self.tell(UsageError(f"ZooKeeper: SASL authentication is not possible: {error}"))
        elif error is not None:
            _LOG.error("the ZooKeeper connection failed", exc_info=error)
        with self._lock:
            self._connection.connection_stopped.set()
            with self._waking:
                self._connection.close()
            self._lose()
        self.handler.finish()
        atexit.unregister(self._at_exit)

    # inside

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.CONNECTED:
            super()._session_callback(state)
            return  # the link is up only after authentication: `connected`
        with self._lock:
            was_linked, self._linked = self._linked, False
            self.watches = Watches(self._lock)
            if state == KeeperState.CONNECTING:
                if was_linked:
                    self.post(LinkChanged(Link.SUSPENDED, self._session_id or 0, self._negotiated_ms))
            else:
                self._stopped.set()  # otherwise kazoo opens another session
        if state == KeeperState.AUTH_FAILED:
            self.tell(UsageError(f"ZooKeeper at {self.address.hosts_text} refuses our credentials: correct them"))
        super()._session_callback(state)  # this answers requests in flight and queued ones
        if state != KeeperState.CONNECTING:
            self._lose()

    def _link_up(self) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._linked = True
            told, self.abilities.told_unreachable = self.abilities.told_unreachable, False
            if told:
                _LOG.log(NOTICE, "ZooKeeper can be reached again at %s", self.address.hosts_text)
            self.post(LinkChanged(Link.CONNECTED, self._session_id, self._negotiated_ms))

    def _lose(self) -> None:
        with self._lock:
            self.post(LinkChanged(Link.LOST))
            self._over = True

    def _saw_chroot(self, error: int, _frame: bytes, _offset: int) -> None:
        if error == NoNodeError.code:
            self.tell(
                UsageError(
                    f"the chroot {self.address.chroot} does not exist in ZooKeeper at {self.address.hosts_text}:"
                    " create it, or correct the connect string"
                )
            )
            with self._lock:
                self._end()
            return
        if error:
            return  # the connection broke: repeated on the next one
        self._checked = True
        if self.multi_read is not None:
            self._link_up()
            return
        probe = next(multiread.chunks([(self.address.chroot or "/", Kind.DATA)]))[1]
        # sent alone, since the answer "unknown" overtakes the answers to other requests
        self._first(Op.MULTI_READ, probe, self._saw_probe)

    def _saw_probe(self, error: int, _frame: bytes, _offset: int) -> None:
        if not error:
            self.multi_read = self.abilities.multi_read = True
            self._link_up()
            return
        self._probes_lost += 1
        if error == UnimplementedError.code:
            self.no_multi_read()
        elif self._probes_lost >= PROBES_LOST_MAX:
            self.multi_read = False  # a guess, for this session only

    def _first(self, op: Op, body: bytes, answer: Callable[[int, bytes, int], None]) -> None:
        """Send this before any other request."""
        with self._lock:
            call = Call(op, body, answer)
            self._queue.append((call, call))
            self.wake()

    def _end(self) -> None:
        self._linked = False
        self._stopped.set()
        self._queue.append((CloseInstance, None))
        self.wake()

    def _report(self, to: Callable[[T], None], item: T) -> None:
        with self._lock:
            if self._over:
                return
            if not self._prompt:
                self.handler.submit(partial(self._deliver, to, item))
                return
            to(item)
        if not self._together:
            self._told(False)

    def _deliver(self, to: Callable[[T], None], item: T) -> None:
        if not self._closing:
            to(item)

    def _at_exit(self) -> None:
        self.finish()
        self.join(EXIT_WAIT_MS)

    @property
    def refused(self) -> bool:
        """True if nobody listened anywhere in the last round: each server refused, or no name had an address."""
        return self._connection.refused

    def unavailable(self, waited_ms: int) -> UnavailableError:
        """Return the error that no server answered in this time, with what to do."""
        trouble = f" (last: {self.last_trouble})" if self.last_trouble else ""
        return UnavailableError(
            f"ZooKeeper at {self.address.hosts_text} did not answer within {waited_ms} ms{trouble}:"
            " check that it runs and that the address is right, then try again"
        )
