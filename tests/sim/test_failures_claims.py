"""Failure cases of claims (docs/failures.md): layout legacy, where owners are ephemeral nodes of their consumers."""

from __future__ import annotations

from tests.sim.actors import GROUP
from tests.sim.field import START, STOP
from tests.sim.script import SESSION_MS, Script, hold_calls, on_seeds
from zkcoord.core.model import TopicPartition
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.writes import ANY_VERSION, CreateNode, DeleteNode, Transaction

STRANGER = b"g_stranger-1416335000123-1a2b3c4d-0"
REBALANCE_MS = 2_000
SOON_MS = 1_000
"""Far below the first back-off of a refused start."""


def claimed(seed: int, consumers: int = 2) -> Script:
    """A settled group."""
    script = Script(seed, layout=LEGACY, consumers=consumers, rebalance_timeout_ms=REBALANCE_MS)
    script.settle()
    return script


def path_of(partition: TopicPartition) -> str:
    """The path of a partition's claim."""
    return LEGACY.owner(GROUP, partition)


def deleted(script: Script, partition: TopicPartition) -> int:
    """Somebody deletes a claim unconditionally. Returns the time."""
    assert not script.world.ensemble.operate(DeleteNode(path_of(partition), ANY_VERSION)).reason
    return script.world.now_ms


def taken(script: Script, partition: TopicPartition) -> None:
    """A stranger claims the partition."""
    assert not script.world.ensemble.operate(CreateNode(path_of(partition), STRANGER)).reason


def claims(transaction: Transaction) -> bool:
    """A consumer's transaction that makes claims."""
    return any(isinstance(w, CreateNode) and w.ephemeral and "/owners/" in w.path for w in transaction.writes)


@on_seeds()
def test_f53_a_claim_that_somebody_deleted_is_read_by_nobody_until_another_start_gives_it(seed: int) -> None:
    script = claimed(seed)
    [partition, *rest] = script.owned("consumer0")
    for name in ("coordinator0", "coordinator1"):  # the consumer must see the deletion by itself
        script.world.crash(name, restart_after_ms=SESSION_MS)
    script.application("consumer0").commits = False  # a refused commit would tell the consumer
    at_ms = deleted(script, partition)
    script.world.run_until(
        lambda: partition not in script.actor("consumer0").role.readable, what="its consumer sees that"
    )
    assert script.world.now_ms - at_ms < SOON_MS
    script.application("consumer0").commits = True
    script.settle("it comes back")
    assert script.commands_sent(START, partition, since_ms=at_ms)
    assert not [p for p in rest if script.commands_sent(START, p, since_ms=at_ms)]
    script.calm()


@on_seeds()
def test_f88_a_partition_that_a_stranger_has_claimed_is_granted_as_soon_as_that_claim_is_gone(seed: int) -> None:
    script = claimed(seed)
    [partition, *_] = script.owned("consumer0")
    at_ms = deleted(script, partition)
    taken(script, partition)
    script.world.run_for(3 * SESSION_MS)
    assert not script.commands_sent(START, partition, since_ms=at_ms)
    free_ms = deleted(script, partition)
    script.settle("it is read again")
    assert script.world.now_ms - free_ms < SOON_MS
    script.calm()


def claimed_under_its_start(script: Script) -> bool:
    """A stranger claims a partition as soon as its start is sent; False if its consumer was faster."""
    world, [partition, *_] = script.world, script.owned("consumer0")
    at_ms = deleted(script, partition)
    world.run_until(lambda: bool(script.commands_sent(START, partition, since_ms=at_ms)), what="a start")
    first = world.ensemble.stat(path_of(partition)) is None
    if first:
        taken(script, partition)
        world.run_until(lambda: bool(world.events("start_refused", at_ms)), what="its refusal")
        [why] = {event.fields["why"] for event in world.events("start_refused", at_ms)}
        assert why == "taken: g_stranger-1416335000123-1a2b3c4d-0 has claimed it"
        free_ms = deleted(script, partition)
        script.settle("it is read again")
        assert world.now_ms - free_ms < SOON_MS
    script.settle("it is read again")
    return first


@on_seeds()
def test_f88_a_start_of_a_claimed_partition_is_refused_without_a_strike_and_retried(
    seed: int,
) -> None:
    script = claimed(seed)
    refused = sum(claimed_under_its_start(script) for _ in range(4))  # enough strikes for a quarantine
    assert refused
    assert not script.state().get("quarantined")
    script.calm()


@on_seeds()
def test_f89_an_evicted_consumers_claims_are_deleted_after_its_grace_in_its_session(seed: int) -> None:
    script = claimed(seed)
    owned, silent = script.owned("consumer0"), script.member("consumer0")
    thread = script.world.ensemble.data(path_of(owned[0])) or b""
    hold_calls(script.application("consumer0"))
    script.set_policy(max_rebalance_retries=0)
    script.grow("t", 8)
    script.world.run_until(lambda: (GROUP, silent) not in script.field.registrations, what="its eviction")
    evicted_ms = script.world.now_ms
    mark = script.world.ensemble.data(f"{LEGACY.channel(GROUP, silent)}/evicted") or b""
    assert b'"owned":{"t":"' in mark
    script.world.run_until(lambda: script.world.ensemble.stat(path_of(owned[0])) is None, what="its session's end")
    script.world.stop("consumer0")
    assert not script.world.ensemble.operate(CreateNode(path_of(owned[0]), thread)).reason  # as if its session lived
    assert script.world.now_ms - evicted_ms < SESSION_MS
    script.world.run_until(
        lambda: script.world.ensemble.data(path_of(owned[0])) not in (None, thread), 40_000, "it is another's"
    )
    deleted = script.world.events("claims_deleted")
    assert [told.fields["partitions"] for told in deleted] == [[owned[0]]]
    assert deleted[0].time_ms - evicted_ms >= SESSION_MS
    starts = [sent.time_ms for p in owned for sent in script.commands_sent(START, p, since_ms=evicted_ms)]
    assert min(starts) - evicted_ms >= SESSION_MS
    script.calm()


@on_seeds()
def test_f89_an_evicted_consumers_claims_stand_while_its_application_may_read(seed: int) -> None:
    """The consumer closes its session only when the application has answered, or its lease is over."""
    script = claimed(seed)
    owned, silent = script.owned("consumer0"), script.member("consumer0")
    hold_calls(script.application("consumer0"))  # it does not answer `lost`, either
    script.set_policy(max_rebalance_retries=0)
    script.grow("t", 8)
    script.world.run_until(lambda: (GROUP, silent) not in script.field.registrations, what="its eviction")
    lease = script.actor("consumer0").role.lease
    assert lease is not None
    script.world.run_until(lambda: script.world.ensemble.stat(path_of(owned[0])) is None, what="its session's end")
    assert script.process("consumer0").clock.now_ms() >= lease.until_ms
    client, now_ms = script.client("consumer0"), script.world.now_ms
    assert not [entry for entry in script.journal("read", since_ms=now_ms) if entry.client == client]


@on_seeds()
def test_f91_a_claim_whose_reply_was_lost_is_read_and_not_made_twice(seed: int) -> None:
    script = claimed(seed, consumers=1)
    script.world.strike("late", claims, "reply_lost")
    script.join("late")
    script.world.run_until(lambda: script.world.struck, what="the claim")
    script.settle("both have a share")
    client = script.client("late")
    made = [
        write.path
        for tried in script.world.tried
        if tried.client == client and tried.applied
        for write in tried.transaction.writes
        if isinstance(write, CreateNode) and write.ephemeral and "/owners/" in write.path
    ]
    assert len(made) == len(set(made)) == len(script.owned("late"))
    assert script.world.processes["late"].client == client  # still the same registration
    script.calm()


@on_seeds()
def test_f91_a_claim_that_is_deleted_before_its_acknowledgement_is_made_again(seed: int) -> None:
    script = claimed(seed, consumers=1)
    script.join("late")
    script.world.run_until(lambda: bool(script.process("late").application), what="it lives")
    go_on = hold_calls(script.application("late"))
    script.world.run_until(lambda: script.registered("late") and bool(script.owned("late")), what="a claim")
    [partition, *_] = script.owned("late")
    deleted(script, partition)
    go_on()
    script.settle("both have a share")
    script.calm()


@on_seeds()
def test_a_stop_moves_a_partition_in_one_multi_that_deletes_the_claim_and_the_command(seed: int) -> None:
    script = claimed(seed, consumers=1)
    before = set(script.owned("consumer0"))
    at_ms = script.world.now_ms
    script.join("late")
    script.settle("both have a share")
    moved = set(script.owned("late"))
    assert moved < before
    released = {
        write.path
        for tried in script.world.tried
        if tried.applied and tried.time_ms >= at_ms
        for write in tried.transaction.writes
        if isinstance(write, DeleteNode) and "/owners/" in write.path
    }
    assert released == {path_of(p) for p in moved}
    for option in (START, STOP):  # each command was sent once
        assert all(len(script.commands_sent(option, p, since_ms=at_ms)) == 1 for p in moved)


@on_seeds()
def test_a_started_partition_is_nobody_elses_while_its_receiver_is_frozen(seed: int) -> None:
    script = claimed(seed, consumers=1)
    script.join("consumer1")
    script.world.run_until(lambda: script.registered("consumer1"), what="it is registered")
    script.world.pause("consumer1")
    channel = GROUP, script.member("consumer1")
    script.world.run_until(lambda: bool(script.field.commands.get(channel)), what="it is sent a start")
    script.join("consumer2")
    script.world.run_until(lambda: script.registered("consumer2") and bool(script.owned("consumer2")), what="a share")
    script.world.resume("consumer1")
    script.settle()
    script.calm()
