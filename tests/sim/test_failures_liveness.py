"""Failure cases of liveness (docs/failures.md): hung programs, pings, rejects, and members that do not leave."""

from __future__ import annotations

from itertools import pairwise

from tests.sim.actors import GROUP
from tests.sim.field import STOP
from tests.sim.options import Options
from tests.sim.script import QUIET, SESSION_MS, Script, hold_calls, on_seeds
from zkcoord.member.leaving import REJECTED_MS
from zkcoord.member.role import MembershipRole
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.registration import decode_registration
from zkcoord.tree.state import decode_state

PROBE_MS = 2_000
SLACK_MS = 1_500


def role(script: Script, name: str) -> MembershipRole:
    """The role in a consumer's process."""
    found = script.actor(name).role
    assert isinstance(found, MembershipRole)
    return found


@on_seeds()
def test_f06_a_member_that_is_alive_in_zookeeper_and_stalled_is_evicted_with_the_reason(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    hung, owned = script.member("consumer0"), script.owned("consumer0")
    role(script, "consumer0").said = (10, 7)  # its last report; its loop lives on
    role(script, "consumer1").said = (10, 0)  # no progress either, but nothing is left to do
    script.set_policy(probe_interval_ms=PROBE_MS, max_probes=3)
    world.run_until(lambda: (GROUP, hung) not in script.field.registrations, 20_000, "its eviction")
    [evicted] = world.events("evicted")
    assert evicted.fields["consumer"] == hung
    assert evicted.fields["why"] == "stalled: lag 7 and progress 10 unchanged at 3 probes"
    assert script.outstanding("consumer1") <= 1
    world.run_until(lambda: all(script.owner(p) not in ("", hung) for p in owned), 20_000, "its share is given on")
    role(script, "consumer0").said = None
    script.settle()
    script.set_policy(probe_interval_ms=None)
    script.calm()


@on_seeds()
def test_f06_an_evicted_member_that_cannot_obey_yet_registers_only_when_it_can(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    hung = script.member("consumer0")
    role(script, "consumer0").said = (10, 7)
    role(script, "consumer0").may_join = lambda: False
    script.set_policy(probe_interval_ms=PROBE_MS, max_probes=3)
    world.run_until(lambda: (GROUP, hung) not in script.field.registrations, 20_000, "its eviction")
    other = script.member("consumer1")
    world.run_for(60_000)
    assert [name for group, name in script.field.registrations if group == GROUP] == [other]
    role(script, "consumer0").said = None
    role(script, "consumer0").may_join = lambda: True
    world.run_until(lambda: len(script.field.registrations) == 2, 20_000, "it is back")
    script.settle()
    script.set_policy(probe_interval_ms=None)
    script.calm()


@on_seeds()
def test_f06_probes_do_no_harm_to_who_works_and_are_not_sent_unasked(seed: int) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    world.run_for(20_000)
    assert script.commands_sent("ping") == []
    script.set_policy(probe_interval_ms=PROBE_MS, max_probes=2)
    for number in range(10):
        for name in ("consumer0", "consumer1"):
            role(script, name).said = (number, 1_000)
        world.run_for(PROBE_MS)
    assert world.events("evicted") == []
    for name in ("consumer0", "consumer1"):
        channel = DRAFT.channel(GROUP, script.member(name))
        sent = [t.time_ms for t in script.commands_sent("ping") if any(w.path == channel for w in t.commands("ping"))]
        assert len(sent) >= 8
        assert all(PROBE_MS <= later - earlier <= PROBE_MS + SLACK_MS for earlier, later in pairwise(sent))
    script.set_policy(probe_interval_ms=None)
    script.calm()


@on_seeds()
def test_a_ping_is_answered_at_once_before_the_stop_that_waits_for_the_application(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    first = script.member("consumer0")
    go_on = hold_calls(script.application("consumer0"))
    script.join("consumer1")
    world.run_until(lambda: bool(script.commands_sent(STOP)), what="a stop")
    script.set_policy(probe_interval_ms=PROBE_MS)
    world.run_for(6 * PROBE_MS)
    options = [command.option for command in script.field.commands[GROUP, first].values()]
    assert options.count(STOP) == 1  # the stop still waits, and was sent only once
    assert len(options) <= 2
    assert len(script.commands_sent("ping")) >= 4  # each ping was answered before the next one
    go_on()
    script.settle()
    script.set_policy(probe_interval_ms=None)
    script.calm()


@on_seeds()
def test_a_ping_whose_answer_is_lost_is_answered_again_and_counted_once(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    world = script.world
    role(script, "consumer0").said = (1, 1)
    script.set_policy(probe_interval_ms=PROBE_MS, max_probes=3)
    for when in ("request_lost", "reply_lost"):
        world.strike("consumer0", lambda transaction: "acknowledge" in transaction.why, when)
        world.run_until(lambda: world.struck, 20_000, when)
    sent = len(script.commands_sent("ping"))
    assert sent <= 3
    role(script, "consumer0").said = (2, 1)
    world.run_until(lambda: len(script.commands_sent("ping")) > sent, 20_000, "the next one")
    assert world.events("evicted") == []
    script.set_policy(probe_interval_ms=None)
    script.calm()


@on_seeds()
def test_f43_the_negotiated_session_timeout_is_registered_not_the_requested_one(seed: int) -> None:
    """The simulated server grants at most 40 s, like a real one with the default tick."""
    script = Script(seed, Options(session_timeout_ms=60_000), consumers=1)
    script.settle("a member")
    data = script.world.ensemble.data(DRAFT.registration(GROUP, script.member("consumer0")))
    assert decode_registration(data or b"").session_timeout_ms == 40_000
    assert role(script, "consumer0").lease.timeout_ms == 40_000  # type: ignore[union-attr]
    script.calm()


@on_seeds()
def test_f43_f48_a_member_with_a_too_short_session_timeout_is_rejected_and_tries_later(
    seed: int,
) -> None:
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world
    script.set_policy(session_timeout_min_ms=SESSION_MS + 1)
    members = [script.member(name) for name in ("consumer0", "consumer1")]
    world.run_until(lambda: not script.field.registrations, 20_000, "both go")
    assert [script.field.gone[GROUP, m].how for m in members] == ["close", "close"]  # they left by themselves
    assert all(script.owner(p) == "" for p in script.partitions())
    assert len(world.events("member_rejected")) == 2
    assert f"below the group's minimum of {SESSION_MS + 1} ms" in world.events("rejected")[0].fields["why"]
    gone_ms = world.now_ms
    world.run_until(lambda: not script.field.channels, 20_000, "nothing is left of them")
    world.run_until(lambda: bool(script.field.registrations), 50_000, "one comes again")
    assert REJECTED_MS[0] - 1_000 <= world.now_ms - gone_ms <= REJECTED_MS[0] + SLACK_MS
    script.set_policy(session_timeout_min_ms=0)
    script.settle()
    script.calm()


@on_seeds()
def test_a_group_whose_only_consumers_were_rejected_says_so_while_it_is_empty(seed: int) -> None:
    """Before the fix, the group looked merely empty: a rejected consumer comes back after 30 s and more, and is gone in
    between."""
    script = Script(seed, consumers=2)
    script.settle()
    world = script.world

    def problem() -> str | None:
        return decode_state(world.ensemble.data(DRAFT.state(GROUP)) or b"").problem

    script.set_policy(session_timeout_min_ms=SESSION_MS + 1)
    world.run_until(lambda: not script.field.registrations, 20_000, "both go")
    world.run_until(lambda: not script.field.channels, 20_000, "nothing is left of them")
    told = problem()
    assert told is not None
    assert told.startswith("nobody takes part: 2 consumers were rejected (")
    assert f"below the group's minimum of {SESSION_MS + 1} ms" in told
    script.set_policy(session_timeout_min_ms=0)
    script.settle()
    assert problem() is None
    script.calm()


@on_seeds()
def test_f48_a_member_that_ignores_a_reject_is_evicted(seed: int) -> None:
    script = Script(seed, QUIET, consumers=2, rebalance_timeout_ms=4_000)
    script.settle()
    world = script.world
    stuck = script.member("consumer0")
    hold_calls(script.application("consumer0"))
    script.set_policy(session_timeout_min_ms=SESSION_MS + 1, on_timeout="fail")
    world.run_until(lambda: bool(script.commands_sent("reject")), what="the reject")
    asked_ms = world.now_ms
    world.run_until(lambda: (GROUP, stuck) not in script.field.registrations, 20_000, "its eviction")
    assert script.field.gone[GROUP, stuck].how == "evicted"
    assert 4_000 - 100 <= world.now_ms - asked_ms <= 4_000 + SLACK_MS
    world.crash("consumer0")
    script.set_policy(session_timeout_min_ms=0)
    script.settle()
    script.calm()


@on_seeds()
def test_a_member_of_other_protocols_is_told_so_and_the_others_go_on(seed: int) -> None:
    script = Script(seed, consumers=1)
    script.settle()
    script.consumers.registers(protocols=(2, 3))
    script.join("consumer1")
    world = script.world
    world.run_until(lambda: bool(world.events("rejected")), 20_000, "it is sent away")
    assert world.events("rejected")[0].fields["why"] == "speaks the protocols 2 to 3, the others 1"
    assert world.events("rejected")[0].client == "consumer1#1"
    world.stop("consumer1")
    assert {script.owner(p) for p in script.partitions()} == {script.member("consumer0")}
    script.settle()
    script.calm()
