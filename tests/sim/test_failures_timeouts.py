"""Failure cases of waiting (docs/failures.md): members that never acknowledge or cannot start, and waits that a
failover restarts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.actors import GROUP
from tests.sim.application import Application
from tests.sim.field import START
from tests.sim.script import SESSION_MS, Script, ScriptWorld, hold_calls, on_seeds
from zkcoord.core.ack_timeouts import ack_timeout_ms, backoff_ms
from zkcoord.core.model import TopicPartition
from zkcoord.member.leaving import REJOIN_MS
from zkcoord.tree.paths import DRAFT

REBALANCE_MS = 2_000
SLACK_MS = 1_500


def hang_for_good(script: Script, name: str) -> str:
    """From now on this consumer's application answers nothing, in any registration. Returns the present consumer id."""
    hold_calls(script.application(name))
    return script.member(name)


def one_silent(seed: int, **policy: object) -> tuple[Script, str, list[TopicPartition], int]:
    """Two members share. One goes silent, and partitions are added. Returns its id, its partitions before, and the time
    of the command."""
    script = Script(seed, consumers=2, rebalance_timeout_ms=REBALANCE_MS)
    script.settle()
    if policy:
        script.set_policy(**policy)
    owned = script.owned("consumer0")
    silent = hang_for_good(script, "consumer0")
    script.grow("t", 8)
    script.world.run_until(lambda: script.outstanding("consumer0") > 0, what="a command that it will not obey")
    return script, silent, owned, script.world.now_ms


def evicted_ms(script: Script, consumer: str) -> int:
    """Wait for a consumer's eviction, and return its time."""
    script.world.run_until(lambda: (GROUP, consumer) not in script.field.registrations, 20_000, "its eviction")
    gone = script.field.gone[GROUP, consumer]
    assert gone.how == "evicted"
    return gone.time_ms


def sent_to(script: Script, consumer: str) -> list[int]:
    """The times at which starts were sent to a consumer."""
    channel = DRAFT.channel(GROUP, consumer)
    return [t.time_ms for t in script.commands_sent(START) if any(w.path == channel for w in t.commands(START))]


@on_seeds()
def test_f12_a_time_out_with_no_change_at_all_is_retried_and_then_ends_in_an_eviction(seed: int) -> None:
    """Nothing changes in the tree: the coordinator's own clock must wake it."""
    script, silent, owned, asked_ms = one_silent(seed)
    world = script.world
    generation, sent = script.generation(), len(sent_to(script, silent))
    patience = ack_timeout_ms(REBALANCE_MS, 4)
    assert patience == 5 * REBALANCE_MS + 2_000 + 4_000 + 8_000 + 16_000
    world.run_for(patience - SLACK_MS - (world.now_ms - asked_ms))
    assert (GROUP, silent) in script.field.registrations
    assert len(sent_to(script, silent)) == sent  # a retry writes nothing
    assert script.generation() == generation
    at_ms = evicted_ms(script, silent)
    assert patience - 100 <= at_ms - asked_ms <= patience + SLACK_MS
    assert [told.fields["consumer"] for told in world.events("evicted")] == [silent]
    assert (GROUP, silent) in script.field.evicted
    assert world.ensemble.data(f"{DRAFT.channel(GROUP, silent)}/evicted") == str(SESSION_MS).encode()
    everything = [*owned, *(p for p in script.partitions() if script.owner(p) == silent)]
    world.run_until(lambda: all(script.owner(p) not in ("", silent) for p in everything), 10_000, "they are granted")
    granted = [tried.time_ms for p in everything for tried in script.commands_sent(START, p, at_ms)]
    assert len(granted) >= len(everything)
    assert min(granted) - at_ms >= SESSION_MS


@on_seeds()
def test_an_evicted_consumer_comes_back_after_a_growing_wait(seed: int) -> None:
    script, silent, _, _ = one_silent(seed, max_rebalance_retries=0)
    world, waits, names = script.world, [], {silent}
    for _ in range(4):
        evicted_ms(script, silent)
        known = set(script.field.registrations)
        ended_ms = [told.time_ms for told in world.events("session_lost") if told.client == "consumer0#1"]
        world.run_until(lambda known=known: bool(set(script.field.registrations) - known), 10_000, "it comes back")
        ended_ms = [told.time_ms for told in world.events("session_lost") if told.client == "consumer0#1"]
        waits.append(world.now_ms - ended_ms[-1])
        silent = script.member("consumer0")
        assert silent not in names  # each registration has another name
        names.add(silent)
    for wait_ms, least_ms in zip(waits, REJOIN_MS, strict=False):
        assert least_ms <= wait_ms <= least_ms + SLACK_MS
    assert script.client("consumer0") == "consumer0#1"
    world.crash("consumer0")  # only a new process helps
    script.settle()
    script.calm()


@on_seeds()
def test_a_short_silence_within_the_retries_costs_nothing(seed: int) -> None:
    script, silent, owned, asked_ms = one_silent(seed)
    world = script.world
    world.run_for(ack_timeout_ms(REBALANCE_MS, 4) - 2 * SLACK_MS - (world.now_ms - asked_ms))
    application = script.application("consumer0")
    del application._next_call  # type: ignore[attr-defined]
    application._next_call()
    script.settle()
    assert script.member("consumer0") == silent
    assert set(owned) <= set(script.owned("consumer0"))
    assert world.events("evicted") == []
    script.calm()


@on_seeds()
def test_the_policy_fail_marks_the_group_and_clears_the_mark_when_it_is_over(seed: int) -> None:
    script, silent, _, asked_ms = one_silent(seed, on_timeout="fail", max_rebalance_retries=1)
    world = script.world
    patience = ack_timeout_ms(REBALANCE_MS, 1)
    world.run_until(lambda: script.state()["failed"] is not None, 10_000, "the mark")
    assert patience - 100 <= world.now_ms - asked_ms <= patience + SLACK_MS
    failed = script.state()["failed"]
    assert failed["error"].startswith(f"ConsumerRebalanceFailed: {silent}: start-fetcher")
    assert failed["since_generation"] == script.generation()
    written = script.writes_to(DRAFT.state(GROUP))
    world.run_for(60_000)
    assert script.writes_to(DRAFT.state(GROUP)) == written  # it is written once
    assert [told.fields["level"] for told in world.events("rebalance_failed")] == ["warning"]
    assert world.events("evicted") == []
    assert script.member("consumer0") == silent
    application = script.application("consumer0")
    del application._next_call  # type: ignore[attr-defined]
    application._next_call()
    world.run_until(lambda: script.state()["failed"] is None, what="the mark is cleared")
    assert len(world.events("rebalance_recovered")) == 1
    script.settle()
    script.calm()


def refuse_starts(application: Application, count: int) -> None:
    """The application raises at its next `count` starts."""
    left = [count]

    def raises(name: str) -> bool:
        if name == "start" and left[0]:
            left[0] -= 1
            return True
        return False

    application._raises = raises  # type: ignore[method-assign]


@on_seeds()
def test_a_start_that_is_refused_is_tried_again_with_backoff_and_does_not_spin(seed: int) -> None:
    script = Script(seed, consumers=1)
    world = script.world
    refuse_starts(script.application("consumer0"), 6)
    script.settle()
    first = script.partitions()[0]
    sent = [tried.time_ms for tried in script.commands_sent(START, first)]
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert len(gaps) == 6
    for number, gap_ms in enumerate(gaps, start=1):
        assert backoff_ms(number) <= gap_ms <= backoff_ms(number) + SLACK_MS
    refusals = [told for told in world.events("start_refused") if first in told.fields["partitions"]]
    assert len(refusals) == 6
    assert refusals[0].fields["partitions"] == script.partitions()  # one line for all partitions with the same reason
    assert "the application cannot start" in refusals[0].fields["why"]
    assert script.generation() == 1
    assert world.events("evicted") == []
    script.calm()


@on_seeds()
def test_a_start_that_is_refused_delays_nobody_else(seed: int) -> None:
    script = Script(seed, consumers=2)
    refuse_starts(script.application("consumer0"), 1_000)
    world = script.world
    world.run_until(lambda: script.registered("consumer0") and script.registered("consumer1"))
    world.run_for(20_000)
    assert script.owned("consumer1") == script.partitions()  # partitions that one consumer cannot start go to another
    assert script.owned("consumer0") == []
    assert len(sent_to(script, script.member("consumer0"))) <= 6
    world.crash("consumer0")
    script.settle()
    script.calm()


def fail_over(script: Script) -> int:
    """Kill the serving coordinator, and return the time of the next election."""
    world, old = script.world, script.leader()
    world.crash(old, restart_after_ms=None, exact=True)
    world.run_until(lambda: script.leader() != old, 10_000, "another is elected")
    return world.now_ms


def grants(world: ScriptWorld, script: Script, partitions: list[TopicPartition], since_ms: int) -> list[int]:
    """The times at which these partitions were granted."""
    return [t.time_ms for p in partitions for t in script.commands_sent(START, p, since_ms)]


@on_seeds()
def test_f47_a_failover_within_an_evictions_grace_waits_the_whole_grace_again(seed: int) -> None:
    grace_ms = 30_000
    script, silent, owned, _ = one_silent(seed, max_rebalance_retries=0, evict_grace_ms=grace_ms)
    world = script.world
    at_ms = evicted_ms(script, silent)
    mine = sorted({*owned, *(p for p in script.partitions() if script.owner(p) == silent)})
    world.run_for(grace_ms // 2)
    elected_ms = fail_over(script)
    assert elected_ms < at_ms + grace_ms
    world.run_until(lambda: all(script.owner(p) not in ("", silent) for p in mine), 10_000, "the grants")
    granted = grants(world, script, mine, at_ms)
    assert len(granted) == len(mine)
    assert min(granted) - elected_ms >= grace_ms  # counted from the new coordinator's first look, not from the eviction
    assert max(granted) - elected_ms <= grace_ms + SLACK_MS
    world.run_until(lambda: world.ensemble.stat(DRAFT.channel(GROUP, silent)) is None, what="its channel is purged")
    world.crash("consumer0")
    script.settle()
    script.calm()


@on_seeds()
@pytest.mark.parametrize("grace_ms", [0, SESSION_MS // 2])
def test_a_grace_below_the_evicted_members_session_timeout_lasts_that_timeout(seed: int, grace_ms: int) -> None:
    """Whatever the record says, the member's lease may hold, and the member may read, until then."""
    script, silent, owned, _ = one_silent(seed, max_rebalance_retries=0, evict_grace_ms=grace_ms)
    at_ms = evicted_ms(script, silent)
    script.world.run_until(lambda: all(script.owner(p) not in ("", silent) for p in owned), 10_000, "the grants")
    granted = grants(script.world, script, owned, at_ms)
    assert len(granted) == len(owned)
    assert min(granted) - at_ms >= SESSION_MS
    assert max(granted) - at_ms <= SESSION_MS + SLACK_MS


@on_seeds()
def test_f47_a_failover_restarts_the_patience_with_a_silent_member(seed: int) -> None:
    """Each coordinator counts from its own first look, so the next one gives the whole rebalance timeout again."""
    script, silent, _, _ = one_silent(seed, max_rebalance_retries=0)
    script.world.crash(script.leader(), restart_after_ms=None, exact=True)
    old = script.leader()
    script.world.run_until(lambda: script.leader() != old, 10_000, "another is elected")
    elected_ms = script.world.now_ms
    assert evicted_ms(script, silent) - elected_ms >= REBALANCE_MS
    script.world.crash("consumer0")
    script.settle()
    script.calm()


@on_seeds(3)
def test_an_evicted_member_leaves_no_command_behind(seed: int) -> None:
    """The only member hangs and is evicted, and its process is ended."""
    script = Script(seed, consumers=1, coordinators=1, rebalance_timeout_ms=1_000)
    script.settle()
    world = script.world
    script.set_policy(max_rebalance_retries=0)
    hold_calls(script.application("consumer0"))
    mine = script.member("consumer0")
    script.grow("t", 8)
    world.run_until(lambda: (GROUP, mine) not in script.field.registrations, 60_000, "it is evicted")
    world.stop("consumer0")
    script.calm()
