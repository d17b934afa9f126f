"""Shared by the tests of `shell.zk`: a session that records its inputs and waits for answers, and a link that can be
cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tests.relay import DEADLINE_S, Relay
from zkcoord.errors import ZkcoordError
from zkcoord.shell.ports import CommitDone, Link, LinkChanged, ReadDone, StoreInput, SyncDone
from zkcoord.shell.zk.store import KazooStore, zookeeper_sessions
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction, Write

T = TypeVar("T")


class Recorder:
    """A session that keeps its inputs in `seen`, in order. Each call below waits for its answer."""

    def __init__(self, connect: str, **settings: Any) -> None:
        self.seen: list[StoreInput] = []
        self.fatal: list[ZkcoordError] = []
        self._changed = threading.Condition()
        self._token = 0
        self.store: KazooStore = zookeeper_sessions(connect, fatal=self.fatal.append, **settings)(self._take)

    def _take(self, item: StoreInput) -> None:
        with self._changed:
            self.seen.append(item)
            self._changed.notify_all()

    def wait(self, wanted: Callable[[list[StoreInput]], T]) -> T:
        """Wait until `wanted(seen)` is true, and return its value."""
        with self._changed:
            found = self._changed.wait_for(lambda: wanted(self.seen), DEADLINE_S)
            assert found, f"not within {DEADLINE_S} s; seen: {self.seen}"
            return found

    def linked(self, link: Link, times: int = 1) -> LinkChanged:
        """Wait until the link has changed to `link` for the `times`-th time."""
        found = self.wait(lambda seen: [x for x in seen if isinstance(x, LinkChanged) and x.link is link][times - 1 :])
        return found[0]

    def links(self) -> list[Link]:
        """The changes of the link, in order."""
        return [x.link for x in self.seen if isinstance(x, LinkChanged)]

    def token(self) -> int:
        """A new token."""
        self._token += 1
        return self._token

    def answer(self, token: int) -> Any:
        """Wait for the answer to a token."""
        done = (ReadDone, CommitDone, SyncDone)
        return self.wait(lambda seen: [x for x in seen if isinstance(x, done) and x.token == token])[0]

    def read(self, *reads: Read) -> ReadDone:
        """Read and wait."""
        token = self.token()
        self.store.read(token, reads)
        answer: ReadDone = self.answer(token)
        return answer

    def ask(self, *reads: Read) -> tuple[Node, ...] | None:
        """The nodes of a read."""
        return self.read(*reads).nodes

    def commit(self, *writes: Write) -> CommitDone:
        """Commit and wait."""
        token = self.token()
        self.store.commit(token, Transaction(writes=writes))
        answer: CommitDone = self.answer(token)
        return answer

    def sync(self) -> SyncDone:
        """Sync and wait."""
        token = self.token()
        self.store.sync(token)
        answer: SyncDone = self.answer(token)
        return answer

    def close(self) -> None:
        """Close, and check that no thread is left."""
        self.store.close()
        assert self.store.join(int(DEADLINE_S * 1000))


@contextlib.contextmanager
def session(connect: str, **settings: Any) -> Iterator[Recorder]:
    """A connected session."""
    recorder = Recorder(connect, **settings)
    try:
        recorder.linked(Link.CONNECTED)
        yield recorder
    finally:
        recorder.close()


class Proxy(Relay):
    """A link to one server. `down` refuses and cuts connections, `stall` drops everything that is sent. Opcodes in
    `unknown` are answered with an error, as a server does that does not know them."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._flowing = True
        self.unknown: set[int] = set()
        super().__init__()

    def down(self) -> None:
        """Cut all connections and refuse new ones."""
        self.is_down = True
        self.cut()

    def up(self) -> None:
        """Accept again."""
        self.is_down = False

    def stall(self) -> None:
        """Drop everything that is sent from now on, on every connection."""
        self._flowing = False

    def flow(self) -> None:
        """End the stall."""
        self._flowing = True

    def target_port(self) -> int:
        """The port to which a new connection is led."""
        return self._target_port

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Answer an unknown opcode as a server does, and end the connection."""
        if up and not first and struct.unpack_from("!i", frame, 4)[0] in self.unknown:
            sender.sendall(struct.pack("!iiqi", 16, struct.unpack_from("!i", frame)[0], 0, -6))
            raise ConnectionError
        return frame if self._flowing else None

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
