"""The interfaces of a loop: one ZooKeeper session, callbacks, a clock. The simulated world offers the same.

Nothing here blocks. A request is sent, and its outcome comes back as an input through the inbox, in the order of the
server's answers. Replies and watch events of one session keep their order: a watch event comes before the reply of any
read that shows its change. (ZooKeeper guarantees this, and `shell.zk` preserves it.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from zkcoord.errors import LoopEndedError, UsageError
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import Transaction

TOO_LARGE = "TooLarge"
"""The reason of a refusal when a transaction is larger than servers accept. Data of others can make it so, for example
a record of almost 1 MiB. Then only the group of that record must wait."""


class Outcome(Enum):
    """The outcome of a transaction. All three mean: read again, decide again."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # the connection broke: the transaction may have happened, or may still happen


class Link(Enum):
    """The session's link to the ensemble, as the client sees it."""

    CONNECTED = "connected"  # also after a reconnection in the same session
    SUSPENDED = "suspended"  # all watches are lost; requests in flight come back UNKNOWN or unread
    LOST = "lost"  # the session is over; this store reports nothing more


class WatchFired(NamedTuple):
    """Something changed at `path` (one-shot). `data` and `children` say which of this session's watches it ended."""

    path: str
    data: bool
    children: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A read that would fail again if it were repeated at once. `why` says what is wrong, and who must act.

    `breaks_link`: the answer is too large to be accepted, and each attempt breaks the connection.
    """

    path: str
    kind: Kind
    why: str
    breaks_link: bool = False


class UnreadableError(UsageError):
    """A tool has asked for nodes that it may not read. `refused` holds all of them."""

    def __init__(self, message: str, refused: Sequence[Unreadable]) -> None:
        super().__init__(message)
        self.refused = refused


class ReadDone(NamedTuple):
    """The answers to one `TreeStore.read`, in its order. `nodes` is None if the connection broke meanwhile.

    Nodes in `unreadable` are not in `nodes`, and have no watch. Any other watched read leaves its watch, also on a
    missing node (its creation fires), for data and for children.
    """

    token: int
    nodes: tuple[Node, ...] | None
    unreadable: tuple[Unreadable, ...] = ()


class CommitDone(NamedTuple):
    """The outcome of one `TreeStore.commit`.

    COMMITTED: `versions` holds, for each write, the data version after it (create: 0; check, delete: -1). `made` holds
    the paths of nodes created with a sequence, in the order of their writes. `zxid` is the transaction's number (the
    mzxid of everything that it wrote); 0 if it sets no node, since no other reply tells the number. `alone` names the
    lists of children that it changed and that nobody else has changed since this session read them with a watch. The
    watch goes on; its event for this change came before. REFUSED: `failed_at` is the index of the refused write.
    `reason` is the name of its error (`NoNode`, `NodeExists`, `BadVersion`, `NotEmpty`, `NoAuth`, ...), or TOO_LARGE:
    then it was not sent.
    """

    token: int
    outcome: Outcome
    versions: tuple[int, ...] = ()
    failed_at: int = -1
    reason: str = ""
    made: tuple[str, ...] = ()
    zxid: int = 0
    alone: tuple[str, ...] = ()

    @property
    def answered(self) -> bool:
        """True when a server has answered, with whatever result: the session existed then."""
        return self.outcome is not Outcome.UNKNOWN and self.reason != TOO_LARGE


def too_large(token: int, transaction: Transaction) -> CommitDone:
    """Return the outcome of a transaction that is larger than servers accept. It names the largest write."""
    sizes = [Transaction(writes=(write,)).payload_bytes() for write in transaction.writes]
    return CommitDone(token, Outcome.REFUSED, failed_at=sizes.index(max(sizes)), reason=TOO_LARGE)


def refuse_without_right(done: CommitDone, path: str) -> None:
    """Raises UsageError if the user of a tool may not write."""
    if done.reason == "NoAuth":
        raise UsageError(f"{path}: no right to write there; log in as who may (--zookeeper-config)")


class SyncDone(NamedTuple):
    """The leader answered a `TreeStore.sync` (`ok`), or the connection broke (not `ok`)."""

    token: int
    ok: bool


class LinkChanged(NamedTuple):
    """The session's link changed. `session_timeout_ms` is the NEGOTIATED timeout (valid when CONNECTED)."""

    link: Link
    session_id: int = 0
    session_timeout_ms: int = 0


class CallDone(NamedTuple):
    """A callback of the application returned `value`, or raised `error`. With `part` it is still working on the
    rest."""

    token: int
    value: Any = None
    error: BaseException | None = None
    part: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the program around the loop. `name` is the verb; the answer goes to `future`."""

    name: str
    argument: Any = None
    future: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Heard:
    """A part of a large answer has come: the server is not silent."""


StoreInput = WatchFired | ReadDone | CommitDone | SyncDone | LinkChanged | Heard


class FromStore(NamedTuple):
    """An input of the store that was opened as number `session`. The loop drops inputs of earlier sessions (rule 6)."""

    session: int
    item: StoreInput


Input = FromStore | CallDone | Request


def refuse_requests(inputs: Sequence[Input]) -> None:
    """The loop has ended: end those of these requests that have no answer, with an error."""
    for item in inputs:
        if isinstance(item, Request) and not item.future.done():
            item.future.set_exception(LoopEndedError("the loop has ended"))


class TreeStore(Protocol):
    """One ZooKeeper session. Requests are executed by the server in the order in which they are made here.

    An expired session is never opened again by the store: after LOST it reports nothing more (rule 6).
    """

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """Ask for nodes. One ReadDone answers. Unwatched data reads travel as one multi-read where the server knows
        it."""

    def commit(self, token: int, transaction: Transaction) -> None:
        """Send one multi. One CommitDone answers. Several may be in flight: the server keeps their order."""

    def sync(self, token: int) -> None:
        """Send a sync to the leader. One SyncDone answers. Later reads show everything that happened before the
        answer."""

    def drop_connection(self) -> None:
        """Break the TCP connection (for example to a black hole), so that the client looks for another server in this
        session."""

    def close(self) -> None:
        """End the session. Its ephemeral nodes go at once if a server is reached, else at the session timeout.
        Idempotent."""


class StoreFactory(Protocol):
    """Opens a new session whose inputs go to `sink` (on any thread). It returns at once; CONNECTED comes as an
    input."""

    def __call__(self, sink: Callable[[StoreInput], None]) -> TreeStore: ...


class Callbacks(Protocol):
    """The application of a consumer. `call` returns at once. One CallDone with `token` follows.

    Callbacks are answered in order. `reset` is a question beside them: its answer may come before or after theirs.
    Partial answers to a `stop` may come before its answer; each holds final offsets of partitions that are not read any
    more.
    """

    def call(self, token: int, name: str, argument: Any) -> None: ...


class Clock(Protocol):
    """Monotonic milliseconds, never the wall clock's time."""

    def now_ms(self) -> int: ...
