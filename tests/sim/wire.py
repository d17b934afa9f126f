"""One TCP connection between a client and a replica: the messages on their way in either direction."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

from tests.sim.zookeeper import Replica, Session
from zkcoord.shell.ports import StoreInput, Unreadable, WatchFired
from zkcoord.tree.snapshot import Node

READ, COMMIT, SYNC, CLOSE = "read", "commit", "sync", "close"


class Ask:
    """One request on its way. Requests are compared by identity."""

    __slots__ = ("kind", "missing", "nodes", "payload", "token", "unreadable", "waiting")

    def __init__(self, kind: str, token: int, payload: Any = None) -> None:
        self.kind = kind
        self.token = token
        self.payload = payload
        if kind is not READ:
            return
        self.nodes: dict[int, Node] = {}  # place in the request -> its answer so far
        self.unreadable: list[Unreadable] = []
        self.waiting: list[int] = list(range(len(payload)))
        self.missing: list[int] | None = []  # watched nodes that were missing: asked once more (then None)


class Reply(NamedTuple):
    """A message of the server: an answer (`ask` is its request) or a watch event (`ask` is None)."""

    item: StoreInput
    ask: Ask | None
    zxid: int


class Client(Protocol):
    """The owner of the connection."""

    def stir(self) -> None:
        """There may be something to execute or deliver from now on."""


class Wire:
    """The connection, and whether anything gets through."""

    __slots__ = (
        "_client",
        "answers_left",
        "dead",
        "down",
        "listening",
        "open",
        "pinged",
        "replica",
        "replies",
        "requests",
        "sent_ms",
        "session",
        "up",
    )

    def __init__(self, replica: Replica, session: Session, client: Client) -> None:
        self._client = client
        self.replica = replica
        self.session = session
        self.open = True
        self.up = True  # requests and heartbeats get through
        self.down = True  # replies and events get through
        self.dead = False  # a blocked direction never works again
        self.requests: deque[Ask] = deque()
        self.replies: deque[Reply] = deque()
        self.sent_ms = 0  # when the client last sent a request or a heartbeat
        self.listening = self.pinged = False  # see `heartbeats`
        self.answers_left = 0  # the connection breaks after this many answers; 0: never

    @property
    def keeps_watches(self) -> bool:
        """True when the client lets the server keep watches (3.6 and later). The server of every fourth session is
        older."""
        return self.session.id % 4 != 0

    @property
    def whole(self) -> bool:
        """True when a heartbeat is answered (also by a server that is cut off from its leader)."""
        return self.up and self.down

    def answered(self) -> bool:
        """The client took an answer. True when the connection breaks with this answer."""
        self.answers_left -= 1
        return self.answers_left == 0

    def notify(self, path: str, data: bool, children: bool) -> None:
        """A watch of this connection fired."""
        self.reply(Reply(WatchFired(path, data, children), None, 0))

    def ask(self, ask: Ask) -> None:
        """The client sends a request."""
        self.requests.append(ask)
        self._client.stir()

    def reply(self, reply: Reply) -> None:
        """The server sends a message."""
        self.replies.append(reply)
        self._client.stir()
