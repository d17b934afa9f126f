"""Tracks the nodes that a loop wants to know: dirty, being read, or clean.

A scope (a group, or the whole tree) is decided on only while none of its nodes is dirty or being read. Every node that
an own transaction touches is dirty from its sending on. A watch event makes its node dirty, also during a read (the
event may have come before or after it). A broken link makes everything dirty.

With `by_writes` the reply to an own multi may answer a want: the reply of a committed multi counts as a read right
after it, unless something touches the node in between. A touched node with a watch is read when the event of the own
write comes, so that one read serves both. A list that only the own multi has changed is not read. A node that cannot be
read stays dirty, and its scope is not decided on. It is read again after a while, or when it is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from zkcoord.shell.fair_queue import FairQueue
from zkcoord.shell.wants import Expected, Wanted
from zkcoord.tree.snapshot import LIST, Key, Kind, Node, Read, Want, key_of, path_and_kind

READS_PER_REQUEST_MAX = 2_000
"""Reads in one request: it limits what one step asks for after a reconnection (F30). The rest goes with the next."""


FEW_READS = 100
"""Fewer reads than this wait for an open request: acknowledgements come in bursts, and each request costs time."""


class Tracker:
    """The wants of one session. Not thread safe: it belongs to its loop."""

    def __init__(self) -> None:
        self._wants: dict[Key, Wanted] = {}
        self._dirty: set[Key] = set()  # wants that must be read, or read again
        self._reading: dict[Key, int] = {}  # wants in a request -> the request's token
        self._queue = FairQueue()
        # invariant: the queue holds exactly the wants that are dirty, not being read, not expected to fire, not put off
        self._expecting = Expected()
        self._put_off: dict[Key, int] = {}  # unreadable wants -> when they are read again
        self._unclean: dict[str, int] = {}  # invariant: scope -> wants that are dirty or reading, never 0
        self._under_way: dict[int, int] = {}  # token of a request without an answer -> number of its reads

    def want(
        self, path: str, kind: Kind = Kind.DATA, *, watch: bool = False, scope: str = "", by_writes: bool = False
    ) -> None:
        """Read this node, and keep it known. A wanted node is read again only when something makes it dirty.

        `by_writes`: for data, only data and version count, and an own multi's reply tells them. For a list, the reply
        tells the nodes that an own multi created in it with a sequence, and the list itself if nobody else has changed
        it.
        """
        self.want_all((Want(path, kind, watch, by_writes),), scope)

    def want_all(self, wants: Iterable[Want], scope: str) -> None:
        """Want these nodes, as `want` does."""
        shared = {by_writes: Wanted(scope, by_writes) for by_writes in (False, True)}
        fresh: dict[Key, Wanted] = {}
        for path, kind, watch, by_writes in wants:
            key = key_of(path, kind)
            if key not in self._wants:
                plain = kind is Kind.DATA and not watch
                fresh.setdefault(key, shared[by_writes] if plain else Wanted(scope, by_writes, watch))
        self._want(fresh, scope)

    def want_later(self, paths: Iterable[str], scope: str, *, by_writes: bool = False) -> None:
        """Know the data of these nodes from their first change on, and read it no sooner. `by_writes`: as in `want`."""
        want = Wanted(scope, by_writes)
        for path in paths:
            self._wants.setdefault(path, want)

    def want_data(self, paths: Iterable[str], scope: str, *, by_writes: bool = False) -> None:
        """Want the data of these nodes. If it was wanted before, read it again. `by_writes` is as in `want`."""
        fresh = dict.fromkeys(paths, Wanted(scope, by_writes))
        for path in [path for path in fresh if path in self._wants]:
            del fresh[path]
            self._soil(path)
        self._want(fresh, scope)

    def _want(self, fresh: Mapping[Key, Wanted], scope: str) -> None:
        """Begin to want these. There may be very many."""
        if fresh:
            self._wants.update(fresh)
            self._dirty.update(fresh)
            self._queue.add_all(fresh, scope)
            self._count(scope, len(fresh))

    def watch(self, path: str, kind: Kind, watch: bool) -> None:
        """Watch a wanted node from now on, or stop watching it. To begin, it is read again."""
        key = key_of(path, kind)
        want = self._wants.get(key)
        if want is None or want.watch is watch:
            return
        self._wants[key] = Wanted(want.scope, want.by_writes, watch, want.armed, want.beside, want.listed)
        if watch:
            self._soil(key)

    def read_beside(self, path: str, kind: Kind, beside: Iterable[str]) -> None:
        """When somebody else changes this node, make the data of the nodes in `beside` dirty, too. So one round of
        reads serves both; this node is read first."""
        key = key_of(path, kind)
        want = self._wants.get(key)
        if want is not None:
            self._wants[key] = Wanted(want.scope, want.by_writes, want.watch, want.armed, tuple(beside), want.listed)

    def unwant(self, path: str, kind: Kind = Kind.DATA) -> None:
        """Stop wanting this node, and drop an answer under way."""
        key = key_of(path, kind)
        want = self._wants.pop(key, None)
        if want is not None and self._forget(key, want.scope):
            self._count(want.scope, -1)

    def unwant_data(self, paths: Iterable[str]) -> None:
        """Stop wanting the data of these nodes, as `unwant` does."""
        for path in paths:
            want = self._wants.pop(path, None)
            if want is not None and self._forget(path, want.scope):
                self._count(want.scope, -1)

    def unwant_scope(self, scope: str) -> None:
        """Stop wanting every node of a scope."""
        unclean = 0
        for key in [key for key, want in self._wants.items() if want.scope == scope]:
            del self._wants[key]
            unclean += self._forget(key, scope)
        if unclean:
            self._count(scope, -unclean)

    def _forget(self, key: Key, scope: str) -> bool:
        """Forget the state of a want that is gone. True if the want was not clean."""
        if key not in self._dirty and key not in self._reading:
            return False
        self._queue.discard(key, scope)
        self._expecting.discard(key)
        self._put_off.pop(key, None)
        self._dirty.discard(key)
        self._reading.pop(key, None)
        return True

    def touch(self, path: str, kind: Kind = Kind.DATA) -> None:
        """Make a node dirty: another node shows that it changed."""
        self._soil(key_of(path, kind))

    def refused(self, token: int, path: str) -> None:
        """Make a node and its list dirty, because the multi `token` was refused about them. Later reads show the
        reason."""
        for key in (path, LIST + path):
            if self._reading.get(key, 0) < token:
                self._soil(key)

    def written(self, token: int, touched: Iterable[Key]) -> tuple[list[Key], bool]:
        """Note that an own multi which touches these was sent as `token`: they are dirty. A node with a watch is read
        when the watch's event comes. A node that the reply may answer is answered only by the reply (`told`).

        Returns those of them that are wanted, and whether a want relies on the reply.
        """
        wanted: list[Key] = []
        tells = False
        dirty, reading = self._dirty, self._reading
        fresh: dict[str, int] = {}  # scope -> wants that were clean
        for key in touched:
            want = self._wants.get(key)
            if want is None:
                continue
            wanted.append(key)
            tells |= want.by_writes
            clean = key not in dirty and key not in reading
            if clean and want.by_writes and not want.watch:  # there are many
                reading[key] = token
                fresh[want.scope] = fresh.get(want.scope, 0) + 1
                continue
            if clean and want.armed:
                dirty.add(key)
                self._count(want.scope, 1)
                self._expecting.add(key, want, token)
                continue
            self._soil(key)
            if want.by_writes and not want.watch and key not in reading:
                self._queue.discard(key, want.scope)
                dirty.discard(key)
                reading[key] = token
        for scope, number in fresh.items():
            self._count(scope, number)
        return wanted, tells

    def told(self, token: int, nodes: Sequence[Node], made: Collection[str]) -> list[Node]:
        """Take in the reply of a committed own multi, as `answered` does. Nodes that it created with a sequence are
        wanted if their list is."""
        for path in made:
            listed = self._wants.get(key_of(path.rpartition("/")[0], Kind.CHILDREN))
            if listed is not None and listed.by_writes and path not in self._wants:
                self._wants[path] = Wanted(listed.scope)
                self._reading[path] = token
                self._count(listed.scope, 1)
        return self.answered(token, nodes)

    def alone(self, token: int, lists: Iterable[str], changed: Callable[[Node], Node]) -> list[Node]:
        """Take in lists that only an own multi has changed (`CommitDone.alone`). Returns them, as `answered` does."""
        found = []
        for key in (LIST + path for path in lists):
            want = self._wants.get(key)
            if want is None or want.listed is None or not self._expecting.clean(key, token):
                continue
            self._dirty.discard(key)
            self._count(want.scope, -1)
            want.armed = True
            want.listed = changed(want.listed)
            found.append(want.listed)
        return found

    def settled(self, token: int, touched: Iterable[Key]) -> None:
        """Take in that the write has an outcome. Events that are still expected will not come. A node that the reply
        did not answer must be read."""
        for key in touched:
            want = self._wants.get(key)
            if want is None:
                continue
            if key in self._expecting:
                self._expecting.discard(key)
                self._queue.add(key, want.scope)
            elif self._reading.get(key) == token:
                self._unread(key, want.scope)

    def _unread(self, key: Key, scope: str) -> None:
        """A want's request has not answered it: it must be read."""
        del self._reading[key]
        self._dirty.add(key)
        self._queue.add(key, scope)

    def fired(self, path: str, *, data: bool, children: bool) -> None:
        """Take in a watch event."""
        for kind, ended in ((Kind.DATA, data), (Kind.CHILDREN, children)):
            key = key_of(path, kind)
            want = self._wants.get(key)
            if want is None or not ended:
                continue
            if want.armed:
                want.armed = False
            if key in self._expecting:
                if self._expecting.fired(key):
                    self._queue.add(key, want.scope)
            elif want.watch:  # else a watch that is not wanted any more has fired
                self._soil(key)
                for other in want.beside:
                    self._soil(other)

    def touch_scope(self, scope: str) -> None:
        """Make every node of a scope dirty. They are read again in the order of wanting."""
        for key in [key for key, want in self._wants.items() if want.scope == scope]:
            self._soil(key)

    def touch_all(self) -> None:
        """Make every node dirty: the link broke, with every watch and answer under way. They are read again in the
        order of wanting: a node wanted after a list (a status) is read after it."""
        self._queue.clear()
        self._under_way.clear()
        for key, want in self._wants.items():
            if key not in self._dirty and key not in self._reading:
                self._count(want.scope, 1)
            if key not in self._put_off:
                self._queue.add(key, want.scope)
        self._dirty.update(self._wants)
        self._reading.clear()
        self._expecting.clear()

    @property
    def oldest(self) -> int | None:
        """The token of the oldest request for reads without an answer; None when there is none."""
        return min(self._under_way, default=None)

    @property
    def asks(self) -> bool:
        """True while there is something to read, and a request has room."""
        return bool(self._queue) and not self._full()

    def take(self, token: int) -> list[Read]:
        """Return the reads to send as request `token` (not 0), at most READS_PER_REQUEST_MAX: the oldest wants of every
        scope, oldest first. Empty while more than that are under way, so that a new want waits for at most two requests
        (F10)."""
        keys = self._queue.take(READS_PER_REQUEST_MAX) if self.asks else []
        if keys:
            self._under_way[token] = len(keys)
            self._dirty.difference_update(keys)
            self._reading.update(dict.fromkeys(keys, token))
        wants, data = self._wants, Kind.DATA
        return [
            Read(key, data, wants[key].watch) if key[0] == "/" else Read(*path_and_kind(key), wants[key].watch)
            for key in keys
        ]

    def _full(self) -> bool:
        """True when an answer must come before the next request. While the loop takes an answer in, the server has
        another request to work on. A few reads wait, and go together with whatever becomes dirty meanwhile."""
        under_way = sum(self._under_way.values())
        return under_way > READS_PER_REQUEST_MAX or (under_way > 0 and len(self._queue) < FEW_READS)

    def answered(self, token: int, nodes: Iterable[Node]) -> list[Node]:
        """Take in the answers to request `token`. Returns those that are still wanted and not dirty again, in their
        order."""
        self._under_way.pop(token, None)
        fresh = []
        clean: dict[str, int] = {}  # scope -> wants that have become so
        reading, dirty, data = self._reading, self._dirty, Kind.DATA
        for node in nodes:
            key = node.path if node.kind is data else key_of(node.path, node.kind)  # there are many
            if reading.get(key) != token:
                continue
            del reading[key]
            want = self._wants[key]
            if want.armed is not want.watch:
                want.armed = want.watch
            if key in dirty:
                self._queue.add(key, want.scope)
            else:
                clean[want.scope] = clean.get(want.scope, 0) + 1
                fresh.append(node)
                if node.kind is not data and want.by_writes:
                    want.listed = node
        for scope, number in clean.items():
            self._count(scope, -number)
        return fresh

    def unanswered(self, token: int) -> None:
        """Note that request `token` ended without an answer, for example with the link: its reads are repeated."""
        if self._under_way.pop(token, None) is None:
            return
        for key in [key for key, of in self._reading.items() if of == token]:
            self._unread(key, self._wants[key].scope)

    def put_off(self, token: int, path: str, kind: Kind, until_ms: int) -> None:
        """Note that this node cannot be read, as request `token` (or an earlier one) showed. It is not read before
        `until_ms`, unless something shows that it changed, or has shown so meanwhile."""
        key = key_of(path, kind)
        want, under_way = self._wants.get(key), self._reading.get(key)
        if want is None or under_way not in (None, token):
            return
        dirty = key in self._dirty
        changed = dirty and under_way is not None
        if not dirty and under_way is None:
            self._count(want.scope, 1)
        self._reading.pop(key, None)
        self._dirty.add(key)
        self._expecting.discard(key)
        if changed:
            self._queue.add(key, want.scope)
        else:
            self._queue.discard(key, want.scope)
            self._put_off[key] = until_ms

    def put_aside(self, path: str, kind: Kind = Kind.DATA) -> bool:
        """True while a node is not read because it cannot be read."""
        return key_of(path, kind) in self._put_off

    def resume(self, now_ms: int) -> int | None:
        """Make reads due that were put off, or patient. Returns when the next is due. None: there is none."""
        for key in [key for key, until_ms in self._put_off.items() if now_ms >= until_ms] if self._put_off else ():
            del self._put_off[key]
            self._queue.add(key, self._wants[key].scope)
        return min((*self._put_off.values(), *self._queue.due_ms(now_ms)), default=None)

    def patient(self, scope: str, *, patient: bool) -> None:
        """With `patient`, reads of a scope go together with others that come soon. Without it, they go at once."""
        self._queue.patient(scope, patient=patient)

    def clean(self, scope: str) -> bool:
        """True when nothing of this scope is dirty or being read."""
        return scope not in self._unclean

    def watches(self, path: str, kind: Kind = Kind.DATA) -> bool:
        """True while a node is known as it was read: its watch is set, and nothing shows that it changed."""
        key = key_of(path, kind)
        want = self._wants.get(key)
        return want is not None and want.armed and key not in self._dirty and key not in self._reading

    def unclean(self) -> Set[str]:
        """Return the scopes that have a dirty node, or one that is being read."""
        return self._unclean.keys()

    def _soil(self, key: Key) -> None:
        want = self._wants.get(key)
        if want is None:
            return
        self._expecting.spoil(key)
        if self._put_off.pop(key, None) is not None:
            self._queue.add(key, want.scope)
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._reading:
            self._count(want.scope, 1)
            self._queue.add(key, want.scope)

    def _count(self, scope: str, change: int) -> None:
        count = self._unclean.get(scope, 0) + change
        if count:
            self._unclean[scope] = count
        else:
            del self._unclean[scope]
