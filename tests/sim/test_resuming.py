"""Held partitions start again when the lease is back. The answer to an earlier start does not count. Offsets and owners
that were read for the restart do not count once a stop takes the partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP, topic_json
from tests.sim.application import Application
from tests.sim.script import QUIET, Script, hold_calls, on_seeds
from tests.sim.test_replay import P0, ask, position, process, scene
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, SetNode, Transaction

PATH, OTHER = "/brokers/topics/t", "/brokers/topics/u"


def commits(transaction: Transaction) -> bool:
    """True for a transaction that commits offsets."""
    return transaction.why == "commit"


def obeys_a_stop(transaction: Transaction) -> bool:
    """True for a transaction that acknowledges a stop and releases its partitions."""
    return "acknowledge stop" in transaction.why


def _stop_during_a_revival(script: Script) -> None:
    """The consumer's lease ends. Meanwhile all its partitions are to be stopped, by two commands, of which the second
    is not read together with the list. The lease comes back, the consumer starts its partitions again, and loses the
    link."""
    world, name = script.world, "consumer0"
    faults.cut(world, script.process(name))
    world.run_until(lambda: bool(script.journal("lost")), what="the lease ends")
    for count, path in enumerate((PATH, OTHER), start=1):
        assert not world.ensemble.operate(DeleteNode(path, -1)).reason
        world.run_until(lambda sent=count: script.outstanding(name) == sent, what="the stop is sent")
    assert script.registered(name)
    faults.uncut(world, script.process(name))
    role = script.actor(name).role
    registered = role.registered

    def reviving() -> bool:
        unread = None in registered.watch.nodes.view.commands.values()
        return unread and bool(registered.application.resuming)

    world.run_until(reviving, what="it starts again what it holds")
    for store in script.process(name).stores:
        store.break_wire("once more", server_side=False)
    world.run_until(lambda: script.outstanding(name) == 0, what="the stops are obeyed")


def _back_after_a_revival(seed: int) -> Script:
    """A group whose topic was deleted and is back; the stop came while the only consumer started its partitions
    again."""
    one_by_one = replace(QUIET, burst_rate=0.0)  # else inputs are handled before the test sees them
    script = Script(seed, one_by_one, consumers=1, coordinators=1, topics={"t": 2, "u": 1})
    script.settle()
    world = script.world
    world.run_for(1_000)
    _stop_during_a_revival(script)
    assert not world.ensemble.operate(CreateNode(PATH, topic_json(2))).reason
    script.settle("the topic is back")
    return script


@on_seeds(6)
@pytest.mark.parametrize("how", ["reply_lost", "request_lost"])
def test_an_unknown_commit_after_a_revival_that_a_stop_ended_loses_nothing(how: str, seed: int) -> None:
    script = _back_after_a_revival(seed)
    world = script.world
    world.strike("consumer0", commits, how)
    world.run_until(lambda: world.struck, what="a commit without an answer")
    world.run_for(5_000)
    script.calm()


@on_seeds(6)
def test_an_unknown_release_after_a_revival_that_a_stop_ended_is_made_again(seed: int) -> None:
    """Before the fix, the stop was acknowledged without the release, and the coordinator sent stops again and again."""
    script = _back_after_a_revival(seed)
    world = script.world
    world.strike("consumer0", obeys_a_stop, "request_lost")
    began_ms = world.now_ms
    script.join("late")
    world.run_until(lambda: world.struck, what="a release without an answer")
    world.run_for(5_000)
    assert len(script.commands_sent("stop-fetcher", since_ms=began_ms)) <= 2
    script.settle()
    script.calm()


@on_seeds(6)
def test_a_stray_after_a_revival_ended_by_a_stop_is_restarted(seed: int) -> None:
    """The owner must be read again: the restart had read the owner node of an earlier grant."""
    script = _back_after_a_revival(seed)
    world, partition = script.world, TopicPartition("t", 0)
    world.run_for(1_000)
    began_ms, elsewhere = world.now_ms, position(script, partition) + 1_000_000
    with pytest.raises(FencedError, match="its committed offset is"):
        ask(script, "consumer0", "announce", {partition: (elsewhere, elsewhere + 9)}).result()
    world.run_until(lambda: bool(script.journal("start", partition, began_ms)), what="it is started again")
    script.settle()
    script.calm()


def _calls(application: Application) -> list[str]:
    return [name for _, name, _ in application._calls]


def _lose_lease(script: Script, name: str) -> None:
    """The consumer hears nothing until its lease ends. Then it is back in the same session."""
    world, application = script.world, script.application(name)
    wire, before, member = script.wire(name), _calls(application).count("lost"), script.member(name)
    wire.down = False
    world.run_until(lambda: _calls(application).count("lost") > before, what="the lease ends")
    wanted = _calls(application).count("start") + 1
    world.run_until(lambda: _calls(application).count("start") == wanted, what="it is told to start again")
    assert script.member(name) == member  # the same session


@on_seeds(4)
def test_the_answer_to_an_abandoned_revival_does_not_count_for_the_next(seed: int) -> None:
    """on_start is slow (or its worker is busy). The lease ends, comes back, ends, and comes back. Then on_start
    returns.

    This is a black-box test: only the checkers of invariants complain.
    """
    script = Script(seed, replace(QUIET, read_ms_max=60, call_ms_max=0), consumers=1, coordinators=1)
    script.settle()
    world, application = script.world, script.application("consumer0")
    world.run_for(1_000)
    hold_calls(application)
    _lose_lease(script, "consumer0")
    _lose_lease(script, "consumer0")
    assert _calls(application) == ["lost", "start", "lost", "start"]
    application._answer()  # the answer to `lost`
    application._answer()  # the answer to the first start, whose partitions were lost again by then
    world.run_for(1_000)  # the second on_lost still waits: the worker is slow
    application._answer()
    del application._next_call
    application._answer()
    script.settle()
    world.run_for(3_000)
    script.calm()


@on_seeds()
def test_f66_an_offset_found_overwritten_during_a_stop_stays_and_is_not_revived(seed: int) -> None:
    """Somebody sets an offset while the program is in its stop, so the program loses the partition. Its final offset
    was decided before that."""
    script = scene(seed, consumers=1, partitions=4)
    world, application = script.world, script.application("consumer0")
    hold_calls(application)
    script.join("heir")
    world.run_until(lambda: bool(application._calls), 20_000, "it is told to stop")
    (_, _, (lost, _)) = application._calls[0]
    at, path = position(script, lost), DRAFT.offset(GROUP, lost)
    process(script, "consumer0", lost, at, at + 9)
    application.positions[lost] = at + 9
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, str(at + 4).encode(), stat.version)).reason
    with pytest.raises(FencedError):
        ask(script, "consumer0", "commit", {lost: at + 9}).result()
    world.run_for(2_000)
    assert _calls(application) == ["stop", "lost"]
    del application._next_call  # type: ignore[attr-defined]
    application._answer()
    script.settle()
    assert [e.start for e in script.journal("start", lost) if e.process == "heir"] == [at + 4]


@on_seeds()
def test_an_offset_that_a_tool_sets_while_the_link_is_broken_is_told_and_started_from(seed: int) -> None:
    """After a broken link all held partitions are read again, so the new offset is found even without a commit."""
    script = Script(seed, QUIET, consumers=1, coordinators=1)
    script.settle()
    world, application, partition = script.world, script.application("consumer0"), TopicPartition("t", 0)
    world.run_for(1_000)
    application.commits = False
    application._read = lambda *_args, **_named: None  # type: ignore[method-assign]
    script.process("consumer0").stores[-1].break_wire("a flap", server_side=False)
    began_ms = world.now_ms
    assert not world.ensemble.operate(SetNode(DRAFT.offset(GROUP, partition), b"7", ANY_VERSION)).reason
    world.run_until(lambda: bool(script.journal("start", partition, began_ms)), what="it is started again")
    assert [entry.start for entry in script.journal("start", partition, began_ms)] == [7]
    assert script.journal("lost", partition, began_ms)
    (told,) = world.events("foreign_offset", began_ms)
    assert (told.fields["partitions"], told.fields["offset"], told.fields["own"]) == ([partition], 7, None)
    application.commits = True
    del application._read  # type: ignore[attr-defined]
    script.calm()


@on_seeds(4)
def test_f85_an_offset_that_somebody_sets_under_a_start_again_is_where_it_starts(seed: int) -> None:
    """on_start is slow. The link breaks meanwhile, so the held partitions are read again."""
    script = scene(seed, consumers=1)
    world, application = script.world, script.application("consumer0")
    hold_calls(application)
    _lose_lease(script, "consumer0")
    at, path = position(script, P0), DRAFT.offset(GROUP, P0)
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, str(at + 4).encode(), stat.version)).reason
    for store in script.process("consumer0").stores:
        store.break_wire("once more")
    registered = script.actor("consumer0").role.registered
    world.run_until(lambda: registered.memory.held[P0].offset == at + 4, what="it reads what was set")
    began_ms = world.now_ms
    del application._next_call  # type: ignore[attr-defined]
    application._answer()
    world.run_for(2_000)
    assert [e.start for e in script.journal("start", P0, began_ms)][-1] == at + 4
    process(script, "consumer0", P0, at + 4, at + 9)
    ask(script, "consumer0", "commit", {P0: at + 9}).result()
    assert position(script, P0) == at + 9
    script.settle()
