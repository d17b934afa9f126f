"""Worlds of one connection. Whatever is read, written, told or broken off, at rest the loop knows every wanted node as
it is.

The simulated world of `tests/sim` has sessions of its own: it does not use the real store, reads and watches. Here
these run below the real loop, on a model of a server (`watching_server`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations_with_replacement, product
from random import Random

import pytest

from tests.shell.watched_bench import CHROOT, Bench
from zkcoord.shell.zk.watches import UNAWAITED_MAX
from zkcoord.tree.snapshot import Kind
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Write

RESTS = 15
SEEDS = 60
SCOPES = ("g", "h", "/t")
SERVERS = pytest.mark.parametrize("coexist", [True, False], ids=["servers since 3.9", "servers before 3.9"])


class World(Bench):
    """A world with events at random. The seed first draws how often each kind of event comes."""

    def __init__(self, seed: int, *, coexist: bool) -> None:
        # so that watches are forgotten, and (in half of the worlds) given up, too
        super().__init__(coexist=coexist, idle_max=6, unawaited_max=seed % 2 or UNAWAITED_MAX)
        self._random = random = Random(f"{seed} {coexist}")
        narrow = random.random() < 0.5  # one list, which all events are about
        parents = [f"/p{number}" for number in range(1 if narrow else random.choice((1, 2, 7)))]
        below = [
            f"{parent}/c{number}" for parent in parents for number in range(0 if narrow else random.choice((0, 2)))
        ]
        self._lists = ["/", *parents, *below]
        self._paths = ["/", *parents, *below, *(f"{path}/d" for path in below)]
        self._rates: Mapping[Callable[[], None], float] = {
            self._want: 0 if narrow else random.choice((0.05, 0.1)),
            self.break_off: random.choice((0, 0.005)),
            self._someone_writes: random.choice((0.02, 0.10, 0.20)),
            self._someone_closes: 0 if narrow else random.choice((0, 0.02)),
            self._commit: random.choice((0.05, 0.15, 0.30)),
            self._touch: random.choice((0.03, 0.2)),
            self._serve: random.choice((0.2, 1, 3)),
            self.deliver: random.choice((0.2, 1, 3)),
            self._take: random.choice((0.2, 1, 3)),
        }
        self._hot = random.choice(self._lists)
        self._in_hot = 1 if narrow else random.choice((0, 0.9))
        self._until_rest = 8 if narrow else random.choice((20, 60))
        self._grows = random.choice((0.6, 0.75))
        self._throttled = random.choice((0, 0, 0.005))
        self._written = 0
        self._forgets = random.choice((0, 0.2))
        self.server.keeps = random.random() < 0.9
        self.server.apply([CreateNode(CHROOT + path) for path in parents])
        self.wants(self._hot, Kind.CHILDREN)
        self.wants("/p0", Kind.DATA)

    def play(self) -> None:
        """Let random events happen until it is time to rest."""
        for _ in range(self._until_rest):
            possible = {what: rate for what, rate in self._rates.items() if self._possible(what)}
            self.forgets = self._random.random() < self._forgets
            [what] = self._random.choices(list(possible), list(possible.values()))
            what()

    def _possible(self, what: Callable[[], None]) -> bool:
        if what == self._take:
            return bool(self.inbox)
        if what == self._serve:
            return bool(self.server.requests)
        return what != self.deliver or self.arrives

    def _some_inputs(self) -> int:
        """How many of the waiting inputs the loop takes before it acts."""
        return self._random.choice((0, 0, 1, 3))

    def _take(self) -> None:
        self.now_ms += 1
        self.step(self._random.randint(1, 4))

    def _serve(self) -> None:
        self.server.step(throttles=self._random.random() < self._throttled)

    def _want(self) -> None:
        random, lists = self._random, self._random.random() < 0.6
        path = random.choice(self._lists if lists else self._paths)
        kind = Kind.CHILDREN if lists else Kind.DATA
        watch, draw, count = random.random() < 0.9, random.random(), self._some_inputs()
        if (path, kind) not in self.wanted:
            self.wants(path, kind, watch=watch, by_writes=draw < 0.7, scope=random.choice(SCOPES), count=count)
        elif draw < 0.2:
            self.wanted[path, kind] = watch
            self.does(lambda: self.tracker.watch(path, kind, watch), count)
        elif draw < 0.4:
            del self.wanted[path, kind]
            self.does(lambda: self._unwant(path, kind), count)

    def _unwant(self, path: str, kind: Kind) -> None:
        self.tracker.unwant(path, kind)
        self.role.known.pop((path, kind), None)

    def _touch(self) -> None:
        if self.wanted:
            path, kind = self._random.choice(list(self.wanted))
            self.does(lambda: self.tracker.touch(path, kind), self._some_inputs())

    def _write(self, chroot: str = "") -> Write:
        """A random write, usually one that can be applied."""
        random, paths = self._random, self._paths[1:]
        draw, version = random.random(), random.choice((-1, -1, -1, 0, 1))
        there = [path for path in paths if CHROOT + path in self.server.nodes]
        if there and random.random() < 0.8:
            paths = there if draw < self._grows else [path for path in paths if path not in there] or paths
        path = chroot + random.choice(paths)
        self._written += 1
        data = b"%d" % self._written
        if draw < 0.2:
            return SetNode(path, data, version)
        if draw < 0.25:
            return CheckNode(path, version)
        if draw < self._grows - 0.3:
            return DeleteNode(path, version)
        if draw < self._grows:
            return CreateNode(path if random.random() < 0.8 else chroot or "/", data, sequential=True)
        return CreateNode(path, data)

    def _some(self, chroot: str = "") -> list[Write]:
        """Random writes; the first one often changes one and the same list."""
        writes = [self._write(chroot) for _ in range(self._random.choice((1, 1, 1, 2, 3)))]
        if self.absolute(self._hot) in self.server.nodes and self._random.random() < self._in_hot:
            path = chroot + self._hot.rstrip("/")
            writes[0] = CreateNode(path or "/", sequential=True)
            if (names := self.server.children(self.absolute(self._hot))) and self._random.random() < 0.3:
                writes[0] = DeleteNode(f"{path}/{self._random.choice(names)}", -1)
        return writes

    def _commit(self) -> None:
        self.commits(self._some(), self._random.choice(SCOPES), self._some_inputs())

    def _someone_writes(self) -> None:
        self.server.apply(self._some(CHROOT))

    def _someone_closes(self) -> None:
        self.server.closed ^= {CHROOT + self._random.choice(self._paths[1:])}


@SERVERS
def test_all_wanted_nodes_are_known_at_rest_whatever_happens(
    coexist: bool,
) -> None:
    told = refused = 0
    for seed in range(SEEDS):
        world = World(seed, coexist=coexist)
        for rest in range(RESTS):
            world.play()
            world.rest()
            assert world.wrong() == [], f"seed {seed}, rest {rest}"
            world.prod()
            world.rest()
            assert world.wrong() == [], f"seed {seed}, a change behind rest {rest}"
        told, refused = told + world.role.told, refused + world.role.refused
    assert told > 5 * SEEDS < refused


class Moments(Bench):
    """A world with a list that the server keeps a watch of, and another node."""

    def __init__(self, *, coexist: bool) -> None:
        super().__init__(coexist=coexist)
        self._list = "/l" if coexist else ""
        self.server.apply([CreateNode(CHROOT + path) for path in ("/l", "/other", self._list + "/was")])
        self.wants(self._list or "/", Kind.CHILDREN)
        self.wants("/other", Kind.DATA)
        self.rest()
        self.prod()
        self.rest()
        self.forgets = True

    def commit(self) -> None:
        """The loop changes the list."""
        gone = [DeleteNode(self._list + "/was", -1)] if self.absolute(self._list + "/was") in self.server.nodes else []
        self.commits([CreateNode(self._list or "/", sequential=True), *gone])

    def commit_in_vain(self) -> None:
        """A change of the list by the loop is refused."""
        self.commits([CreateNode(self._list or "/", sequential=True), CheckNode("/l", 99)])

    def somebody(self) -> None:
        """Somebody else changes the list."""
        self.server.apply([CreateNode(CHROOT + self._list, sequential=True)])

    def ask(self) -> None:
        """The loop reads the other node."""
        self.does(lambda: self.tracker.touch("/other"))

    def serve(self) -> None:
        """The server takes a request."""
        if self.server.requests:
            self.server.step()

    def arrive(self) -> None:
        """The client takes an answer or an event."""
        if self.arrives:
            self.deliver()

    def take(self) -> None:
        """The loop takes an input."""
        self.step(1)


COURSE = [Moments.arrive, Moments.commit, Moments.serve, Moments.arrive, Moments.arrive, Moments.take, Moments.take]
BESIDE = [Moments.commit, Moments.commit_in_vain, Moments.somebody, Moments.ask]


@SERVERS
def test_a_list_and_its_next_change_are_known_after_any_own_change(
    coexist: bool,
) -> None:
    """Two other events happen, each at every moment from the sending of the change to its end."""
    told = 0
    for places in combinations_with_replacement(range(len(COURSE) + 1), 2):
        for beside in product(BESIDE, repeat=2):
            course = list(COURSE)
            for place, what in sorted(zip(places, beside, strict=True), key=lambda each: each[0], reverse=True):
                course.insert(place, what)
            moments = Moments(coexist=coexist)
            for what in course:
                what(moments)
            moments.rest()
            assert moments.wrong() == [], [what.__name__ for what in course]
            told += moments.role.told
            moments.prod()
            moments.rest()
            assert moments.wrong() == [], [what.__name__ for what in course]
    assert told > 50
