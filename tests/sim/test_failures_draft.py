"""Consumers that know only the draft (docs/protocol.md, section 8, and F48): the coordinator releases what they
stop."""

from __future__ import annotations

import pytest

from tests.sim.actors import GROUP
from tests.sim.draft_member import DraftMember, SessionOverError
from tests.sim.field import consumer_of
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import DeleteNode


def with_draft_member(seed: int) -> tuple[Script, DraftMember]:
    """A member that knows only the draft, alone, with all partitions."""
    script = Script(seed, consumers=0)
    for path in (DRAFT.ids(GROUP), DRAFT.channels_of(GROUP)):
        script.world.ensemble.ensure(path, b"")
    script.world.spawn("old", DraftMember)
    member = script.process("old").actor
    assert isinstance(member, DraftMember)
    script.world.run_until(lambda: member.reading == set(script.partitions()), 20_000, "it reads everything")
    return script, member


@on_seeds()
def test_f48_a_draft_only_members_stop_comes_to_rest_and_its_partitions_move(seed: int) -> None:
    script, member = with_draft_member(seed)
    world = script.world
    script.join("consumer0")
    world.run_until(lambda: len(script.owned("consumer0")) == 2 if script.registered("consumer0") else False, 20_000)
    script.settle()
    assert len(member.reading) == 2
    assert member.obeyed == ["start-fetcher", "stop-fetcher"]
    marked = [
        change.after.data
        for txn in world.ensemble.log
        for change in txn.changes
        if "/owners/t/" in change.path and change.after is not None and change.after.data.startswith(b"!")
    ]
    assert marked == [f"!{member.consumer_id}-0".encode()] * 2
    assert len(world.events("draft_member_stopped")) == 1
    script.leave("consumer0")
    world.run_until(lambda: member.reading == set(script.partitions()), 20_000, "it has everything again")
    world.stop("consumer0")
    script.calm()


@on_seeds()
def test_f48_a_failover_between_a_draft_only_members_stop_and_its_release_changes_nothing(seed: int) -> None:
    script, member = with_draft_member(seed)
    world = script.world
    member.obeys = False
    script.join("consumer0")
    world.run_until(lambda: bool(script.commands_sent("stop-fetcher")), 20_000, "the stop")
    old = script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 20_000, "another serves")
    world.run_for(5_000)
    assert len(script.commands_sent("stop-fetcher")) == 1
    assert script.owned("consumer0") == []
    member.obeys = True
    script.process("old").inbox.put(None)  # type: ignore[arg-type]
    script.settle()
    assert len(member.reading) == 2
    script.calm()


@on_seeds()
@pytest.mark.parametrize("option", ["start-fetcher", "stop-fetcher"])
def test_a_draft_only_member_that_obeys_when_it_is_evicted_changes_nothing(seed: int, option: str) -> None:
    """The member has no fence. Its deletion is under way and comes after the eviction. Its partitions wait for the
    grace."""
    script, member = with_draft_member(seed)
    world, process = script.world, script.process("old")
    process.dies_of = (SessionOverError,)
    script.set_policy(max_rebalance_retries=0)
    session, old = member.store.session, member.consumer_id
    assert session is not None
    member.obeys = False
    if option == "stop-fetcher":
        script.join("consumer0")
    else:
        script.grow("t", 6)
    world.run_until(lambda: (GROUP, old) in script.field.evicted, 40_000, "it is evicted")
    [(sequence, command)] = script.field.commands[GROUP, old].items()
    assert command.option == option
    assert not world.ensemble.submit(session, [DeleteNode(f"{member.channel}/{sequence}", 0)]).reason
    member.obeys = True  # now it looks, and sees its eviction
    had = {partition for (_, partition), thread in script.field.owners.items() if consumer_of(thread) == old}
    assert len(had) == len(script.partitions())
    evicted_ms = world.now_ms
    script.settle()
    first_ms = min(t.time_ms for p in had for t in script.commands_sent("start-fetcher", p, evicted_ms))
    assert first_ms >= evicted_ms + session.timeout_ms
    script.calm()
