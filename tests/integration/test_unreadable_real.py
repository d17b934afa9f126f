"""Nodes whose ACL shuts somebody out, on a real ZooKeeper: told once, the others go on, granting the right heals it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.integration.world import PATIENCE_SECONDS, World, named
from tests.waiting import wait_until
from zkcoord import UsageError
from zkcoord.shell import loop
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import BROKERS, DRAFT, SCHEMA, TOPICS
from zkcoord.tree.snapshot import Read

pytestmark = pytest.mark.zookeeper

GROUP, OTHER = "g", "h"


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A tree of its own, with Kafka's nodes and one topic."""
    with World(chroot) as made:
        made.put(BROKERS)
        made.put(TOPICS)
        made.topic("t", 2)
        yield made


@pytest.fixture
def keeper(chroot: str) -> Iterator[KazooClient]:
    """Who keeps the ACLs."""
    client = KazooClient(hosts=chroot, auth_data=[("digest", "alice:secret")])
    client.start(timeout=PATIENCE_SECONDS)
    yield client
    client.stop()
    client.close()


def shut(keeper: KazooClient, path: str) -> None:
    """Nobody else may do anything with this node."""
    keeper.set_acls(path, [make_digest_acl("alice", "secret", all=True)])


def test_a_groups_unreadable_node_stops_that_group_only_until_the_right_is_granted(
    world: World, keeper: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "UNREADABLE_MS", 300)
    first = world.coordinate()
    ours, theirs = world.join(GROUP, "t"), world.join(OTHER, "t")
    wait_until(lambda: ours.held() == theirs.held() == named("t", 0, 1), "all is read")
    first.stop()
    state = DRAFT.state(GROUP)
    shut(keeper, state)

    coordinator = world.coordinate()
    wait_until(lambda: state in world.reports.paths("unreadable"), "it is told of")
    our_second, their_second = world.join(GROUP, "t"), world.join(OTHER, "t")
    wait_until(lambda: len(theirs.held()) == len(their_second.held()) == 1, "the other group is served")
    assert ours.held() == named("t", 0, 1)
    assert our_second.held() == []
    [told] = [fields for fields in world.reports.of("unreadable") if fields["path"] == state]
    assert told["why"].startswith("ZooKeeper refuses to let us read it (NoAuth): an operator must grant READ")
    with Tree(world.zookeeper) as tool, pytest.raises(UsageError, match=f"{state}: ZooKeeper refuses to let us read"):
        tool.read([Read(state)])

    keeper.set_acls(state, OPEN_ACL_UNSAFE)
    wait_until(lambda: len(ours.held()) == len(our_second.held()) == 1, "the right heals it")
    assert coordinator.error is None


def test_a_consumer_that_may_not_read_waits_and_joins_when_it_may(
    world: World, keeper: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "UNREADABLE_MS", 300)
    world.coordinate()
    shut(keeper, SCHEMA)
    member = world.join(GROUP, "t")
    wait_until(lambda: SCHEMA in world.reports.paths("unreadable"), "it is told of")
    assert member.consumer.error is None

    keeper.set_acls(SCHEMA, OPEN_ACL_UNSAFE)
    wait_until(lambda: member.held() == named("t", 0, 1), "the right heals it")
