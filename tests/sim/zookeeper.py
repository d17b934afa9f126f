"""An in-memory ZooKeeper ensemble: the server's behaviour as clients see it. No randomness, no clock.

The leader prepares each transaction against an overlay (all or nothing), appends it to the log and applies it. The
followers apply the same log later, one transaction at a time, so their reads are stale until they catch up. A watch
fires on the replica that its session is connected to, when that replica applies the change.
`test_zookeeper_conformance.py` compares this model with a real server: the model is wrong until that test passes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode, Write

TICK_MS = 2_000
REQUEST_BYTES_MAX = 1 << 20  # the server's jute.maxbuffer: no client sends a larger request


class Znode(NamedTuple):
    """One node as stored; replicas share these values."""

    data: bytes
    stat: Stat


class Change(NamedTuple):
    """The change of one path in a transaction: created (`before` None), deleted (`after` None) or set."""

    path: str
    before: Znode | None
    after: Znode | None


class Result(NamedTuple):
    """The leader's result of a transaction."""

    zxid: int
    versions: tuple[int, ...] = ()
    failed_at: int = -1
    reason: str = ""
    made: tuple[str, ...] = ()


class Session:
    """A session as the leader tracks it. `expires_at_ms` is None while heartbeats arrive."""

    __slots__ = ("alive", "client", "ephemerals", "expires_at_ms", "heard_ms", "id", "process", "timeout_ms")

    def __init__(self, session_id: int, process: str, client: str, timeout_ms: int, now_ms: int) -> None:
        self.id = session_id
        self.process = process
        self.client = client
        self.timeout_ms = timeout_ms
        self.heard_ms = now_ms
        self.expires_at_ms: int | None = now_ms + timeout_ms
        self.ephemerals: dict[str, None] = {}
        self.alive = True


class Txn:
    """One applied transaction, as `Ensemble.on_applied` sees it. `kind`: multi, close or expire."""

    __slots__ = ("changes", "kind", "session", "time_ms", "writes", "zxid")

    def __init__(
        self, zxid: int, time_ms: int, session: Session, kind: str, writes: Sequence[Write], changes: list[Change]
    ) -> None:
        self.zxid = zxid
        self.time_ms = time_ms
        self.session = session
        self.kind = kind
        self.writes = writes
        self.changes = changes


class Watcher(Protocol):
    """One connection, as a replica's watch tables store it."""

    open: bool

    def notify(self, path: str, data: bool, children: bool) -> None:
        """An event for this connection's session."""


class Replica:
    """One server's copy of the tree, and the watches of the sessions connected to it."""

    __slots__ = (
        "child_changes",
        "child_watches",
        "children",
        "cut",
        "data_watches",
        "name",
        "nodes",
        "position",
        "zxid",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: dict[str, Znode] = {"/": Znode(b"", Stat(0, 0, 0))}
        self.children: dict[str, dict[str, None]] = {"/": {}}
        self.child_changes: dict[str, int] = {"/": 0}  # how often children were created or deleted
        self.zxid = 0
        self.position = 0  # how much of the log it has applied
        self.cut = False  # cut off from the leader: answers reads and pings, but no write and no sync
        self.data_watches: dict[str, dict[Watcher, None]] = {}
        self.child_watches: dict[str, dict[Watcher, None]] = {}

    def apply(self, txn: Txn) -> None:
        """Apply the next transaction of the log; watches fire in the order of its changes."""
        self.position += 1
        self.zxid = txn.zxid
        for path, before, after in txn.changes:
            if after is None:
                parent, _, name = path.rpartition("/")
                del self.nodes[path], self.children[path], self.child_changes[path], self.children[parent or "/"][name]
                both = {**self.data_watches.pop(path, {}), **self.child_watches.pop(path, {})}
                _tell(both, path, True, True)  # a session that watches data and children gets one event
                self._children_changed(parent or "/")
            elif before is None:
                parent, _, name = path.rpartition("/")
                self.nodes[path] = after
                self.children[path], self.child_changes[path] = {}, 0
                self.children[parent or "/"][name] = None
                _tell(self.data_watches.pop(path, None), path, True, True)
                self._children_changed(parent or "/")
            else:
                self.nodes[path] = after
                _tell(self.data_watches.pop(path, None), path, True, False)

    def answer(self, read: Read, watcher: Watcher | None) -> Node:
        """The answer to one read; leaves a watch for `watcher`."""
        path, kind, watch = read
        found = self.nodes.get(path)
        if watch and watcher is not None:
            # a children read of a missing node leaves an exists watch, as its client asks for
            children = kind is Kind.CHILDREN and found is not None
            watches = self.child_watches if children else self.data_watches
            watches.setdefault(path, {})[watcher] = None
        if found is None:
            return Node(path, kind, None)
        if kind is Kind.DATA:
            return Node(path, kind, found.stat, found.data)
        stat = Stat(*found.stat[:4], self.child_changes[path], found.stat.mzxid)
        return Node(path, kind, stat, b"", tuple(sorted(self.children[path])))

    def _children_changed(self, path: str) -> None:
        self.child_changes[path] += 1
        _tell(self.child_watches.pop(path, None), path, False, True)


def _tell(watchers: dict[Watcher, None] | None, path: str, data: bool, children: bool) -> None:
    """A creation or deletion ends both kinds of watch, so the client reports both (`shell.zk.session`)."""
    for watcher in watchers or ():
        if watcher.open:
            watcher.notify(path, data, children)


class Draft:
    """One transaction in preparation: an overlay over the leader's tree, which is dropped when a write fails."""

    __slots__ = ("_base", "_child_counts", "_nodes", "_now_ms", "_owner", "_replica", "_zxid", "changes", "created")

    def __init__(self, replica: Replica, created: dict[str, int], session_id: int, zxid: int, now_ms: int) -> None:
        self._replica = replica
        self._nodes: dict[str, Znode | None] = {}
        self._child_counts: dict[str, int] = {}
        self._owner = session_id
        self._zxid = zxid
        self._now_ms = now_ms
        self.created: dict[str, int] = {}  # new values of the parents' counters of created children
        self.changes: list[Change] = []
        self._base = created

    def _get(self, path: str) -> Znode | None:
        return self._nodes[path] if path in self._nodes else self._replica.nodes.get(path)

    def _created_below(self, path: str) -> int:
        return self.created[path] if path in self.created else self._base.get(path, 0)

    def _put(self, path: str, before: Znode | None, after: Znode | None) -> None:
        self._nodes[path] = after
        self.changes.append(Change(path, before, after))

    def make(self, write: Write) -> tuple[str, int]:
        """Prepare one write. Returns its error's name or "", and the data version after it (check, delete: -1)."""
        kind = type(write)
        if kind is CreateNode:
            return self._create(write)  # type: ignore[arg-type]
        node = self._get(write.path)
        if node is None:
            return "NoNode", -1
        if kind is SetNode:
            return self._set(write, node)  # type: ignore[arg-type]
        if write.version not in (ANY_VERSION, node.stat.version):  # type: ignore[union-attr]
            return "BadVersion", -1
        if kind is DeleteNode:
            return self._delete(write.path, node)
        return "", -1

    def _create(self, write: CreateNode) -> tuple[str, int]:
        parent_path = write.path if write.sequential else write.path.rpartition("/")[0] or "/"
        parent = self._get(parent_path)
        if parent is None:
            return "NoNode", -1
        count = self._created_below(parent_path)
        path = f"{parent_path.rstrip('/')}/{count:010d}" if write.sequential else write.path
        if self._get(path) is not None:
            return "NodeExists", -1
        if parent.stat.ephemeral_owner:
            return "NoChildrenForEphemerals", -1
        owner = self._owner if write.ephemeral else 0
        self._put(path, None, Znode(write.data, Stat(0, self._zxid, owner, self._now_ms, 0, self._zxid)))
        self.created[parent_path] = count + 1
        self.created[path] = 0
        self._child_counts[parent_path] = self._child_counts.get(parent_path, 0) + 1
        return "", 0

    def _set(self, write: SetNode, node: Znode) -> tuple[str, int]:
        version, czxid, owner = node.stat[:3]
        if write.version not in (ANY_VERSION, version):
            return "BadVersion", -1
        self._put(write.path, node, Znode(write.data, Stat(version + 1, czxid, owner, self._now_ms, 0, self._zxid)))
        return "", version + 1

    def _delete(self, path: str, node: Znode) -> tuple[str, int]:
        if len(self._replica.children.get(path, ())) + self._child_counts.get(path, 0) > 0:
            return "NotEmpty", -1
        parent_path = path.rpartition("/")[0] or "/"
        self._put(path, node, None)
        self._child_counts[parent_path] = self._child_counts.get(parent_path, 0) - 1
        return "", -1


class Ensemble:
    """A leader (`replicas[0]`), its followers, their sessions and their log. The world sets `now_ms`."""

    def __init__(self, *, followers: int = 0, timeout_min_ms: int = 4_000, timeout_max_ms: int = 40_000) -> None:
        self.leader = Replica("leader")
        self.followers = [Replica(f"follower-{n}") for n in range(1, followers + 1)]
        self.replicas = [self.leader, *self.followers]
        self.timeout_min_ms = timeout_min_ms
        self.timeout_max_ms = timeout_max_ms
        self.now_ms = 0
        self.zxid = 0
        self.digest = 0  # digest of every applied change: two runs of one seed must agree
        self.closed: set[str] = set()  # paths that nobody may read
        self.serving = True  # False: no quorum; nobody can connect, no session expires
        self.log: list[Txn] = []
        self.sessions: dict[int, Session] = {}
        self.starving: dict[Session, None] = {}  # sessions without heartbeats; also some that have them again
        self.on_applied: list[Callable[[Txn], None]] = []
        self._created: dict[str, int] = {}
        self._level = not self.followers  # all replicas have applied the whole log; looked at in every step
        self._sessions_made = 0
        self.operator = Session(0, "operator", "operator", 0, 0)

    # -- sessions

    def open_session(self, process: str, client: str, timeout_ms: int) -> Session:
        """A new session with the negotiated timeout. It expires unless heartbeats arrive."""
        self._sessions_made += 1
        self.zxid = self.leader.zxid = self.zxid + 1
        number = 0x1000_0000 + self._sessions_made
        session = Session(number, process, client, self.negotiated_ms(timeout_ms), self.now_ms)
        self.sessions[session.id] = session
        self.starving[session] = None
        return session

    def starve(self, session: Session, expires_at_ms: int) -> None:
        """No heartbeats of the session arrive: it expires then, unless they arrive again."""
        session.expires_at_ms = expires_at_ms
        if session.alive:
            self.starving[session] = None

    def negotiated_ms(self, timeout_ms: int) -> int:
        """The timeout of a session that asks for `timeout_ms`, at each connection."""
        return min(max(timeout_ms, self.timeout_min_ms), self.timeout_max_ms)

    def end_session(self, session: Session, kind: str) -> None:
        """Close or expire a session: one transaction that deletes its ephemeral nodes."""
        if not session.alive:
            return
        session.alive = False
        del self.sessions[session.id]
        self.starving.pop(session, None)
        self.zxid += 1
        changes = [Change(path, self.leader.nodes[path], None) for path in sorted(session.ephemerals)]
        self._apply(Txn(self.zxid, self.now_ms, session, kind, (), changes))

    def expire_due(self) -> list[Session]:
        """End every session whose timeout is over. Returns those that ended, oldest first."""
        due_ms = self.next_expiry_ms()
        if due_ms is None or due_ms > self.now_ms:
            return []
        due = [s for s in self.sessions.values() if s.expires_at_ms is not None and s.expires_at_ms <= self.now_ms]
        for session in due:
            self.end_session(session, "expire")
        return due

    def next_expiry_ms(self) -> int | None:
        """When the next session without heartbeats expires; None: there is no such session."""
        due_ms = fed = None
        for session in self.starving if self.serving else ():  # called whenever time passes
            at_ms = session.expires_at_ms
            if at_ms is None:
                fed = session
            elif due_ms is None or at_ms < due_ms:
                due_ms = at_ms
        if fed is not None:
            del self.starving[fed]  # removing one at a time is enough
        return due_ms

    # -- transactions

    def submit(self, session: Session, writes: Sequence[Write]) -> Result:
        """Apply all of `writes` at the leader, or none. A refused transaction takes a zxid, too."""
        self.zxid = zxid = self.zxid + 1
        session.heard_ms = self.now_ms
        draft = Draft(self.leader, self._created, session.id, zxid, self.now_ms)
        versions = []
        made = []
        for index, write in enumerate(writes):
            reason, version = draft.make(write)
            if reason:
                self.leader.zxid = zxid
                return Result(zxid, failed_at=index, reason=reason)
            versions.append(version)
            if isinstance(write, CreateNode) and write.sequential:
                made.append(draft.changes[-1][0])
        self._created.update(draft.created)
        for path, before, after in draft.changes:
            if after is None and before is not None and before.stat.ephemeral_owner:
                owner = self.sessions.get(before.stat.ephemeral_owner, session)
                owner.ephemerals.pop(path, None)
            elif before is None and after is not None and after.stat.ephemeral_owner:
                session.ephemerals[path] = None
        self._apply(Txn(zxid, self.now_ms, session, "multi", writes, draft.changes))
        return Result(zxid, tuple(versions), made=tuple(made))

    def catch_up(self, replica: Replica, zxid: int | None = None) -> None:
        """Let a replica apply the log up to `zxid` (None: to its end)."""
        goal = self.zxid if zxid is None else zxid
        log = self.log
        while replica.position < len(log) and log[replica.position].zxid <= goal:
            replica.apply(log[replica.position])
        replica.zxid = max(replica.zxid, goal)

    def behind(self) -> list[Replica]:
        """The followers that may apply the next transaction of the log."""
        if self._level:
            return []
        found = [replica for replica in self.followers if replica.position < len(self.log)]
        self._level = not found
        return [replica for replica in found if not replica.cut]

    def _apply(self, txn: Txn) -> None:
        digest = self.digest
        for path, _, after in txn.changes:
            digest = zlib.crc32(path.encode(), digest)
            digest = zlib.crc32(b"-" if after is None else after.data, digest)
        self.digest = digest
        self.log.append(txn)
        self._level = not self.followers
        self.leader.apply(txn)
        for hook in self.on_applied:
            hook(txn)

    # -- for scenarios and checkers: the leader's state, and an operator's writes

    def operate(self, *writes: Write) -> Result:
        """Apply writes as an operator."""
        return self.submit(self.operator, writes)

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a node and its missing parents as an operator; do nothing if the node exists."""
        parts = path.strip("/").split("/")
        for n in range(1, len(parts) + 1):
            step = "/" + "/".join(parts[:n])
            if step not in self.leader.nodes:
                self.operate(CreateNode(step, data if n == len(parts) else b""))

    def data(self, path: str) -> bytes | None:
        """The leader's data of a node, None if it is missing."""
        found = self.leader.nodes.get(path)
        return None if found is None else found.data

    def stat(self, path: str) -> Stat | None:
        """The leader's stat of a node, None if it is missing."""
        found = self.leader.nodes.get(path)
        return None if found is None else found.stat

    def names(self, path: str) -> list[str]:
        """The sorted names of a node's children at the leader; empty if it is missing."""
        return sorted(self.leader.children.get(path, ()))
