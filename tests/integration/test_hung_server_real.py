"""F56 on a real ZooKeeper with two addresses: one takes connections and requests and answers nothing any more."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.world import Member, Reports, World
from tests.shell.zk_world import Proxy
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.tree.paths import CANDIDATES, DRAFT

pytestmark = pytest.mark.zookeeper

GROUP = "g"
SESSION_MS = 4_000


class Link(Proxy):
    """The server grants sessions twice the timeout that the client is told: a client that leaves a hanging server in
    time is with the other one long before, also where a busy machine stands still for seconds meanwhile."""

    def through(self, frame: bytes, sender: socket.socket, *, up: bool, first: bool) -> bytes | None:
        """Change the timeout in the request for a session, and in the answer."""
        if first:
            at = 12 if up else 4  # behind the version, and the last zxid
            (timeout_ms,) = struct.unpack_from("!i", frame, at)
            changed_ms = timeout_ms * 2 if up else timeout_ms // 2
            frame = frame[:at] + struct.pack("!i", changed_ms) + frame[at + 4 :]
        return super().through(frame, sender, up=up, first=first)


class TwoLinks:
    """An address of two servers, which are one."""

    def __init__(self, zookeeper: str, links: tuple[Proxy, Proxy]) -> None:
        self.zookeeper, self._links = zookeeper, links

    def hang(self) -> None:
        """The server that is in use hangs; returns when the client is with the other."""
        self._used, self._other = sorted(self._links, key=lambda link: -link.connections)
        assert (self._used.connections, self._other.connections) == (1, 0)
        self._hang()

    def hang_until_left(self, reports: Reports) -> None:
        """The same, until the client's loop has left a server once, whose connection nobody had closed. (On a busy
        machine the heartbeats of the connection may notice the silence sooner: then the other server hangs.)"""
        self.hang()
        while not reports.of("server_left"):
            self._used.flow()
            self._used, self._other = self._other, self._used
            self._hang()
        assert len(reports.of("server_left")) == 1

    def _hang(self) -> None:
        before = self._other.connections
        self._used.stall()
        wait_until(lambda: self._other.connections > before, "it is with the other server")


@contextmanager
def two_links(zookeeper: EmbeddedZooKeeper, chroot: str) -> Iterator[TwoLinks]:
    """Links to one server, until the end."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Link(port) as one, Link(port) as other:
        yield TwoLinks(f"{one.hosts},{other.hosts}{chroot.removeprefix(zookeeper.hosts)}", (one, other))


def test_f56_a_member_that_holds_nothing_keeps_its_session_when_its_server_hangs(
    zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    with World(chroot) as world, two_links(zookeeper, chroot) as two:
        world.topic("t", 1)
        world.coordinate()
        working = Member(chroot, GROUP, ["t"])
        with working.consumer:
            wait_until(working.held, "it has everything")
            idle = Member(two.zookeeper, GROUP, ["t"], session_timeout_ms=SESSION_MS)
            with idle.consumer:
                wait_until(lambda: idle.consumer.consumer_id is not None, "it registers")
                registered = idle.consumer.consumer_id
                two.hang_until_left(world.reports)
                assert idle.consumer.consumer_id == registered
                working.consumer.stop()
                wait_until(idle.held, "it takes over")
                assert world.children(DRAFT.ids(GROUP)) == [registered]


def test_f56_a_consumer_that_waits_for_the_tree_joins_though_its_server_hangs(
    zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    with World(chroot) as world, two_links(zookeeper, chroot) as two:
        world.topic("t", 1)
        joining = Member(two.zookeeper, GROUP, ["t"], session_timeout_ms=SESSION_MS)
        with joining.consumer:
            wait_until(lambda: world.reports.of("waiting"), "it waits for a schema")
            two.hang_until_left(world.reports)
            world.coordinate()
            wait_until(joining.held, "it joins, and holds everything")


def test_f56_a_coordinator_that_stands_by_keeps_its_session_when_its_server_hangs(
    zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    with World(chroot) as world, two_links(zookeeper, chroot) as two:
        world.coordinate()
        standby = Coordinator(two.zookeeper, session_timeout_ms=SESSION_MS)
        standby.start()
        try:
            wait_until(lambda: len(world.children(CANDIDATES)) == 2, "it stands by")
            two.hang()
            assert len(world.children(CANDIDATES)) == 2
        finally:
            standby.stop()
