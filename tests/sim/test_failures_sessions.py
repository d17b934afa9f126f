"""Failure cases of sessions and watches (docs/failures.md): outages, lost watches, late callbacks, black holes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP, topic_json
from tests.sim.application import Application
from tests.sim.field import START, STOP
from tests.sim.script import (
    QUIET,
    SESSION_MS,
    Script,
    acknowledges,
    hold_calls,
    makes_channel,
    on_seeds,
    registers,
)
from zkcoord.core.ack_timeouts import JOINING_MS
from zkcoord.shell.ports import CallDone
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.writes import CreateNode, DeleteNode

LEASE_MS = SESSION_MS * 2 // 3


@on_seeds()
def test_f05_a_command_written_while_its_watch_was_lost_in_a_long_outage_is_read(seed: int) -> None:
    """For three session timeouts there is no quorum. The command comes before the consumer has reconnected, and no
    watch fires."""
    script = Script(seed, consumers=2)
    script.settle()
    world, registrations = script.world, set(script.field.registrations)
    world.ensemble.serving = False
    for store in world.stores:
        store.break_wire("no quorum")
    world.run_for(3 * SESSION_MS)
    assert {entry.process for entry in script.journal("lost")} == {"consumer0", "consumer1"}  # their leases ended
    script.process("consumer0").cut = True  # the consumer finds no server yet
    faults.restore(world)
    world.run_until(lambda: script.actor(script.leader()).role._loop.settled, what="the coordinator is back")
    script.grow("t", 8)
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="the command")
    (command,) = script.field.commands[GROUP, script.member("consumer0")].values()
    assert command.option == START
    assert [e for e in script.journal("start") if e.process == "consumer0" and e.partition in command.partitions] == []
    faults.uncut(world, script.process("consumer0"))
    reached_ms = world.now_ms
    script.settle()
    assert world.now_ms - reached_ms < 3_000
    assert set(script.field.registrations) == registrations  # the sessions survived
    assert world.events("evicted") == []
    assert len(script.owned("consumer0")) == 4
    script.calm()


@on_seeds()
def test_f13_a_callback_of_an_earlier_session_is_not_taken_for_the_present_one(seed: int) -> None:
    """The application answers a call of the lost session while the new session waits for its own answer."""
    script = Script(seed, consumers=1)
    world = script.world
    application = script.application("consumer0")
    hold_calls(application)
    world.run_until(lambda: _waiting(application) == ["reset"], what="the reset policy is asked")
    first, (old_token, _, _) = script.member("consumer0"), application._calls[0]
    faults.cut(world, script.process("consumer0"))
    world.run_until(lambda: (GROUP, first) not in script.field.registrations, what="the session's end")
    faults.uncut(world, script.process("consumer0"))
    world.run_until(lambda: script.registered("consumer0"), 10_000, "a new registration")
    second = script.member("consumer0")
    world.run_until(lambda: _waiting(application)[1:][-1:] == ["reset"], what="its start is being obeyed")
    application._calls.popleft()
    script.process("consumer0").inbox.put(CallDone(old_token, dict.fromkeys(script.partitions(), 7)))
    world.run_for(1_000)
    assert second != first
    assert _waiting(application)[-1] == "reset"
    assert script.outstanding("consumer0") == 1
    assert not [t for t in world.tried if second in str(t.transaction) and acknowledges(t.transaction)]
    del application._next_call  # type: ignore[attr-defined]
    application._next_call()
    script.settle()
    assert 7 not in {entry.start for entry in script.journal("start")}
    script.calm()


def _waiting(application: Application) -> list[str]:
    """The calls that are not answered yet, oldest first."""
    return [name for _, name, _ in application._calls]


@on_seeds()
@pytest.mark.parametrize("kind", ["black hole", "deaf", "follower cut"])
def test_f15_a_consumer_stops_reading_before_its_session_can_expire(kind: str, seed: int) -> None:
    """The consumer gets no error: its link loses everything, or its server has no leader and answers only reads and
    pings."""
    followers = 2 if kind == "follower cut" else 0
    script = Script(seed, replace(QUIET, followers=followers, read_ms_max=100), consumers=2)
    script.settle()
    world = script.world
    if followers:
        script.connect_to({"consumer0": "follower-1"})
    wire, mine = script.wire("consumer0"), script.owned("consumer0")
    client, consumer = script.client("consumer0"), script.member("consumer0")
    world.run_for(2_000)
    cut_ms = world.now_ms
    if kind == "follower cut":
        wire.replica.cut = True
    else:
        wire.down = False
        wire.up = kind == "deaf"
    for name in world.processes:
        script.refresh(name)
    world.run_until(lambda: bool(script.journal("lost", since_ms=cut_ms)), what="the lease ends")
    lost_ms = script.journal("lost", since_ms=cut_ms)[0].time_ms
    reads = [e.time_ms for e in script.journal("read") if e.client == client]
    assert cut_ms - 200 < max(reads) <= lost_ms  # it read on as long as it was allowed to
    assert lost_ms - cut_ms <= LEASE_MS + 50
    assert {e.partition for e in script.journal("lost") if e.client == client} == set(mine)
    assert (GROUP, consumer) in script.field.registrations  # so nobody else could have started
    if kind == "deaf":
        script.settle("it looks for another server, in its session")
        assert script.member("consumer0") == consumer
    else:
        faults.cut(world, script.process("consumer0"))
        world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, what="the session's end")
        script.settle("the other one reads them")
        lost_ms = max(e.time_ms for e in script.journal("lost", since_ms=cut_ms) if e.client == client)  # the last loss
        assert script.field.gone[GROUP, consumer].time_ms > lost_ms
        begun_ms = min(e.time_ms for p in mine for e in script.journal("start", p, cut_ms) if e.process == "consumer1")
        later = [e for e in script.journal("read", since_ms=lost_ms + 1) if e.client == client]
        assert begun_ms > lost_ms
        assert later == []
    script.calm()


@on_seeds()
def test_f15_an_answer_that_comes_late_extends_the_lease_from_its_questions_sending_alone(seed: int) -> None:
    """First the server's answers are delayed, then the requests to it. The late answers say nothing about the session
    since then."""
    script = Script(seed, replace(QUIET, read_ms_max=100), consumers=2)
    script.settle()
    world, wire, client = script.world, script.wire("consumer0"), script.client("consumer0")
    wire.down = False
    world.run_for(LEASE_MS // 3)
    asked_ms = world.now_ms
    wire.up = False
    world.run_for(LEASE_MS // 3)
    wire.down = True
    world.run_until(lambda: bool(script.journal("lost", since_ms=asked_ms)), what="the lease ends")
    (lost_ms,) = {entry.time_ms for entry in script.journal("lost", since_ms=asked_ms) if entry.client == client}
    assert lost_ms <= asked_ms + LEASE_MS + 50
    wire.up = True
    script.settle("it goes on")
    script.calm()


@on_seeds()
def test_f21_a_topics_node_is_deleted_and_made_again_and_the_new_one_is_watched(seed: int) -> None:
    """A one-shot watch ends with its node. Unless the missing node is watched, nobody sees that it is created again."""
    script = Script(seed, consumers=2, topics={"t": 4, "u": 2})
    script.settle()
    world, path = script.world, "/brokers/topics/u"
    assert not world.ensemble.operate(DeleteNode(path, -1)).reason
    world.run_until(lambda: all(p.topic == "t" for p, _ in _held(script)), what="its partitions are stopped")
    world.run_for(5_000)
    assert not world.ensemble.operate(CreateNode(path, topic_json(3))).reason
    world.run_until(lambda: len([p for p, _ in _held(script) if p.topic == "u"]) == 3, what="the new ones are held")
    script.grow("u", 6)
    script.settle("the new node is watched, too")
    script.calm()


def _held(script: Script) -> list[tuple]:
    return [(partition, holding) for (_, partition), holding in script.field.holdings.items()]


@on_seeds()
def test_f21_a_topic_that_is_made_after_its_subscribers_came_is_seen(seed: int) -> None:
    script = Script(seed, consumers=2, topics={})
    script.consumers._topics["t"] = 1
    script.world.run_for(2_000)
    script.join("consumer2")
    script.world.run_until(lambda: script.registered("consumer2"))
    script.world.run_for(2_000)
    assert not script.world.ensemble.operate(CreateNode("/brokers/topics/t", topic_json(2))).reason
    script.world.run_until(lambda: script.all_held(), what="the topic is seen")
    script.calm()


@on_seeds()
def test_f21_a_consumer_whose_own_channel_is_deleted_takes_its_session_for_ended(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world, consumer, mine = script.world, script.member("consumer0"), script.owned("consumer0")
    began_ms = world.now_ms
    assert not world.ensemble.operate(DeleteNode(DRAFT.channel(GROUP, consumer), -1)).reason
    world.run_until(lambda: len(script.journal("lost", since_ms=began_ms)) == len(mine), 1_000, "it stops reading")
    assert world.now_ms - began_ms <= 1_000
    world.run_until(
        lambda: script.registered("consumer0") and script.member("consumer0") != consumer, what="it is back"
    )
    script.settle()
    script.calm()


def _joining(seed: int) -> tuple[Script, str]:
    """A group, and the channel of a consumer `slow`, which has just created it and must not register yet."""
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    script.join("slow")
    world.run_until(lambda: any(makes_channel(t.transaction) and "slow" in t.client for t in world.tried))
    script.actor("slow").role.may_join = lambda: False
    (channel,) = [path for path in script.changes_below(DRAFT.channels_of(GROUP)) if "slow" in path]
    return script, channel


@on_seeds()
def test_f46_a_channel_is_left_alone_for_a_minute_while_its_consumer_is_joining(seed: int) -> None:
    script, channel = _joining(seed)
    world, began_ms = script.world, script.world.now_ms
    world.run_for(JOINING_MS - 2_000)
    assert world.ensemble.stat(channel) is not None
    script.actor("slow").role.may_join = lambda: True
    script.settle("it joins with the channel that it made")
    assert DRAFT.channel(GROUP, script.member("slow")) == channel
    assert script.writes_to(channel, began_ms) >= 1
    script.calm()


@on_seeds()
def test_f46_a_consumer_whose_channel_was_purged_while_it_was_joining_makes_it_again(seed: int) -> None:
    script, channel = _joining(seed)
    world, made_ms = script.world, script.world.now_ms
    world.run_until(lambda: world.ensemble.stat(channel) is None, 10_000, "the channel is purged")
    assert JOINING_MS - 100 <= world.now_ms - made_ms <= JOINING_MS + 2_000
    script.actor("slow").role.may_join = lambda: True
    script.settle("it joins all the same")
    refused = [t for t in world.tried if registers(t.transaction) and t.client == "slow#1" and not t.applied]
    assert {t.result.reason for t in refused} == {"NoNode"}  # it found no channel, and made no registration
    assert len(refused) <= 2
    assert DRAFT.channel(GROUP, script.member("slow")) == channel
    script.calm()


@on_seeds()
def test_f46_a_purge_that_was_decided_before_its_consumer_joined_is_refused(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    script.join("slow")
    world.run_until(lambda: any(makes_channel(t.transaction) and "slow" in t.client for t in world.tried))
    slow, leader = script.actor("slow").role, script.wire(script.leader())
    slow.may_join = lambda: False
    (channel,) = [path for path in script.changes_below(DRAFT.channels_of(GROUP)) if "slow" in path]
    world.run_until(lambda: any("registration is gone" in str(a.payload) for a in leader.requests), 10_000, "the purge")
    leader.up = False  # the purge waits in the coordinator's connection
    script.refresh(script.leader())
    slow.may_join = lambda: True
    world.run_until(lambda: script.registered("slow"), what="it joins first")
    leader.up = True
    script.refresh(script.leader())
    script.settle()
    (purge,) = [
        t for t in world.tried if any(type(w) is DeleteNode and w.path == channel for w in t.transaction.writes)
    ]
    assert purge.result.reason == "BadVersion"
    assert DRAFT.channel(GROUP, script.member("slow")) == channel
    assert script.commands_sent(STOP)
    script.calm()
