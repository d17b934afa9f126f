"""A node that its reader has no right to read: one line reports it, work that needs it waits, and everything else goes
on. Once the right is granted, all is well."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import consumer_of
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from tests.sim.test_failures_input import TwoGroups
from zkcoord.shell.loop import UNREADABLE_MS
from zkcoord.tree.paths import DRAFT, EVICTED_MARK, SCHEMA, TOPICS
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode


def owning(script: TwoGroups) -> set[str]:
    """The members of the first group that own a partition."""
    return {consumer_of(owner) for (group, _), owner in script.field.owners.items() if group == GROUP and owner}


@pytest.mark.parametrize("path", [DRAFT.state(GROUP), DRAFT.record(GROUP), DRAFT.owners(GROUP)])
@on_seeds(3)
def test_a_group_with_an_unreadable_node_is_left_alone_and_the_others_go_on(seed: int, path: str) -> None:
    script = TwoGroups(seed)
    world = script.world
    world.ensemble.closed.add(path)
    world.crash(script.leader(), restart_after_ms=1_000)
    world.run_until(lambda: bool(script.told_at(path)), what="the new coordinator tells of it")
    began_ms = world.now_ms
    world.spawn("other1", script.others)
    world.run_until(lambda: sorted(script.other_shares()) == [2, 2], what="the other group is served")
    script.join("late")
    world.run_for(2 * UNREADABLE_MS)
    told = script.told_once("unreadable", path)
    assert "an operator must grant READ" in told.fields["why"]
    assert script.member("late") not in owning(script)
    assert 2 <= len(script.read_at(path, began_ms)) <= 6

    world.ensemble.closed.remove(path)
    world.run_until(lambda: script.member("late") in owning(script), what="the right heals it")
    script.settle()
    script.calm()


@on_seeds(3)
def test_a_group_of_an_unreadable_topic_is_left_alone_and_reads_on(seed: int) -> None:
    script = TwoGroups(seed)
    world, path = script.world, f"{TOPICS}/u"
    script.create_topic("u", 2)
    world.ensemble.closed.add(path)
    script.consumers.registers(subscription={"t": 1, "u": 1})
    held = script.held()
    script.join("late")
    world.run_until(lambda: bool(script.told_at(path)), what="it is told of")
    world.spawn("other1", script.others)
    world.run_until(lambda: sorted(script.other_shares()) == [2, 2], what="the other group is served")
    assert script.held() == held

    world.ensemble.closed.remove(path)
    script.settle()
    script.calm()


@on_seeds(3)
def test_a_consumer_that_may_not_read_waits_says_so_and_joins_when_it_may(seed: int) -> None:
    script = TwoGroups(seed)
    world = script.world
    world.ensemble.closed.add(SCHEMA)
    script.join("late")
    world.run_until(lambda: bool(script.told_at(SCHEMA)), what="it is told of")
    world.run_for(2 * UNREADABLE_MS)
    assert not script.registered("late")
    assert script.told_once("unreadable", SCHEMA).client == script.client("late")

    world.ensemble.closed.clear()
    script.settle()
    script.calm()


@on_seeds()
def test_a_consumer_that_may_not_read_its_commands_stops_when_its_registration_is_gone(seed: int) -> None:
    """Before the fix, it waited for the command that it could not read. It read on, with a lease, in a session without
    a registration."""
    script = Script(seed, consumers=2, topics={"t": 6})
    script.settle()
    world, name = script.world, "consumer0"
    member = script.member(name)
    world.ensemble.closed.update(f"{DRAFT.channel(GROUP, member)}/{number:010d}" for number in range(20))
    script.join("late")  # so a partition must be stopped
    world.run_until(lambda: script.outstanding(name) > 0, what="a command that it cannot read")
    world.run_for(1_000)
    mark = CreateNode(f"{DRAFT.channel(GROUP, member)}/{EVICTED_MARK}", str(SESSION_MS).encode())
    world.ensemble.operate(DeleteNode(DRAFT.registration(GROUP, member), ANY_VERSION), mark)  # as an eviction does it
    world.run_for(1_000)
    assert script.application(name).positions == {}
    world.ensemble.closed.clear()
    script.settle()


@on_seeds()
def test_an_evicted_consumer_without_read_access_gives_its_session_up(
    seed: int,
) -> None:
    """It does so at once, so that a session without a registration does not delay other members."""
    script = Script(seed, consumers=2, topics={"t": 6})
    script.settle()
    world, member = script.world, script.member("consumer0")
    hold_calls(script.application("consumer0"))
    world.ensemble.closed.add(DRAFT.registration(GROUP, member))
    mark = CreateNode(f"{DRAFT.channel(GROUP, member)}/{EVICTED_MARK}", str(SESSION_MS).encode())
    world.ensemble.operate(DeleteNode(DRAFT.registration(GROUP, member), ANY_VERSION), mark)
    (session,) = [store.session for store in script.process("consumer0").stores]
    assert session is not None
    world.run_for(500)
    assert not session.alive
    assert not script.actor("consumer0").role.readable


@on_seeds()
def test_a_deleted_topics_nodes_go_once_the_topic_list_is_readable(seed: int) -> None:
    """Nothing else happens in the group. Before the fix, the group was decided on before the list came, and never
    again."""
    script = Script(seed, consumers=2, topics={"t": 2, "u": 2})
    script.settle()
    world = script.world
    script.consumers.registers(subscription={"t": 1})
    for name in ("consumer0", "consumer1"):
        script.leave(name)
    script.join("late")
    world.run_until(lambda: script.registered("late") and len(script.owned("late")) == 2, what="u is nobody's any more")
    world.ensemble.closed.add(TOPICS)
    old = script.leader()
    world.crash(old, restart_after_ms=None)
    world.run_until(lambda: script.leader() != old, what="another serves")
    script.delete_topic("u")
    world.run_for(5_000)
    world.ensemble.closed.clear()
    script.calm()
    assert world.ensemble.stat(DRAFT.mark(GROUP, "u")) is None
