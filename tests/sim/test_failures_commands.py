"""Failure cases of commands (docs/failures.md): lost acknowledgements, stale and duplicate commands, plans that
changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.sim import faults
from tests.sim.actors import GROUP
from tests.sim.script import QUIET, SESSION_MS, Script, acknowledges, hold_calls, on_seeds, releases, sends
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT

START, STOP = "start-fetcher", "stop-fetcher"


def starts(script: Script, client: str) -> Counter[TopicPartition]:
    """How often each partition was started by an application."""
    return Counter(entry.partition for entry in script.journal("start") if entry.client == client)


@on_seeds()
def test_f03_a_command_is_obeyed_once_though_its_deletion_is_lost(seed: int) -> None:
    """If the request is lost, the command is obeyed but still exists. If the reply is lost, the command is gone, but
    its consumer does not know."""
    for when in ("request_lost", "reply_lost"):
        script = Script(seed, consumers=1)
        world = script.world
        world.strike("consumer0", acknowledges, when)
        world.run_until(lambda world=world: world.struck, what="the acknowledgement")
        script.settle()
        sent = script.commands_sent(START)
        assert [len(tried.commands(START)) for tried in sent] == [1]
        acknowledged = [t for t in world.tried if acknowledges(t.transaction)]
        applied = [t for t in acknowledged if t.applied]
        assert len(applied) == 1
        assert len(acknowledged) == (2 if when == "request_lost" else 1)  # decided again, or found done
        assert starts(script, "consumer0#1") == dict.fromkeys(script.partitions(), 1)
        assert script.journal("lost") == []
        began_ms = world.now_ms
        world.strike("consumer0", acknowledges, when)
        script.join("late")
        world.run_until(lambda world=world: world.struck, what="the stop's acknowledgement")
        script.settle()
        moved = script.owned("late")
        assert len(moved) == 2
        for partition in moved:
            stops = script.journal("stop", partition, began_ms)
            assert [entry.client for entry in stops] == ["consumer0#1"]
            assert script.journal("start", partition)[-1].start == stops[0].start
        script.calm()


@on_seeds()
def test_f04_an_obeyed_but_undeleted_command_does_not_delay_the_next(seed: int) -> None:
    """The consumer hears nothing after its acknowledgement. It obeys the next command as soon as it hears again."""
    for when in ("request_lost", "reply_lost"):
        script = Script(seed, consumers=2)
        script.settle()
        world = script.world
        world.strike("consumer0", acknowledges, when)
        script.grow("t", 8)
        world.run_until(lambda world=world: world.struck, what="the lost acknowledgement")
        faults.cut(world, script.process("consumer0"))
        script.grow("t", 12)
        world.run_for(SESSION_MS // 4)
        faults.uncut(world, script.process("consumer0"))
        reached_ms = world.now_ms
        script.settle("all twelve are held")
        held_ms = max(e.time_ms for e in script.journal("start") if e.process == "consumer0")
        assert held_ms - reached_ms < 2_000  # no time-out, no retry, no eviction was needed
        assert world.events("evicted") == []
        started = starts(script, "consumer0#1")  # it may have had more partitions while it was alone
        assert {p: started[p] for p in script.owned("consumer0")} == dict.fromkeys(script.owned("consumer0"), 1)
        assert len(script.owned("consumer0")) == 6
        script.calm()


@on_seeds()
def test_f07_a_command_for_an_earlier_incarnation_never_reaches_a_new_session(seed: int) -> None:
    """The consumer is killed with a start outstanding, and comes back at once. The old channel belongs to nobody, and
    is deleted with its commands."""
    script = Script(seed, consumers=2)
    world = script.world
    world.strike("consumer0", acknowledges, "before", 100)
    world.run_until(lambda: world.struck, what="it dies with a start outstanding")
    (old,) = [c for (_, c) in script.field.registrations if "consumer0" in c]
    commands = dict(script.field.commands[GROUP, old])
    assert [command.option for command in commands.values()] == [START]
    world.run_until(lambda: script.process("consumer0").incarnation == 2 and script.registered("consumer0"))
    new = script.member("consumer0")
    assert new != old
    assert (GROUP, old) in script.field.registrations  # the old session has not ended yet
    script.settle()
    removed = [txn for txn in world.ensemble.log for c in txn.changes if f"/channel/{old}/" in c.path and not c.after]
    assert [txn.session.process for txn in removed] == [script.leader()] * len(commands)
    for entry in script.journal("start"):
        if entry.client == "consumer0#2":
            sent = [t.time_ms for t in script.commands_sent(START, entry.partition) if new in str(t.transaction)]
            assert sent
            assert sent[0] <= entry.time_ms
    assert world.ensemble.stat(DRAFT.channel(GROUP, old)) is None
    script.calm()


def newest(script: Script, option: str, consumer: str) -> list[TopicPartition]:
    """The partitions that the outstanding commands of this option in a consumer's channel name."""
    standing = script.field.commands.get((GROUP, consumer), {}).values()
    return sorted(p for command in standing if command.option == option for p in command.partitions or ())


@on_seeds()
def test_f08_a_stale_command_is_obeyed_and_then_its_stop_though_the_target_changed(seed: int) -> None:
    """The consumer is paused before it reads its start, and another one joins. The start is not withdrawn, ignored, or
    overtaken by the stop."""
    script = Script(seed, consumers=1)
    world = script.world
    world.run_until(lambda: script.registered("consumer0"))
    world.pause("consumer0")
    world.run_until(lambda: bool(newest(script, START, script.member("consumer0"))), what="the start")
    first = script.member("consumer0")
    generation = script.generation()
    script.join("late")
    world.run_until(lambda: script.generation() == generation + 1, what="another target")
    world.run_for(SESSION_MS // 3)
    assert newest(script, START, first) == script.partitions()  # only the start, unchanged
    assert newest(script, STOP, first) == []
    assert script.commands_sent(START, since_ms=0)[1:] == []
    world.resume("consumer0")
    script.settle()
    moved = script.owned("late")
    assert len(moved) == 2
    for partition in moved:
        mine, theirs = script.journal("start", partition)
        (stop,) = script.journal("stop", partition)
        (sent,) = script.commands_sent(STOP, partition)
        assert [mine.process, stop.process, theirs.process] == ["consumer0", "consumer0", "late"]
        assert mine.time_ms <= sent.time_ms <= stop.time_ms <= theirs.time_ms
        assert theirs.start == stop.start
    script.calm()


@on_seeds()
@pytest.mark.parametrize("when", ["reply_lost", "request_lost"])
@pytest.mark.parametrize("option", [STOP, START])
def test_f18_a_command_whose_reply_was_lost_is_sent_exactly_once(seed: int, option: str, when: str) -> None:
    """A sequential create cannot be recognised by its name. Only a read of the channel tells that the command
    exists."""
    script = Script(seed, consumers=2)
    script.settle()
    world, began_ms = script.world, script.world.now_ms + 1
    script.join("late")
    holders = ("consumer0", "consumer1") if option == STOP else ("late",)
    held = [hold_calls(script.application(name)) for name in holders]  # the command stays while its sender reads again
    world.strike(script.leader(), sends(option), when)
    world.run_until(lambda: world.struck, what="the lost reply")
    world.run_for(1_000)
    standing = [p for name in holders for p in newest(script, option, script.member(name))]
    for go_on in held:
        go_on()
    script.settle()
    assert sorted(standing) == script.owned("late")
    named = Counter(p for p in script.partitions() for _ in script.commands_sent(option, p, began_ms))
    assert named == dict.fromkeys(standing, 1)
    script.calm()


@on_seeds()
def test_f18_after_a_lost_reply_a_server_that_lags_behind_is_not_believed(seed: int) -> None:
    """The coordinator reconnects to a follower that has everything that it has seen, except the command. So a sync
    comes first."""
    script = Script(seed, replace(QUIET, followers=1), consumers=1)
    world, ensemble = script.world, script.world.ensemble
    replicas, options = ensemble.replicas, world.options
    ensemble.replicas = [ensemble.leader]
    script.settle()
    go_on = hold_calls(script.application("consumer0"))
    script.join("late")
    world.strike(script.leader(), sends(STOP), "reply_lost")
    world.run_until(lambda: world.struck, what="the lost reply")
    world.options = replace(options, weight_replicate=0)
    ensemble.catch_up(ensemble.followers[0], ensemble.zxid - 1)
    ensemble.replicas = ensemble.followers
    world.run_for(1_000)
    assert script.wire(script.leader()).replica is ensemble.followers[0]
    assert len(newest(script, STOP, script.member("consumer0"))) == 2
    world.options, ensemble.replicas = options, replicas
    go_on()
    script.settle()
    assert [len(script.commands_sent(STOP, p)) for p in script.owned("late")] == [1, 1]
    script.calm()


@on_seeds()
def test_f38_a_start_was_read_and_its_plan_superseded_before_it_is_obeyed(seed: int) -> None:
    script = Script(seed, consumers=1)
    world = script.world
    go_on = hold_calls(script.application("consumer0"))
    world.run_until(lambda: bool(script.application("consumer0")._calls), what="the start is being obeyed")
    first = script.member("consumer0")
    script.join("late")
    world.run_for(1_000)
    assert script.generation() == 2
    assert newest(script, START, first) == script.partitions()
    assert [script.outstanding(name) for name in ("consumer0", "late")] == [1, 0]
    go_on()
    script.settle()
    for partition in script.owned("late"):
        mine, theirs = script.journal("start", partition)
        (stop,) = script.journal("stop", partition)
        assert mine.time_ms <= stop.time_ms <= theirs.time_ms
        assert theirs.start == stop.start
    script.calm()


@on_seeds()
def test_f38_a_stop_was_read_and_its_receiver_died_before_it_is_obeyed(seed: int) -> None:
    """The stop's reason is gone. The stop is obeyed anyway, and the partition is granted again."""
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    go_on = hold_calls(script.application("consumer0"))
    script.join("late")
    world.run_until(lambda: bool(script.application("consumer0")._calls), what="the stop is being obeyed")
    stopping = newest(script, STOP, script.member("consumer0"))
    world.stop("late")
    generation = script.generation()
    world.run_until(lambda: script.generation() == generation + 1, 10_000, "another target")
    world.run_for(1_000)
    assert newest(script, STOP, script.member("consumer0")) == stopping  # not withdrawn
    go_on()
    script.settle()
    assert script.owned("consumer0") == script.partitions()
    for partition in stopping:
        first, again = script.journal("start", partition)
        (stop,) = script.journal("stop", partition)
        assert first.client == again.client == "consumer0#1"
        assert again.start == stop.start
        assert len(script.commands_sent(STOP, partition)) == 1
    script.calm()


@on_seeds(4)
def test_a_partition_that_was_granted_again_after_an_unknown_release_is_not_released_again(seed: int) -> None:
    """The topic is created again with fewer partitions, and then grows. So the owner's node is another one, but has the
    same version and names the same consumer."""
    script = Script(seed, QUIET, consumers=1, coordinators=1, topics={"t": 2})
    script.settle()
    world, process, member = script.world, script.process("consumer0"), script.member("consumer0")
    last = TopicPartition("t", 1)
    world.strike("consumer0", releases, "reply_lost")
    script.delete_topic("t")
    script.create_topic("t", 1)
    world.run_until(lambda: world.struck and process.stores[-1].wire is None, what="the reply is lost")
    faults.cut(world, process)
    path = DRAFT.owner(GROUP, last)
    world.run_until(lambda: world.ensemble.stat(path) is None, what="its owner's node goes")
    script.grow("t", 2)
    world.run_until(lambda: bool(world.ensemble.data(path)), what="it is granted again")
    granted = script.field.commands[GROUP, member].values()
    assert [c.option for c in granted if last in (c.partitions or ())] == [START]
    faults.uncut(world, process)
    script.settle("it reads the new topic")
    assert script.member("consumer0") == member
    world.run_for(5_000)
    script.calm()


@on_seeds(6)
def test_a_refused_start_that_nobody_saw_is_granted_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the coordinator lists the channel, the first of two starts has been refused and is gone, and the second one
    is outstanding."""
    monkeypatch.setattr("zkcoord.tree.writes.ITEMS_MAX", 2)
    script = Script(seed, replace(QUIET, call_ms_max=0), consumers=1, coordinators=1)
    world, application = script.world, script.application("consumer0")
    failed = []

    def fails_once(name: str) -> bool:
        if name == "start" and not failed:
            failed.append(name)
            return True
        return False

    application._raises = fails_once
    world.run_until(lambda: len(script.commands_sent("start-fetcher")) == 2, what="both starts are sent")
    leader = script.wire(script.leader())
    leader.down = False  # the coordinator hears of events late
    world.run_until(lambda: bool(failed), what="the first is refused by the application")
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="the first is acknowledged")
    stopped = hold_calls(application)
    leader.down = True
    world.run_for(1_000)
    stopped()
    script.settle()
    script.calm()
