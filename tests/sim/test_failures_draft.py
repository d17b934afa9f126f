"""Consumers that know only the draft (docs/protocol.md, section 8, and F48): what they stop is released for them."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.draft_member import DraftMember
from tests.sim.script import Script, on_seeds
from zkcoord.tree.paths import DRAFT


def with_draft_member(seed: int) -> tuple[Script, DraftMember]:
    """A draft-only member that has everything, alone."""
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
