"""The store for programs that wait for each answer: the command line, migrations, tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from zkcoord import settings
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError, invariant
from zkcoord.shell.ports import (
    CommitDone,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    StoreInput,
    SyncDone,
    UnreadableError,
    WatchFired,
)
from zkcoord.shell.zk.config import ZooKeeperConfig
from zkcoord.shell.zk.kafka_port import is_broker
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction

CLOSE_WAIT_MS = 2_000
REFUSED_WAIT_MS = 2_000
"""ms for which a first connection is tried while every server refuses it. Then nobody listens there, and waiting helps
only while ZooKeeper starts. A server that is silent may still answer, and a server that has answered before may come
back: these are waited for longer."""

Answer = ReadDone | CommitDone | SyncDone
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Question:
    send: Callable[[int], None] | None  # None: wait for the link only
    sent: bool = False
    answer: Answer | None = None
    error: ZkcoordError | None = None


class Tree:
    """One session. Each call waits at most `deadline_ms`. Any thread may call.

    Raises UnavailableError if ZooKeeper was not reached or did not answer in time (after `refused_wait_ms` if every
    server refuses the first connection), or if the session expired (make a new Tree). Raises UsageError if the address
    is wrong or is Kafka's, the chroot is missing, or the credentials are refused. Raises UnreadableError if nodes may
    not be read.
    """

    def __init__(
        self,
        connect: str,
        *,
        deadline_ms: int = settings.TOOL_TIMEOUT_MS,
        session_timeout_ms: int = settings.SESSION_TIMEOUT_MS,
        config: ZooKeeperConfig | None = None,
        refused_wait_ms: int = REFUSED_WAIT_MS,
        on_change: Callable[[str | None], None] | None = None,
    ) -> None:
        """`on_change` is called on the session's thread: with a path when its watch fires, and with None when all
        watches are lost. It must not block."""
        self._deadline_ms, self._refused_wait_ms = deadline_ms, refused_wait_ms
        self._on_change = on_change
        self._changed = threading.Condition()
        self._questions: dict[int, _Question] = {}
        self._last_token = 0
        self._link = Link.SUSPENDED
        self._session_id = 0
        self._error: ZkcoordError | None = None
        sessions = zookeeper_sessions(
            connect, session_timeout_ms=session_timeout_ms, config=config, fatal=self._remember
        )
        with self._changed:
            self._store = sessions(self._take)

    @property
    def session_id(self) -> int:
        """The session's id, the `ephemeral_owner` of its nodes. It waits for the connection."""
        self._ask(None)
        return self._session_id

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Return the nodes, in the order of `reads`. If the connection breaks, it reads again."""
        answer = self._ask(lambda token: self._store.read(token, reads)).answer
        if not isinstance(answer, ReadDone) or answer.nodes is None:
            raise self._silence()
        return answer.nodes

    def commit(self, transaction: Transaction) -> CommitDone:
        """Commit, and return the outcome. It is sent once: UNKNOWN if the connection broke or the deadline passed
        before the answer."""
        question = self._ask(lambda token: self._store.commit(token, transaction))
        if isinstance(question.answer, CommitDone):
            return question.answer
        if question.sent:
            return CommitDone(-1, Outcome.UNKNOWN, reason="OperationTimeout")
        raise self._silence()

    def sync(self) -> None:
        """Make later reads show everything that anybody wrote before."""
        if self._ask(lambda token: self._store.sync(token)).answer is None:
            raise self._silence()

    def close(self) -> None:
        """End the session, and wait a moment for the end. Idempotent."""
        self._store.close()
        with self._changed:
            self._link = Link.LOST
            self._changed.notify_all()
        self._store.join(CLOSE_WAIT_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, send: Callable[[int], None] | None) -> _Question:
        question = _Question(send=send)
        with self._changed:
            token = self._last_token = self._last_token + 1
            self._questions[token] = question
            try:
                self._send(token, question)
                self._wait_for(partial(self._settled, question))
            finally:
                del self._questions[token]
            error = question.error or self._error
            if error is not None:
                raise error
            if send is None and self._link is not Link.CONNECTED:
                raise self._silence()
        return question

    def _wait_for(self, settled: Callable[[], bool]) -> None:
        """Wait until `settled` holds or the deadline passes. Raises UnavailableError if nobody listens at any address,
        and UsageError if Kafka's brokers listen there."""
        first_ms = min(self._deadline_ms, self._refused_wait_ms)
        if self._changed.wait_for(settled, first_ms / 1000):
            return
        session = self._store.session
        if not self._session_id and session.refused:
            raise session.unavailable(first_ms)
        if not self._session_id and all(is_broker(*each) for each in session.address.hosts):
            raise UsageError(
                f"{session.address.hosts_text} is Kafka, not ZooKeeper: give ZooKeeper's address here, and the brokers'"
                " as --bootstrap-servers"
            )
        self._changed.wait_for(settled, (self._deadline_ms - first_ms) / 1000)

    def _settled(self, question: _Question) -> bool:
        if question.send is None and self._link is Link.CONNECTED:
            return True
        return bool(question.answer or question.error or self._error or self._link is Link.LOST)

    def _send(self, token: int, question: _Question) -> None:
        if question.send is not None and not question.sent and self._link is Link.CONNECTED:
            question.sent = True
            question.send(token)

    def _silence(self) -> ZkcoordError:
        if self._link is Link.LOST:
            return UnavailableError("the ZooKeeper session is over (expired or closed): open another one")
        return self._store.session.unavailable(self._deadline_ms)

    # on the session's thread

    def _remember(self, error: ZkcoordError) -> None:
        with self._changed:
            self._error = error

    def _take(self, item: StoreInput) -> None:
        if self._on_change is not None and isinstance(item, WatchFired):
            self._on_change(item.path)
        if self._on_change is not None and isinstance(item, LinkChanged) and item.link is not Link.CONNECTED:
            self._on_change(None)
        with self._changed:
            match item:
                case LinkChanged(link=link):
                    self._link = link
                    self._session_id = item.session_id or self._session_id
                    for token, question in list(self._questions.items()):
                        self._send(token, question)
                case ReadDone() | CommitDone() | SyncDone():
                    self._answered(item)
            self._changed.notify_all()

    def _answered(self, item: Answer) -> None:
        question = self._questions.get(item.token)
        if question is None:
            return  # nobody waits any more
        invariant(question.answer is None, f"request {item.token} was answered twice")
        unread = (isinstance(item, ReadDone) and item.nodes is None) or (isinstance(item, SyncDone) and not item.ok)
        if isinstance(item, ReadDone) and item.unreadable:
            refused = item.unreadable[0]
            what = f"{self._store.session.absolute(refused.path)}: {refused.why}"
            question.error = UnreadableError(what, item.unreadable)
        elif not unread:
            question.answer = item
        else:
            question.sent = False
            self._send(item.token, question)


class LastingTree:
    """A tree for long-running programs: a failure ends its session, and the next call opens another.

    Any thread may call. Calls fail like those of a `Tree`.
    """

    def __init__(self, open_tree: Callable[[], Tree]) -> None:
        self._open, self._lock = open_tree, threading.Lock()
        self._tree: Tree | None = None
        self._closed = False

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """As for a `Tree`."""
        return self._ask(lambda tree: tree.read(reads))

    def commit(self, transaction: Transaction) -> CommitDone:
        """As for a `Tree`: it is sent once."""
        return self._ask(lambda tree: tree.commit(transaction))

    def sync(self) -> None:
        """As for a `Tree`."""
        self._ask(lambda tree: tree.sync())

    def close(self) -> None:
        """End the session, and open no other. Idempotent."""
        with self._lock:
            self._closed = True
        self._forget(self._tree)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, question: Callable[[Tree], T]) -> T:
        with self._lock:
            if self._closed:
                raise UnavailableError("the ZooKeeper session is closed: the program ends")
            if self._tree is None:
                self._tree = self._open()
            tree = self._tree
        try:
            return question(tree)
        except UnavailableError:
            self._forget(tree)
            raise

    def _forget(self, tree: Tree | None) -> None:
        """Close this session, unless another thread has closed it."""
        with self._lock:
            if tree is None or self._tree is not tree:
                return
            self._tree = None
        tree.close()
