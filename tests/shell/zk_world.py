"""What the tests of `shell.zk` share: a sink that remembers and waits, and a link that can be cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from zkcoord.errors import ZkcoordError
from zkcoord.shell.ports import CommitDone, Link, LinkChanged, ReadDone, StoreInput, SyncDone
from zkcoord.shell.zk.store import KazooStore, zookeeper_sessions
from zkcoord.tree.snapshot import Node, Read
from zkcoord.tree.writes import Transaction, Write

DEADLINE_S = 120.0  # only what fails takes so long
T = TypeVar("T")


class Recorder:
    """A session whose inputs are kept in `seen`, in order; each call below waits for its answer."""

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
        """What `wanted(seen)` returns as soon as it is true."""
        with self._changed:
            found = self._changed.wait_for(lambda: wanted(self.seen), DEADLINE_S)
            assert found, f"not within {DEADLINE_S} s; seen: {self.seen}"
            return found

    def linked(self, link: Link, times: int = 1) -> LinkChanged:
        """Wait until the link changed to `link` for the n-th time."""
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
        """Close and see that no thread is left."""
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


class Proxy:
    """A link to one server: `down` refuses and cuts, `stall` swallows everything; it does not know opcodes that are
    `unknown`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self.is_down = False
        self.unknown: set[int] = set()
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def hosts(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def down(self) -> None:
        """Cut all connections and refuse new ones."""
        self.is_down = True
        self.cut()

    def up(self) -> None:
        """Accept again."""
        self.is_down = False

    def stall(self) -> None:
        """Swallow what is sent from now on, on every connection."""
        self._flowing.clear()

    def flow(self) -> None:
        """No longer stall."""
        self._flowing.set()

    def cut(self) -> None:
        """Break all connections."""
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            self._sockets.clear()

    def close(self) -> None:
        """End it and its threads."""
        self.is_down = True
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._target_port))
            with self._lock:
                self._sockets += [client, server]
            for one, other, up in ((client, server, True), (server, client, False)):
                self._threads.append(threading.Thread(target=self._pump, args=(one, other, up)))
                self._threads[-1].start()

    def _pump(self, one: socket.socket, other: socket.socket, up: bool) -> None:
        first = True
        with contextlib.suppress(OSError), one.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack("!i", head)[0])
                if up and not first and struct.unpack_from("!i", frame, 4)[0] in self.unknown:
                    one.sendall(struct.pack("!iiqi", 16, struct.unpack_from("!i", frame)[0], 0, -6))
                    break
                first = False
                if self._flowing.is_set():
                    other.sendall(head + frame)
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
