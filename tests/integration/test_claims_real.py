"""Claims on a real ZooKeeper (layout legacy): a stranger's session deletes them and makes its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from tests.integration.world import PATIENCE_SECONDS, World, named
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.member.decisions import (
    AcknowledgeStarts,
    ClaimPartitions,
    CommitOffsets,
    ReleasePartitions,
    Versions,
    Write,
)
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import MemberView, Position
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.group_report import read_group
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_plan import plan
from zkcoord.tree.member_view import MemberNodes
from zkcoord.tree.paths import BROKERS, LEGACY, TOPICS
from zkcoord.tree.record import encode_record

pytestmark = pytest.mark.zookeeper

GROUP = "g"
ADOPTED = replace(DEFAULT_RECORD, adoption=Adoption(offsets="zookeeper", strategy="range", kafka="0.11"))
T0 = TopicPartition("t", 0)
STRANGER = b"g_old-1416335000123-1a2b3c4d-0"


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """An adopted group's tree, with one topic."""
    with World(chroot) as made:
        made.put(BROKERS)
        made.put(TOPICS)
        made.topic("t", 4)
        made.put(LEGACY.record(GROUP), encode_record(ADOPTED))
        yield made


@pytest.fixture
def stranger(chroot: str) -> Iterator[KazooClient]:
    """Another program's session."""
    client = KazooClient(hosts=chroot, timeout=30)
    client.start(timeout=PATIENCE_SECONDS)
    yield client
    client.stop()
    client.close()


def test_f53_a_claim_that_a_stranger_deletes_is_not_read_on_and_is_given_anew(
    world: World, stranger: KazooClient
) -> None:
    coordinator = world.coordinate("legacy")
    one, two = world.join(GROUP, "t"), world.join(GROUP, "t")
    wait_until(lambda: len(one.held()) == len(two.held()) == 2, "each has its share")
    for member in (one, two):
        assert re.fullmatch(r"g_.+-\d{13}-z[0-9a-f]{7}", member.consumer.consumer_id or "")
        for name in member.held():
            data, stat = stranger.get(LEGACY.owner(GROUP, TopicPartition("t", int(name[-1]))))
            assert data.decode().startswith(f"{member.consumer.consumer_id}-")
            assert stat.version == 1
            assert stat.ephemeralOwner != 0
    wait_until(lambda: read_group(world.tree, LEGACY, GROUP).settled, "the coordinator knows it, too")
    report = read_group(world.tree, LEGACY, GROUP)
    assert report.phase is Phase.STABLE
    assert {consumer_of(owner.thread) for owner in report.view.owners.values()} == {
        one.consumer.consumer_id,
        two.consumer.consumer_id,
    }
    coordinator.stop()
    lost, *_ = one.held()
    stranger.delete(LEGACY.owner(GROUP, TopicPartition("t", int(lost[-1]))))
    wait_until(lambda: lost not in one.held(), "its consumer sees that, though nobody serves")
    world.coordinate("legacy")
    wait_until(lambda: sorted([*one.held(), *two.held()]) == named("t", 0, 1, 2, 3), "all is read again")


def test_f88_a_partition_claimed_by_a_stranger_stays_so_until_the_strangers_session_ends(
    world: World, stranger: KazooClient
) -> None:
    world.coordinate("legacy")
    one = world.join(GROUP, "t")
    wait_until(lambda: one.held() == named("t", 0, 1, 2, 3), "all is read")
    path = LEGACY.owner(GROUP, T0)
    with stranger.transaction() as theft:
        theft.delete(path)
        theft.create(path, STRANGER, ephemeral=True)
    wait_until(lambda: one.held() == named("t", 1, 2, 3), "it is seen to be another's")
    world.topic("t", 5)
    wait_until(lambda: one.held() == named("t", 1, 2, 3, 4), "the rest goes on")
    stranger.stop()
    wait_until(lambda: one.held() == named("t", 0, 1, 2, 3, 4), "it is given anew")
    assert b'"quarantined":{}' in world.data(LEGACY.state(GROUP))


def done(world: World, nodes: MemberNodes, decision: Write) -> str:
    """Send the multis of a decision; "" or why one was refused."""
    reasons = [world.tree.commit(transaction).reason for transaction in plan(decision, nodes, b"{}")]
    return next(filter(None, reasons), "")


def test_f90_an_earlier_claimant_writes_nothing_once_the_next_one_has_acknowledged(world: World) -> None:
    """Its claim was deleted under it, and the next one's looks the same: the offset tells them apart."""
    world.put(f"{LEGACY.owners(GROUP)}/t")
    world.put(LEGACY.offset(GROUP, T0), b"7")
    members = []
    for name in ("g_a-1-z0000000", "g_b-1-z0000000"):
        paths = MemberPaths(layout=LEGACY, group=GROUP, consumer_id=name)
        world.put(paths.registration)
        world.put(paths.channel)
        members.append(MemberNodes(paths=paths, view=MemberView(claims=True, positions={T0: Position(7, 0)})))
    earlier, later = members
    assert done(world, earlier, ClaimPartitions(partitions={T0: "g_a-1-z0000000-0"})) == ""
    assert done(world, later, ClaimPartitions(partitions={T0: "g_b-1-z0000000-0"})) == "NodeExists"
    held = {T0: Held("g_a-1-z0000000-0", 1, 7, 0, 1)}
    first = {T0: (7, Versions(1, 0))}
    acknowledge = AcknowledgeStarts(commands={}, first=first, refused={}, status=MemberStatus())
    world.remove(LEGACY.owner(GROUP, T0))
    assert done(world, earlier, CommitOffsets(held=held, offsets={T0: 9})) == "NoNode"
    assert done(world, later, ClaimPartitions(partitions={T0: "g_b-1-z0000000-0"})) == ""
    assert done(world, later, acknowledge) == ""  # the same offset: only its version is another one
    assert world.data(LEGACY.offset(GROUP, T0)) == b"7"
    assert done(world, earlier, CommitOffsets(held=held, offsets={T0: 9})) == "BadVersion"
    assert done(world, earlier, ReleasePartitions(held=held, offsets={T0: 9})) == "BadVersion"
    assert done(world, earlier, ReleasePartitions(held=held, offsets={})) == "BadVersion"  # which would set no offset
    refused = AcknowledgeStarts(commands={}, first={}, refused={T0: Versions(1, 0)}, status=MemberStatus())
    assert done(world, earlier, refused) == "BadVersion"
    assert world.data(LEGACY.owner(GROUP, T0)) == b"g_b-1-z0000000-0"
    held = {T0: Held("g_b-1-z0000000-0", 1, 7, 1, 1)}
    assert done(world, later, CommitOffsets(held=held, offsets={T0: 9})) == ""
    held = {T0: Held("g_b-1-z0000000-0", 1, 9, 2, 1)}
    assert done(world, later, ReleasePartitions(held=held, offsets={})) == ""
    assert world.children(f"{LEGACY.owners(GROUP)}/t") == []


def test_f90_a_claim_without_an_offset_is_given_back_only_while_there_is_still_none(world: World) -> None:
    world.put(f"{LEGACY.owners(GROUP)}/t")
    world.put(f"{LEGACY.offsets(GROUP)}/t")
    paths = MemberPaths(layout=LEGACY, group=GROUP, consumer_id="g_a-1-z0000000")
    world.put(paths.registration)
    world.put(paths.channel)
    nodes = MemberNodes(paths=paths, view=MemberView(claims=True))
    refused = AcknowledgeStarts(commands={}, first={}, refused={T0: Versions(1, None)}, status=MemberStatus())
    assert done(world, nodes, ClaimPartitions(partitions={T0: "g_a-1-z0000000-0"})) == ""
    world.put(LEGACY.offset(GROUP, T0), b"7")
    assert done(world, nodes, refused) == "NodeExists"
    world.remove(LEGACY.offset(GROUP, T0))
    assert done(world, nodes, refused) == ""
    assert world.children(f"{LEGACY.owners(GROUP)}/t") == world.children(f"{LEGACY.offsets(GROUP)}/t") == []
