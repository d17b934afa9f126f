"""The draft of 2012, line by line (docs/protocol.md, section 11): when a rebalance is necessary, and its steps."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.field import START, STOP, consumer_of, parse_command, parse_json
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from tests.sim.test_draft_lines import OTHER, THIRD, Groups
from tests.sim.zookeeper import Txn
from zkcoord.core.ack_timeouts import ack_timeout_ms
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import DRAFT

REBALANCE_MS = 2_000
SLACK_MS = 1_500


# -- the new ownership is compared with the owner nodes


@on_seeds()
def test_when_no_owner_is_registered_a_rebalance_is_necessary(seed: int) -> None:
    """A new group: every partition is granted, each with one command to its consumer."""
    script = Script(seed, consumers=1)
    script.world.run_until(lambda: script.registered("consumer0"), what="it is registered")
    assert script.field.owners == {}
    script.settle()
    assert script.owned("consumer0") == script.partitions()
    assert [len(script.commands_sent(START, p)) for p in script.partitions()] == [1, 1, 1, 1]
    assert script.commands_sent(STOP) == []
    script.calm()


@on_seeds()
def test_when_some_partition_is_unowned_a_rebalance_is_necessary(seed: int) -> None:
    """A member leaves while nobody serves, so its owners are empty. The next coordinator grants these partitions, and
    touches no other."""
    script = Script(seed, consumers=2)
    script.settle()
    world, free, kept = script.world, script.owned("consumer0"), script.owned("consumer1")
    for name in ("coordinator0", "coordinator1"):
        world.crash(name, exact=True, restart_after_ms=None)
    script.leave("consumer0").add_done_callback(lambda done: done.result())
    world.run_until(lambda: {script.owner(p) for p in free} == {""}, what="it has left")
    since_ms = world.now_ms + 1
    world.run_for(SESSION_MS)
    world.restart("coordinator0")
    world.run_until(lambda: {script.owner(p) for p in free} == {script.member("consumer1")}, what="they are given")
    assert [len(script.commands_sent(START, p, since_ms)) for p in (*free, *kept)] == [1, 1, 0, 0]
    assert script.commands_sent(STOP, since_ms=since_ms) == []
    world.stop("consumer0")
    script.calm()


@on_seeds()
def test_when_an_owner_is_another_than_computed_a_rebalance_is_necessary(seed: int) -> None:
    """One partition gets the weight of all others together, so its owner must give another partition away."""
    script = Script(seed, consumers=2)
    script.settle()
    heavy = TopicPartition("t", 0)
    holder = next(name for name in ("consumer0", "consumer1") if heavy in script.owned(name))
    (light,) = {"consumer0", "consumer1"} - {holder}
    since_ms = script.world.now_ms + 1
    script.world.run_for(5)
    script.edit_record(weights={str(heavy): 3})
    script.world.run_until(lambda: [len(script.owned(n)) for n in (holder, light)] == [1, 3], what="another ownership")
    assert script.owned(holder) == [heavy]
    moved = [p for p in script.partitions() if script.commands_sent(STOP, p, since_ms)]
    assert len(moved) == 1
    assert [p for p in script.partitions() if script.commands_sent(START, p, since_ms)] == moved
    script.calm()


@on_seeds()
def test_when_the_owners_are_as_computed_nothing_is_sent(seed: int) -> None:
    """A new coordinator finds an assignment, compares it, and writes nothing into the groups."""
    groups = Groups(seed)
    since_ms = groups.since()
    before = groups.leader()
    groups.world.crash(before, exact=True, restart_after_ms=60_000)
    groups.world.run_until(lambda: groups.leader() != before, what="another coordinator")
    groups.world.run_for(10_000)
    assert groups.commands_sent(STOP, since_ms=since_ms) == groups.commands_sent(START, since_ms=since_ms) == []
    assert [groups.changes_below(DRAFT.owners(group), since_ms) for group in (GROUP, OTHER, THIRD)] == [[], [], []]


@on_seeds()
def test_owners_of_partitions_that_are_gone_are_released(seed: int) -> None:
    """The draft: a rebalance is necessary when an owner of a missing partition exists."""
    groups = Groups(seed)
    groups.grow("t", 2)
    groups.world.run_until(
        lambda: not any(groups.field.owners.get((GROUP, TopicPartition("t", n))) for n in (2, 3)), what="released"
    )
    groups.quiet()
    groups.calm()


# -- a stop to each consumer, then a start to each consumer, empty channels in between


@on_seeds()
def test_all_consumers_are_stopped_before_any_is_started_with_empty_channels_between(seed: int) -> None:
    """This is the draft's own order; the group's record says `eager`."""
    script = Script(seed, consumers=3)
    script.settle()
    script.edit_record(rebalance="eager")
    world, members = script.world, {script.member(f"consumer{n}") for n in range(3)}
    sent: list[tuple[str, str]] = []  # option, consumer
    outstanding: list[int] = []  # commands in all channels when the first start was sent

    def look(txn: Txn) -> None:
        made = [change for change in txn.changes if "/channel/" in change.path and change.path[-10:].isdigit()]
        for change in made:
            if change.before is None and change.after is not None:
                option, consumer = parse_json(change.after.data)["option"], change.path.split("/")[-2]
                if option == START and START not in {option for option, _ in sent}:
                    outstanding.append(script.outstanding())
                sent.append((option, consumer))

    world.ensemble.on_applied.insert(0, look)  # called before the field applies the transaction
    generation = script.generation()
    script.join("late")
    world.run_until(lambda: script.generation() > generation, what="the raise")
    script.settle()
    assert {consumer for option, consumer in sent if option == STOP} == members
    assert {consumer for option, consumer in sent if option == START} == members | {script.member("late")}
    assert [option for option, _ in sent] == [STOP] * 3 + [START] * 4
    assert outstanding == [0]
    script.calm()


@on_seeds()
def test_a_rebalance_is_over_when_the_channels_are_empty(seed: int) -> None:
    script = Script(seed, consumers=2, rebalance_timeout_ms=60_000)
    script.settle()
    world = script.world
    world.run_for(500)
    since_ms = world.now_ms + 1
    script.join("late")
    go_on = hold_calls(script.application("late"))
    world.run_until(
        lambda: script.registered("late") and script.outstanding("late") == 1, what="a command that is not acknowledged"
    )
    world.run_for(3 * SESSION_MS)
    assert script.outstanding() == 1  # all other commands were obeyed
    assert world.events("rebalance_stable", since_ms) == []
    go_on()
    script.settle()
    world.run_for(500)
    assert script.outstanding() == 0
    assert len(world.events("rebalance_stable", since_ms)) == 1
    script.calm()


@on_seeds()
def test_a_rebalance_backs_off_retries_and_fails_after_its_retries(seed: int) -> None:
    """ConsumerRebalanceFailed is the draft's exception. There are two retries, 2 s and 4 s after the time-outs before
    them."""
    script = Script(seed, consumers=2, rebalance_timeout_ms=REBALANCE_MS)
    script.settle()
    world = script.world
    script.set_policy(on_timeout="fail", max_rebalance_retries=2)
    go_on = hold_calls(script.application("consumer0"))
    script.grow("t", 8)
    world.run_until(lambda: script.outstanding("consumer0") == 1, what="a command that it does not obey")
    asked_ms, patience = world.now_ms, ack_timeout_ms(REBALANCE_MS, 2)
    assert patience == 3 * REBALANCE_MS + 2_000 + 4_000
    world.run_for(patience - SLACK_MS)
    assert script.state()["failed"] is None
    world.run_until(lambda: script.state()["failed"] is not None, 10_000, "the failure")
    assert patience - 100 <= world.now_ms - asked_ms <= patience + SLACK_MS
    assert script.state()["failed"]["error"].startswith(f"ConsumerRebalanceFailed: {script.member('consumer0')}: ")
    assert script.outstanding("consumer0") == 1  # the command was neither sent again nor taken back
    go_on()
    world.run_until(lambda: script.state()["failed"] is None, what="it is over when that is acknowledged")
    script.settle()
    script.calm()


@on_seeds()
def test_each_consumer_is_sent_its_own_part_only(seed: int) -> None:
    groups = Groups(seed)
    since_ms = groups.since()
    groups.join("reader2")
    groups.world.run_until(lambda: groups.registered("reader2") and bool(groups.owned("reader2")), what="its share")
    groups.quiet()
    seen = 0
    for tried in [*groups.commands_sent(STOP, since_ms=since_ms), *groups.commands_sent(START, since_ms=since_ms)]:
        for write in (*tried.commands(STOP), *tried.commands(START)):
            consumer = write.path.rpartition("/")[2]
            command = parse_command(GROUP, consumer, "0", write.data)
            owners = parse_json(write.data)["ownershipMap"]
            assert command.partitions
            seen += 1
            if command.option == START:
                assert {consumer_of(thread) for thread in owners.values()} == {consumer}
            else:
                assert consumer not in {consumer_of(thread) for thread in owners.values()}
    assert seen >= 2
    groups.calm()
