"""F56 on a real ZooKeeper with two addresses: one takes connections and requests and answers nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.integration.world import Member, World
from tests.shell.zk_world import Proxy
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.tree.paths import CANDIDATES, DRAFT

pytestmark = pytest.mark.zookeeper

GROUP = "g"
SESSION_MS = 4_000


class TwoLinks(NamedTuple):
    """An address of two servers, which are one."""

    zookeeper: str
    links: tuple[Proxy, Proxy]

    def hang(self) -> Proxy:
        """The server that is in use hangs; returns the other."""
        used, other = sorted(self.links, key=lambda link: -link.connections)
        assert (used.connections, other.connections) == (1, 0)
        used.stall()
        return other


@contextmanager
def two_links(zookeeper: EmbeddedZooKeeper, chroot: str) -> Iterator[TwoLinks]:
    """Links to one server, until the end."""
    port = int(zookeeper.hosts.rpartition(":")[2])
    with Proxy(port) as one, Proxy(port) as other:
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
                other = two.hang()
                wait_until(lambda: other.connections == 1, "it is with the other server")
                assert len(world.reports.of("server_left")) == 1
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
            other = two.hang()
            wait_until(lambda: other.connections == 1, "it is with the other server")
            assert len(world.reports.of("server_left")) == 1  # nobody closed its connection
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
            other = two.hang()
            wait_until(lambda: other.connections == 1, "it is with the other server")
            assert len(world.children(CANDIDATES)) == 2
        finally:
            standby.stop()
