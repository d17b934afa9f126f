"""Somebody deletes nodes of a running group: an offset, or all nodes."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.script import QUIET, Script, on_seeds
from tests.sim.world import World
from zkcoord.core.command import Option
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT, EVICTED_MARK
from zkcoord.tree.writes import CreateNode, DeleteNode


def _delete_below(world: World, path: str) -> None:
    for name in list(world.ensemble.names(path)):
        _delete_below(world, f"{path}/{name}")
    result = world.ensemble.operate(DeleteNode(path, -1))
    assert not result.reason, result


def _delete_offsets(script: Script, name: str) -> None:
    """Delete the offsets as a tool does. The application stops reading, since the checkers would not know how far it
    may read."""
    script.application(name).allowed = lambda partition: False
    for p in script.owned(name):
        assert not script.world.ensemble.operate(DeleteNode(DRAFT.offset(GROUP, p), -1)).reason


@on_seeds()
def test_a_commit_is_answered_although_somebody_deleted_the_offset(seed: int) -> None:
    script = Script(seed, replace(QUIET, read_ms_max=200), consumers=1, coordinators=1)
    script.settle()
    world, application = script.world, script.application("consumer0")
    world.run_for(1_000)
    application.commits = False
    world.run_until(lambda: application._commit is None or application._commit.done())
    _delete_offsets(script, "consumer0")
    future = Future()
    offsets = {p: o + 1 for p, o in application.positions.items()}
    script.process("consumer0").inbox.put(Request("commit", application.wanted(offsets), future))
    world.run_for(10_000)
    assert future.done()
    refused = [t for t in world.tried if not t.applied]
    assert len(refused) < 10


@on_seeds()
def test_a_consumer_leaves_although_somebody_deleted_the_offset(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    world.run_for(1_000)
    script.application("consumer0").commits = False
    world.run_for(1_000)
    _delete_offsets(script, "consumer0")
    future = script.leave("consumer0")
    world.run_for(30_000)
    assert future.done()
    script.calm()


@on_seeds()
def test_a_group_deleted_and_made_again_while_the_coordinator_was_paused_is_served_again(seed: int) -> None:
    script = Script(seed, replace(QUIET, session_timeout_ms=10_000), consumers=2, coordinators=1)
    script.settle()
    world = script.world
    leader = script.leader()
    world.pause(leader)
    _delete_below(world, DRAFT.groups + f"/{GROUP}")
    world.run_until(lambda: script.registered("consumer0") and script.registered("consumer1"), what="they are back")
    world.resume(leader)
    script.settle()
    script.calm()


@on_seeds()
def test_commands_to_members_that_nobody_follows_are_not_waited_for(seed: int) -> None:
    """An operator removed all nodes of the group at that moment: no answer comes for nodes that nobody asks for."""
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    world = script.world
    world.run_for(1_000)
    role = script.actor(script.leader()).role
    role._groups[GROUP].channels.sent("g_gone-1-00000000", script.partitions())
    role._groups[GROUP].channels.sent_control("g_gone-2-00000000", Option.PING)
    for partition in script.partitions():
        role._groups[GROUP].tracker.unwant(DRAFT.owner(GROUP, partition))
    script.request("hold")
    world.run_until(lambda: script.answered("hold"), 5_000, "it is answered")


@on_seeds()
def test_an_offset_deleted_without_a_lease_begins_anew_with_a_new_registration(seed: int) -> None:
    """Only a start can apply the reset policy: a partition that is held has no offset from which to go on."""
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    world, member = script.world, script.member("consumer0")
    world.run_for(1_000)
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: bool(script.journal("lost")), what="the lease ends")
    offsets = [DRAFT.offset(GROUP, partition) for partition in script.owned("consumer0")]
    _delete_offsets(script, "consumer0")
    faults.uncut(world, script.process("consumer0"))
    world.run_for(5_000)
    script.settle()
    assert script.member("consumer0") != member
    assert all(world.ensemble.data(path) for path in offsets)


@on_seeds()
def test_the_mark_of_an_eviction_alone_ends_a_registration(seed: int) -> None:
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    member = script.member("consumer0")
    mark = CreateNode(f"{DRAFT.channel(GROUP, member)}/{EVICTED_MARK}", b"6000")
    assert not script.world.ensemble.operate(mark).reason
    script.world.run_for(5_000)
    assert script.registered("consumer0")
    assert script.member("consumer0") != member
    script.settle()
    script.calm()


@on_seeds()
def test_a_coordinator_whose_node_was_deleted_is_elected_again_though_it_is_alone(seed: int) -> None:
    """No election of another coordinator tells it that it does not serve any more."""
    script = Script(seed, consumers=1, coordinators=1)
    script.settle()
    world, elected = script.world, len(script.world.events("elected"))
    assert not world.ensemble.operate(DeleteNode(DRAFT.coordinator, -1)).reason
    world.run_for(5_000)
    assert world.ensemble.data(DRAFT.coordinator) is not None
    assert len(world.events("elected")) == elected + 1
    script.settle()
    script.calm()
