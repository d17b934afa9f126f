"""Failure cases of applications (docs/failures.md): callbacks that block, that call back, that never return."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.application import CALLS_MAX
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from zkcoord.core.member.requests import AnnounceRequest, CommitRequest
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UsageError
from zkcoord.member.calls import CALLS_WAITING_MAX
from zkcoord.shell.ports import Request
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import SetNode


@on_seeds()
def test_f16_a_callback_that_blocks_keeps_its_lease_and_delays_its_own_member_only(seed: int) -> None:
    """One consumer is asked to stop and goes on working. The hand-over of the other consumers ends meanwhile, and its
    session lives."""
    script = Script(seed, consumers=3, topics={"t": 12}, rebalance_timeout_ms=60_000)
    script.settle()
    world, busy = script.world, script.member("consumer0")
    kept = script.owned("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    script.join("late")
    world.run_until(
        lambda: script.registered("late") and all(not script.outstanding(n) for n in ("consumer1", "consumer2")),
        what="the others have obeyed",
    )
    world.run_until(lambda: len(script.owned("late")) >= 1, what="the newcomer has what the others gave up")
    world.run_for(3 * SESSION_MS)
    assert script.member("consumer0") == busy  # its lease was renewed during the callback
    assert script.owned("consumer0") == kept
    assert script.outstanding("consumer0") == 1
    go_on()
    script.settle("it obeys")
    script.calm()


@on_seeds()
def test_f16_a_hanging_programs_waiting_calls_are_bounded_over_many_leases(seed: int) -> None:
    """Before the fix, each end of the lease added another `lost` and another start to the calls that wait."""
    script = Script(seed, consumers=1, topics={"t": 6})
    script.settle()
    world, application, member = script.world, script.application("consumer0"), script.member("consumer0")
    application.hang()
    waiting = []
    for _ in range(CALLS_WAITING_MAX):
        [store] = script.process("consumer0").stores
        script.wire("consumer0").down = False  # it hears nothing, but its heartbeats arrive, until its lease has ended
        world.run_for(SESSION_MS)
        faults.unblock(store)
        world.run_for(1_000)
        waiting.append(application.waiting)
    assert CALLS_WAITING_MAX <= waiting[-1] == waiting[CALLS_WAITING_MAX * 3 // 4] <= CALLS_MAX
    assert script.member("consumer0") == member
    application.go_on()
    world.run_until(lambda: len(application.positions) == 6 and not application.waiting, what="it reads all again")
    assert script.member("consumer0") == member
    script.calm()


@on_seeds()
def test_f16_a_member_that_hung_for_many_sessions_registers_once_it_has_caught_up(seed: int) -> None:
    script = Script(seed, consumers=1, topics={"t": 6})
    script.settle()
    world, application = script.world, script.application("consumer0")
    application.hang()
    for _ in range(CALLS_WAITING_MAX):
        faults.cut(world, script.process("consumer0"))
        world.run_for(2 * SESSION_MS)
        faults.uncut(world, script.process("consumer0"))
        world.run_for(SESSION_MS)
    assert CALLS_WAITING_MAX <= application.waiting <= CALLS_MAX
    assert not script.registered("consumer0")
    application.go_on()
    script.settle("it is back")
    script.calm()


@on_seeds()
def test_f17_a_commit_asked_for_inside_a_callback_is_answered(seed: int) -> None:
    """The application commits in the middle of its own stop. The commit is answered or refused, never stuck."""
    script = Script(seed, consumers=2, topics={"t": 6})
    script.settle()
    world, application = script.world, script.application("consumer0")
    application.commits = False
    asked: list[Future[None]] = []
    answer = application._answer

    def committing() -> None:
        _, name, _ = application._calls[0]
        if name == "stop" and not asked:
            future: Future[None] = Future()
            asked.append(future)
            offsets = {p: application.positions[p] for p in sorted(application.positions)}
            script.process("consumer0").inbox.put(Request("commit", application.wanted(offsets), future))
            world.at(world.now_ms + 1_000, committing)  # the callback waits for its commit, for this long at most
            return
        answer()

    application._answer = committing  # type: ignore[method-assign]
    script.join("late")
    script.settle("handed over")
    assert len(asked) == 1
    assert asked[0].done()
    assert asked[0].exception() is None or isinstance(asked[0].exception(), FencedError)
    script.calm()


@on_seeds()
def test_f22_a_coordinator_that_is_stopped_during_a_flap_does_not_come_back(seed: int) -> None:
    """The coordinator is told to stop while its link is broken. It must not be elected or write later."""
    script = Script(seed, consumers=2)
    script.settle()
    world, old = script.world, script.leader()
    script.process(old).cut = True
    next(store for store in script.process(old).stores if store.wire is not None).break_wire("by the script")
    world.run_for(200)
    script.process(old).inbox.put(Request("stop"))
    world.run_for(500)
    asked_ms = world.now_ms
    script.process(old).cut = False
    world.run_until(lambda: script.field.epoch_session is not None and script.leader() != old, what="another serves")
    script.join("late")
    script.settle("the other one serves")
    assert [t for t in world.tried if t.client == script.client(old) and t.time_ms >= asked_ms] == []
    assert script.actor(old).loop.finished
    script.calm()


@on_seeds()
def test_f54_a_foreign_offset_under_a_stop_is_kept_and_the_next_owner_starts_there(seed: int) -> None:
    """A tool sets the offset of a partition that is being stopped. The release must not overwrite it."""
    script = Script(seed, consumers=2, topics={"t": 6}, rebalance_timeout_ms=60_000)
    script.settle()
    world, application = script.world, script.application("consumer0")
    application.commits = False
    allowed, application.allowed = application.allowed, lambda partition: False  # it is busy and reads nothing
    go_on = hold_calls(application)
    script.join("late")
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="a stop is being obeyed")
    command = next(iter(script.field.commands[GROUP, script.member("consumer0")].values()))
    partition: TopicPartition = sorted(command.partitions or ())[0]
    path = DRAFT.offset(GROUP, partition)
    stat = world.ensemble.stat(path)
    assert stat is not None
    assert not world.ensemble.operate(SetNode(path, b"7", stat.version)).reason
    go_on()
    script.settle("handed over")
    application.allowed = allowed
    first = script.journal("start", partition)[-1]
    assert first.client == script.client("late")
    assert first.start == 7
    script.calm()


PLAIN: Any = ("t", 0)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("commit", CommitRequest({PLAIN: 5}, {})),
        ("commit", CommitRequest({TopicPartition("u", 0): 5, PLAIN: 5}, {})),
        ("commit", CommitRequest({TopicPartition("t", 0): 5.5}, {})),  # type: ignore[dict-item]
        ("announce", AnnounceRequest({PLAIN: (0, 5)}, {})),
        ("announce", AnnounceRequest({TopicPartition("t", 0): (0.0, 5.5)}, {})),  # type: ignore[dict-item]
        ("commit", None),
    ],
)
@on_seeds(3)
def test_f63_a_request_that_is_none_fails_alone_and_the_member_goes_on(seed: int, name: str, argument: Any) -> None:
    """Before the fix, the AttributeError ended the membership, or a status was written that nobody could decode."""
    script = Script(seed, consumers=1, coordinators=1, topics={"t": 1})
    script.settle()
    member = script.member("consumer0")
    if argument is not None:  # as if the request were decided now
        started = script.application("consumer0").starts[TopicPartition("t", 0)]
        argument = argument._replace(starts={TopicPartition("t", 0): started})
    future: Future[None] = Future()
    script.process("consumer0").inbox.put(Request(name, argument, future))
    script.world.run_until(future.done, 5_000, "it is answered")
    assert isinstance(future.exception(0), AttributeError if argument is None else UsageError)
    script.world.run_for(1_000)
    assert script.member("consumer0") == member
    script.calm()
