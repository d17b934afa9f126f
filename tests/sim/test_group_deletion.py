"""A deletion sees every node disappear, whoever removes it. A later deletion does not trust what an earlier one
listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.actors import GROUP
from tests.sim.field import parse_json
from tests.sim.rest_checkers import state_of
from tests.sim.script import QUIET, Script, on_seeds
from tests.sim.test_group_end import FOLDER, RECORD, STATE, below, deletes, emptied, gone
from zkcoord.core.topics import DELETED_MS
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import SetNode


@on_seeds()
@pytest.mark.parametrize("torn_rate", [0.0, 0.7])
def test_a_group_with_static_members_is_deleted_with_what_is_remembered_of_them(seed: int, torn_rate: float) -> None:
    script = emptied(seed, consumers=2, hold_ms=600_000)
    script.world.options = replace(script.world.options, torn_rate=torn_rate)
    assert len(below(script, DRAFT.instances(GROUP))) == 3
    script.request("delete", run="r1", offsets=True)
    script.world.run_until(lambda: gone(script), what="the deletion")
    script.calm()


@on_seeds(8)
@pytest.mark.parametrize("early_ms", [-4, 8, 20, 32])
def test_a_group_is_deleted_at_the_moment_at_which_a_topic_that_is_gone_is_dropped(seed: int, early_ms: int) -> None:
    """Before the fix, the end of the drop forgot the topic's nodes, and the deletion, which had listed some of them,
    deleted them again and again."""
    options = replace(QUIET, torn_rate=0.7, time_rate=0.1)
    script = Script(seed, options, consumers=1, coordinators=1, topics={"t": 4, "u": 2})
    script.settle()
    world = script.world
    world.crash("consumer0", restart_after_ms=None)
    world.run_until(lambda: not script.field.registrations and not script.field.channels, what="it is gone")
    script.delete_topic("t")
    world.run_for(DELETED_MS - early_ms)
    script.request("delete", run="r1", offsets=True)
    world.run_until(lambda: gone(script), 8_000, "the deletion")
    script.calm()


@on_seeds()
def test_one_deletions_list_is_not_believed_at_the_next(seed: int) -> None:
    """A member joins while a group without offsets is being deleted. When it has left, its offsets are seen."""
    script = Script(seed, coordinators=1, consumers=0)
    world = script.world
    world.run_until(lambda: script.field.epoch_session is not None, what="the election")
    for path in (f"{FOLDER}/ids", f"{DRAFT.channels_of(GROUP)}/somebody"):  # a joining member delays the deletion
        world.ensemble.ensure(path, b"")
    world.run_until(lambda: world.ensemble.stat(STATE) is not None, what="its first sight")
    script.request("delete", run="r1")
    world.run_until(lambda: bool(world.events("group_removed")), what="the deletion begins")
    script.join("consumer0")
    script.settle()
    world.run_for(3_000)
    kept = [*below(script, DRAFT.offsets(GROUP)), *below(script, DRAFT.owners(GROUP))]
    assert len(kept) == 2 * 6
    script.leave("consumer0")
    world.run_until(lambda: not script.field.registrations and not script.field.channels, what="it leaves")
    script.request("delete", run="r2")
    world.run_until(lambda: world.ensemble.data(RECORD) == b"", what="the empty record")
    assert [told.fields["why"] for told in world.events("group_removed") if "r2" in told.fields["why"]] == []
    assert [*below(script, DRAFT.offsets(GROUP)), *below(script, DRAFT.owners(GROUP))] == kept
    script.calm()


@on_seeds()
def test_numbers_of_marks_outlive_a_deletion_that_was_taken_back_in_the_middle(seed: int) -> None:
    """Before the fix, the marks were removed with the rest of the folder, and the topics of the group, which stays,
    were marked 1 again."""
    script = emptied(seed, consumers=2)
    world = script.world
    world.strike(script.leader(), deletes(RECORD), "before", None)
    script.request("delete", run="r1", offsets=True)
    world.run_until(lambda: world.struck, what="the crash")
    assert world.ensemble.stat(DRAFT.mark(GROUP, "t")) is None
    script.edit_record(wish={})
    script.join("consumer9")
    script.settle()
    assert parse_json(world.ensemble.data(DRAFT.mark(GROUP, "t")) or b"")["incarnation"] == 2
    script.calm()


@on_seeds()
@pytest.mark.parametrize("when", ["before", "after_applied_reply_lost", None])
@pytest.mark.parametrize("hold_ms", [None, 600_000])
def test_a_group_whose_offsets_were_kept_counts_as_deleted_until_somebody_joins(
    seed: int, when: str | None, hold_ms: int | None
) -> None:
    """The coordinator may die at the multi that ends the deletion. The return of a static member raises no
    generation."""
    script = emptied(seed, consumers=2, hold_ms=hold_ms)
    world, old = script.world, script.leader()
    assert "deleted" not in state_of(script.field, GROUP)
    if when is not None:
        world.strike(old, lambda t: any(write == SetNode(RECORD, b"", write.version) for write in t.writes), when, None)
    script.request("delete", run="r1")
    world.run_until(lambda: world.ensemble.data(RECORD) == b"", what="the empty record")
    assert state_of(script.field, GROUP)["deleted"] is True
    world.run_for(3_000)
    assert state_of(script.field, GROUP)["deleted"] is True
    if hold_ms is None:
        script.join("consumer9")
    else:
        for name in ("consumer0", "consumer1"):
            world.restart(name)
    script.settle()
    world.run_until(lambda: "deleted" not in state_of(script.field, GROUP), what="it is an ordinary group again")
    script.calm()
