"""F57, F80 (docs/failures.md): a consumer gives up its registration, or ends, while its application still reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.actors import GROUP
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnavailableError
from zkcoord.member.leaving import REJOIN_MS
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import DeleteNode

LEASE_MS = SESSION_MS * 2 // 3


def channel_gone(seed: int) -> tuple[Script, str, list[TopicPartition], Callable[[], None]]:
    """The channel of consumer0 is removed. Returns its registration, its partitions, and a function that lets its
    application answer."""
    script = Script(seed, consumers=2)
    script.settle()
    consumer, mine = script.member("consumer0"), script.owned("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    assert not script.world.ensemble.operate(DeleteNode(DRAFT.channel(GROUP, consumer), -1)).reason
    script.world.run_until(lambda: bool(script.world.events("session_lost")), what="it gives its registration up")
    return script, consumer, mine, go_on


def begun_by_another(script: Script, mine: list[TopicPartition], since_ms: int) -> bool:
    """True when consumer1 has started one of these partitions since then."""
    starts = script.journal("start", since_ms=since_ms)
    return any(entry.process == "consumer1" and entry.partition in mine for entry in starts)


@on_seeds(4)
def test_f57_nobody_starts_what_a_consumer_gives_up_before_its_application_has_obeyed_lost(seed: int) -> None:
    script, consumer, mine, go_on = channel_gone(seed)
    world, lost_ms = script.world, script.world.now_ms
    world.run_for(LEASE_MS // 2)
    assert (GROUP, consumer) in script.field.registrations
    assert not begun_by_another(script, mine, lost_ms)
    go_on()
    world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, what="the session's end")
    assert world.now_ms < lost_ms + LEASE_MS
    assert {entry.partition for entry in script.journal("lost", since_ms=lost_ms)} == set(mine)
    script.settle()
    script.calm()


@on_seeds(4)
def test_f57_an_application_that_never_obeys_lost_is_waited_for_until_the_lease_ends(seed: int) -> None:
    script, consumer, mine, go_on = channel_gone(seed)
    world, lost_ms = script.world, script.world.now_ms
    world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, what="the session's end")
    assert LEASE_MS - SESSION_MS // 6 - 100 <= world.now_ms - lost_ms <= LEASE_MS + 100
    world.run_until(lambda: begun_by_another(script, mine, lost_ms), what="another reads on")
    go_on()
    script.settle()
    script.calm()


@on_seeds()
def test_f57_one_that_is_asked_to_leave_meanwhile_waits_as_long(seed: int) -> None:
    script, consumer, _, go_on = channel_gone(seed)
    world, lost_ms = script.world, script.world.now_ms
    left = script.leave("consumer0")
    world.run_for(LEASE_MS // 2)
    assert not left.done()
    assert (GROUP, consumer) in script.field.registrations
    go_on()
    world.run_until(left.done, what="it has left")
    assert world.now_ms < lost_ms + LEASE_MS
    world.run_until(lambda: len(script.owned("consumer1")) == 4, what="another has all")
    assert not script.registered("consumer0")
    script.calm()


@on_seeds()
def test_f57_a_batch_that_goes_on_after_lost_was_obeyed_is_waited_for(seed: int) -> None:
    """A Spark consumer's batch is cancelled, and takes a while to end. The consumer must not join meanwhile."""
    script, consumer, mine, go_on = channel_gone(seed)
    world, lost_ms, role = script.world, script.world.now_ms, script.actor("consumer0").role
    role.may_join = lambda: False
    go_on()
    world.run_for(LEASE_MS // 2)
    assert len(script.journal("lost", since_ms=lost_ms)) == len(mine)
    assert (GROUP, consumer) in script.field.registrations
    role.may_join = lambda: True
    world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, what="the session's end")
    assert world.now_ms - lost_ms < LEASE_MS * 3 // 4
    script.settle()
    script.calm()


@on_seeds()
def test_f57_one_whose_session_ends_meanwhile_is_not_waited_for(seed: int) -> None:
    """Nothing must be kept from other members any more, so the request to leave is answered, though the application
    does not answer."""
    script, _, _, go_on = channel_gone(seed)
    ensemble, left = script.world.ensemble, script.leave("consumer0")
    (session,) = [s for s in ensemble.sessions.values() if s.client == script.client("consumer0")]
    ensemble.end_session(session, "expire")
    for store in script.process("consumer0").stores:
        store.break_wire("its session has expired")
    script.world.run_for(LEASE_MS // 4)
    assert left.done()
    go_on()
    script.calm()


@on_seeds()
def test_f57_one_that_was_evicted_has_nothing_to_wait_for(seed: int) -> None:
    """Its registration is gone, and its partitions are kept back by the grace. So it registers again as soon as it
    may."""
    script = Script(seed, consumers=2)
    script.settle()
    consumer = script.member("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    assert not script.world.ensemble.operate(DeleteNode(DRAFT.registration(GROUP, consumer), -1)).reason
    script.world.run_until(lambda: bool(script.world.events("session_lost")), what="it sees that")
    script.world.run_for(REJOIN_MS[0] + LEASE_MS // 4)
    assert script.member("consumer0") != consumer
    go_on()
    script.settle()
    script.calm()


@on_seeds()
@pytest.mark.parametrize("given_up_before", [False, True])
def test_f57_a_program_ended_by_a_callback_obeys_lost_before_another_starts(seed: int, given_up_before: bool) -> None:
    if given_up_before:
        script, consumer, mine, go_on = channel_gone(seed)
    else:
        script = Script(seed, consumers=2)
        script.settle()
        consumer, mine = script.member("consumer0"), script.owned("consumer0")
        go_on = hold_calls(script.application("consumer0"))
    world, ends, since_ms, loop = script.world, SystemExit(3), script.world.now_ms, script.actor("consumer0").loop
    script.process("consumer0").restarts = False
    script.process("consumer0").inbox.put(Request("exit", ends))
    world.run_for(LEASE_MS // 2)
    assert (GROUP, consumer) in script.field.registrations
    assert not begun_by_another(script, mine, since_ms)
    go_on()
    world.run_until(lambda: loop.finished, what="its end")
    assert loop.fatal is ends
    assert world.now_ms < since_ms + LEASE_MS
    world.run_until(lambda: begun_by_another(script, mine, since_ms), what="another reads on")
    script.calm()


@on_seeds(4)
@pytest.mark.parametrize("answers", [True, False])
def test_f80_nobody_starts_partitions_that_an_abandoned_consumer_is_still_stopping(seed: int, answers: bool) -> None:
    """`Consumer.stop()` abandons its consumer when `on_stop` takes longer than the rebalance timeout. The application
    may read until `on_stop` has returned, or the lease is over."""
    script = Script(seed, consumers=2)
    script.settle()
    consumer, mine = script.member("consumer0"), script.owned("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    world, loop, ends = script.world, script.actor("consumer0").loop, UnavailableError("left without an answer")
    left = script.leave("consumer0")
    world.run_for(LEASE_MS)
    assert not left.done()
    since_ms = world.now_ms
    script.process("consumer0").restarts = False
    script.process("consumer0").inbox.put(Request("abandon", ends))
    world.run_for(LEASE_MS // 2)
    assert (GROUP, consumer) in script.field.registrations
    assert not begun_by_another(script, mine, since_ms)
    if answers:
        go_on()
    world.run_until(lambda: loop.finished, what="its end")
    if answers:
        assert world.now_ms - since_ms < LEASE_MS * 3 // 4
    else:
        assert LEASE_MS - SESSION_MS // 6 - 100 <= world.now_ms - since_ms <= LEASE_MS + 100
    assert (loop.fatal, left.done()) == (ends, True)
    world.run_until(lambda: begun_by_another(script, mine, since_ms), what="another reads on")
    script.calm()


@on_seeds(4)
def test_f80_nobody_starts_what_an_application_is_still_stopping_when_its_channel_goes(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    consumer, mine = script.member("consumer0"), script.owned("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    script.leave("consumer0")
    script.world.run_for(SESSION_MS // 6)
    assert not script.world.ensemble.operate(DeleteNode(DRAFT.channel(GROUP, consumer), -1)).reason
    script.world.run_until(lambda: bool(script.world.events("session_lost")), what="it gives its registration up")
    lost_ms = script.world.now_ms
    script.world.run_for(LEASE_MS // 2)
    assert (GROUP, consumer) in script.field.registrations
    assert not begun_by_another(script, mine, lost_ms)
    go_on()
    script.world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, what="the session's end")
    assert script.world.now_ms - lost_ms < LEASE_MS * 3 // 4
    script.calm()
