"""A coordinator beside old members: the work that it ends, the members that it evicts, the problems that it reports,
and the work that it never begins."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, channel, command, decided, group, member, runs, states
from zkcoord.core.beside import GIVEN_UP_MS, POKE_AGAIN_MS
from zkcoord.core.decisions import (
    DeleteClaims,
    EvictMember,
    PokeMembers,
    PurgeChannel,
    RenewMark,
    SetState,
    StateEvent,
    WriteResponse,
)
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.mode import GroupMode, Mode
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.phase import planned_phase
from zkcoord.core.record import PAUSE, POKE, Request, Response
from zkcoord.core.requests import DONE, REFUSED
from zkcoord.core.state import Announced
from zkcoord.core.view import START, STOP, GroupView, TopicChange

OURS, OLD = "g_us", "g_old"
PATIENCE_MS, SESSION_MS = 6_000, 10_000
PLAN = {T0: f"{OLD}-0", T1: f"{OLD}-0", T2: f"{OURS}-0", T3: f"{OURS}-0"}
MIXED = GroupMode(mode=Mode.MIXED, why="an old member", old=frozenset({OLD}), plan=PLAN, patience_ms=PATIENCE_MS)
OBSERVED = GroupMode(mode=Mode.OBSERVE, why="pykafka", old=frozenset({OLD}))


def shared(
    owners: Mapping[TopicPartition, str], mode: GroupMode = MIXED, *, noted: Mode | None = None, **values: object
) -> GroupView:
    """A group of one member of ours and one old member. Its state has noted what the old one has, and the mode, unless
    `noted` says otherwise."""
    members = [member(OURS, 1, session_timeout_ms=SESSION_MS), member(OLD, 2, speaks_protocol=False, assignors=())]
    view = group(members, owners, **values)
    channels = {OURS: view.channels[OURS], **{c: v for c, v in view.channels.items() if c not in (OURS, OLD)}}
    plan = PLAN if mode.plan is None else mode.plan
    old = {p for p, thread in (*plan.items(), *owners.items()) if consumer_of(thread) in mode.old | {OLD}}
    state = fast_replace(view.state, mode=mode.mode if noted is None else noted, old=frozenset(old))
    return fast_replace(view, mode=mode, channels=channels, state=state)


@pytest.mark.parametrize("mode", [MIXED, OBSERVED])
def test_beside_old_members_nothing_is_started_or_stopped_wherever_partitions_are(mode: GroupMode) -> None:
    as_planned, against = dict(PLAN), dict.fromkeys((T0, T1, T2, T3), f"{OURS}-0")
    for owners in (as_planned, against, {}, {T2: "g_dead-0"}):
        assert decided(shared(owners, mode, problem=problem_of(mode))) == [], owners


def problem_of(mode: GroupMode) -> str | None:
    return None if mode.plan is not None else f"nothing is begun in this group: {mode.why}"


def test_the_mode_is_noted_when_it_changes_both_ways() -> None:
    steps = Steps()
    joined = shared(PLAN, noted=Mode.COORDINATED)
    (noted,) = decided(joined, steps)
    assert isinstance(noted, SetState)
    assert (noted.event, noted.state.mode, noted.why) == (StateEvent.MODE_CHANGED, Mode.MIXED, "mixed: an old member")
    gone = shared(PLAN, GroupMode(), noted=Mode.MIXED)
    (over,) = decided(gone, steps)
    assert isinstance(over, SetState)
    assert (over.event, over.state.mode) == (StateEvent.MODE_CHANGED, Mode.COORDINATED)


def test_f94_a_holder_of_an_old_members_share_is_evicted_after_patience_and_session() -> None:
    steps, view = Steps(), shared({**PLAN, T1: f"{OURS}-0"})
    assert steps.step(view)[0] == ()
    assert steps.step(view, NOW + PATIENCE_MS + SESSION_MS - 1) == ((), NOW + PATIENCE_MS + SESSION_MS)
    ((evicted,), _) = steps.step(view, NOW + PATIENCE_MS + SESSION_MS)
    assert isinstance(evicted, EvictMember)
    assert (evicted.consumer_id, evicted.sequence) == (OURS, None)
    assert "t-1" in evicted.why


def test_f94_a_partition_held_by_the_wrong_thread_is_against_the_plan() -> None:
    """Old members compare threads: the owner node has another thread than they would write."""
    steps, view = Steps(), shared({**PLAN, T2: f"{OURS}-1"})
    steps.step(view)
    ((evicted,), _) = steps.step(view, NOW + PATIENCE_MS + SESSION_MS)
    assert isinstance(evicted, EvictMember)
    assert "t-2" in evicted.why


def test_f94_a_member_that_gives_up_one_partition_has_its_full_time_for_the_next() -> None:
    steps = Steps()
    steps.step(shared({**PLAN, T1: f"{OURS}-0"}))
    steps.step(shared({**PLAN, T0: f"{OURS}-0"}), NOW + PATIENCE_MS + SESSION_MS)
    assert steps.step(shared({**PLAN, T0: f"{OURS}-0"}), NOW + 2 * (PATIENCE_MS + SESSION_MS) - 1)[0] == ()


def test_a_time_without_a_plan_is_no_time_against_it() -> None:
    """Somebody's registration could not be parsed for a while. Then the time against the plan is counted from the
    beginning."""
    steps, against = Steps(), shared({**PLAN, T1: f"{OURS}-0"})
    steps.step(against)
    waiting = fast_replace(MIXED, plan=None, grace_ends_ms=NOW + 20)
    steps.step(
        shared({**PLAN, T1: f"{OURS}-0"}, waiting, problem="nothing is begun in this group: an old member"), NOW + 10
    )
    steps.step(against, NOW + 20)
    assert steps.step(against, NOW + 20 + PATIENCE_MS + SESSION_MS - 1)[0] == ()
    assert len(steps.step(against, NOW + 20 + PATIENCE_MS + SESSION_MS)[0]) == 1


@pytest.mark.parametrize("mode", [MIXED, OBSERVED])
def test_f99_claims_of_an_evicted_consumer_are_deleted_beside_old_members(mode: GroupMode) -> None:
    """The consumer's session goes on, so its claims would stay for ever, and old members would give up claiming these
    partitions."""
    mark = channel("g_hung", evicted_ms=SESSION_MS, evicted_owned=frozenset({T1}))
    owners = {**PLAN, T1: "g_hung-0"}
    view, steps = shared(owners, mode, problem=problem_of(mode), claims=True, claim_offsets={T1: 3}), Steps()
    view = fast_replace(view, channels={**view.channels, "g_hung": mark})
    assert steps.step(view) == ((), NOW + SESSION_MS)
    ((deleted,), _) = steps.step(view, NOW + SESSION_MS)
    assert deleted == DeleteClaims(consumer_id="g_hung", partitions={T1: 3}, why=deleted.why)


def test_a_member_of_ours_whose_channel_is_gone_ends_by_itself() -> None:
    """The member gives its registration up by itself when it sees that its channel is gone."""
    steps, view = Steps(), shared({**PLAN, T1: f"{OURS}-0"})
    view = fast_replace(view, channels={})
    for after_ms in (0, 1_000_000):
        assert not any(isinstance(d, EvictMember) for d in steps.step(view, NOW + after_ms)[0])


def test_an_old_member_is_never_evicted_whatever_it_holds() -> None:
    steps, view = Steps(), shared({**PLAN, T2: f"{OLD}-0"})
    for after_ms in (0, 100_000, 1_000_000):
        assert not any(isinstance(d, EvictMember) for d in steps.step(view, NOW + after_ms)[0])


def test_without_a_plan_nobody_holds_anything_against_it() -> None:
    waiting = fast_replace(MIXED, plan=None, grace_ends_ms=NOW + 10)
    view = shared({T0: f"{OURS}-0"}, waiting, problem="nothing is begun in this group: an old member")
    steps = Steps()
    assert steps.step(view) == ((), NOW + 10)
    assert steps.step(view, NOW + 1_000_000)[0] == ()


def test_f95_a_partition_that_an_old_member_gave_up_is_told_with_its_remedy_until_claimed() -> None:
    steps, view = Steps(), shared({p: t for p, t in PLAN.items() if p != T1})
    due_ms = NOW + PATIENCE_MS + GIVEN_UP_MS
    assert steps.step(view) == ((), due_ms)
    assert steps.step(view, due_ms - 1) == ((), due_ms)
    ((told,), wake_ms) = steps.step(view, due_ms)
    assert isinstance(told, SetState)
    assert (told.event, wake_ms) == (StateEvent.ASSIGNMENT_PROBLEM, None)
    assert told.state.problem is not None
    for words in ("t-1", OLD, "zkcoord group poke g", "rebalance.max.retries"):
        assert words in told.state.problem
    ((over,), _) = steps.step(shared(PLAN, problem=told.state.problem), due_ms + 1)
    assert isinstance(over, SetState)
    assert over.state.problem is None


@pytest.mark.parametrize("partition", [T2, T3])
def test_a_partition_that_an_old_member_wrongly_keeps_is_told_until_free(
    partition: TopicPartition,
) -> None:
    """The old member's session expired while it claimed, and it forgot the claims; or its listener fails
    (KAFKA-2284)."""
    steps, view = Steps(), shared({**PLAN, partition: f"{OLD}-0"})
    due_ms = NOW + PATIENCE_MS + GIVEN_UP_MS
    assert steps.step(view) == ((), due_ms)
    ((told,), _) = steps.step(view, due_ms)
    assert isinstance(told, SetState)
    assert told.state.problem is not None
    for words in (str(partition), f"restart {OLD}"):
        assert words in told.state.problem
    ((over,), _) = steps.step(shared(PLAN, problem=told.state.problem), due_ms + 1)
    assert isinstance(over, SetState)
    assert over.state.problem is None


def test_an_old_member_blocked_by_another_needs_a_restart_and_no_poke() -> None:
    plan = {T0: f"{OLD}-0", T1: "g_peer-0", T2: "g_peer-0", T3: "g_third-0"}
    mode = fast_replace(MIXED, old=frozenset({OLD, "g_peer", "g_third"}), plan=plan)
    steps, view = Steps(), shared({T0: f"{OLD}-0", T1: f"{OLD}-0"}, mode)
    steps.step(view)
    ((told,), _) = steps.step(view, NOW + PATIENCE_MS + GIVEN_UP_MS)
    assert isinstance(told, SetState)
    assert told.state.problem == (
        "1 partitions have no reader (t-3): old members gave up claiming them (g_third). `zkcoord group poke g` has "
        "them claim again; larger rebalance.max.retries or rebalance.backoff.ms prevent it; "
        "1 partitions are kept (t-1) by old members that should have given them to others: restart g_old; "
        "until then 1 partitions have no reader (t-2): old members claim all of their share or nothing "
        "(g_peer)"
    )


def test_f95_a_partition_planned_for_our_member_is_no_orphan() -> None:
    steps, view = Steps(), shared({p: t for p, t in PLAN.items() if p != T2})
    steps.step(view)
    assert steps.step(view, NOW + 1_000_000)[0] == ()


def test_f95_old_members_are_poked_on_request_and_a_second_request_waits_for_a_minute() -> None:
    steps, view = Steps(), shared(PLAN, requests=runs(poke="r1"))
    poked, done = decided(view, steps)
    assert isinstance(poked, PokeMembers)
    assert isinstance(done, WriteResponse)
    assert (done.request, done.run, done.state, done.ends) == ("poke", "r1", DONE, True)
    again = shared(PLAN, requests=runs(poke="r2"))
    assert steps.step(again, NOW + 1) == ((), NOW + POKE_AGAIN_MS)
    second, _ = steps.step(again, NOW + POKE_AGAIN_MS)
    assert [type(d) for d in second] == [PokeMembers, WriteResponse]


def test_f95_an_uncertain_poke_is_repeated_and_the_minute_counts_from_the_first() -> None:
    steps, view = Steps(), shared(PLAN, requests=runs(poke="r1"))
    for after_ms in (0, 1_000, 2_000):  # the multi was refused: somebody wrote the record
        assert [type(d) for d in steps.step(view, NOW + after_ms)[0]] == [PokeMembers, WriteResponse]
    again = shared(PLAN, requests=runs(poke="r2"))
    assert steps.step(again, NOW + POKE_AGAIN_MS - 1) == ((), NOW + POKE_AGAIN_MS)
    assert [type(d) for d in steps.step(again, NOW + POKE_AGAIN_MS)[0]] == [PokeMembers, WriteResponse]


def test_f95_a_time_without_a_plan_does_not_shorten_the_minute_between_two_pokes() -> None:
    steps, given_up = Steps(), {p: t for p, t in PLAN.items() if p != T1}
    steps.step(shared(given_up, requests=runs(poke="r1")))
    waiting = fast_replace(MIXED, plan=None, grace_ends_ms=NOW + 20)
    steps.step(shared(given_up, waiting, problem="nothing is begun in this group: an old member"), NOW + 10)
    found, _ = steps.step(shared(given_up, requests=runs(poke="r2")), NOW + 20)
    assert not [d for d in found if isinstance(d, PokeMembers)]


@pytest.mark.parametrize("mode", [OBSERVED, GroupMode()])
def test_f95_a_poke_is_refused_where_no_old_member_shares_the_group(mode: GroupMode) -> None:
    found = decided(shared(PLAN, mode, requests=runs(poke="r"), problem=problem_of(mode)))
    assert [(d.request, d.state) for d in found if isinstance(d, WriteResponse)] == [("poke", REFUSED)]
    assert not [d for d in found if isinstance(d, PokeMembers)]


@pytest.mark.parametrize("name", ["hold", "pause", "rebalance", "reset", "delete"])
@pytest.mark.parametrize("mode", [MIXED, OBSERVED])
def test_a_request_for_coordination_beside_old_members_is_refused(name: str, mode: GroupMode) -> None:
    view = shared(PLAN, mode, requests=runs(**{name: "r"}), problem=problem_of(mode))
    (answer,) = decided(view)
    assert isinstance(answer, WriteResponse)
    assert (answer.request, answer.run, answer.state, answer.ends) == (name, "r", REFUSED, True)
    assert answer.reason == ("it has 2 members: stop its consumers first" if name == "delete" else answer.why)
    assert name == "delete" or mode.why in answer.reason


def test_an_old_member_that_joins_ends_a_pause_that_was_carried_out() -> None:
    view = shared(PLAN, requests=runs(pause="r"), responses={"pause": Response(run="r", state="paused")})
    (answer,) = decided(view)
    assert isinstance(answer, WriteResponse)
    assert (answer.state, answer.ends) == (REFUSED, True)


def test_begun_starts_and_stops_stand_beside_old_members_and_their_consumer_has_its_whole_time() -> None:
    steps = Steps()
    view = shared(PLAN, max_rebalance_retries=0, noted=Mode.MIXED)
    begun = fast_replace(
        view, channels={OURS: channel(OURS, command(START, T2, thread=f"{OURS}-0"), command(STOP, T0, sequence=1))}
    )
    assert steps.step(begun)[0] == ()
    ((evicted, *_), _) = steps.step(begun, NOW + 60_000)
    assert isinstance(evicted, EvictMember)
    assert evicted.sequence == "0000000000"


def test_a_dead_member_s_channel_is_purged_beside_old_members_once_its_ranges_are_handed_on() -> None:
    dead = channel("g_dead", announced={T2: Announced(5, 9, 1)})
    view = shared({p: t for p, t in PLAN.items() if p != T2})
    view = fast_replace(view, channels={**view.channels, "g_dead": dead}, committed={T2: 5})
    assert decided(view) == []
    (purged,) = decided(fast_replace(view, committed={T2: 9}))
    assert isinstance(purged, PurgeChannel)


def test_f96_when_the_old_members_have_gone_marks_are_renewed_and_nothing_is_dropped() -> None:
    view = shared(PLAN, GroupMode(), noted=Mode.MIXED, changed={"t": TopicChange.RECREATED})
    steps = Steps()
    (renewed,) = decided(view, steps)
    assert isinstance(renewed, RenewMark)
    assert renewed.topic == "t"
    (noted,) = decided(fast_replace(view, changed={}), steps)
    assert isinstance(noted, SetState)
    assert noted.state.mode is Mode.COORDINATED


def test_when_an_old_member_joins_the_mode_is_noted_at_once_and_no_mark_is_renewed() -> None:
    decisions = decided(shared({}, noted=Mode.COORDINATED, changed={"t": TopicChange.RECREATED}), Steps())
    assert not [each for each in decisions if isinstance(each, RenewMark)]
    (noted,) = states(decisions, StateEvent.MODE_CHANGED)
    assert noted.mode is Mode.MIXED


def test_f96_beside_old_members_no_topic_is_dropped() -> None:
    for change in (TopicChange.RECREATED, TopicChange.DELETED, TopicChange.RENEWED):
        steps, view = Steps(), shared({}, changed={"t": change})
        assert decided(view, steps) == []
        assert states(decided(view, steps, NOW + 1_000_000), StateEvent.MODE_CHANGED) == []


def test_a_mixed_group_is_stable_once_everybody_has_what_the_plan_says() -> None:
    def phase(owners: Mapping[TopicPartition, str]) -> Phase:
        steps, view = Steps(), shared(owners)
        steps.step(view)
        return planned_phase(view, steps.last.target, steps.last.difference.value.owning, ())

    assert phase(PLAN) is Phase.STABLE
    assert phase({**PLAN, T0: f"{OURS}-0"}) is Phase.PREPARING_REBALANCE
    assert phase({p: t for p, t in PLAN.items() if p != T0}) is Phase.PREPARING_REBALANCE


def test_the_next_wait_is_known_at_the_moment_at_which_another_one_ends() -> None:
    steps, due_ms = Steps(), PATIENCE_MS + GIVEN_UP_MS
    steps.step(shared({p: thread for p, thread in PLAN.items() if p != T0}))
    both = shared({p: thread for p, thread in PLAN.items() if p not in (T0, T1)})
    assert steps.step(both, NOW + 5)[1] == NOW + due_ms
    assert steps.step(both, NOW + due_ms)[1] == NOW + 5 + due_ms


def test_nothing_is_answered_while_the_record_cannot_be_read() -> None:
    view = shared(PLAN, requests=dict.fromkeys((POKE, PAUSE), Request(run="r")))
    assert {d.request for d in decided(view) if isinstance(d, WriteResponse)} == {POKE, PAUSE}
    assert decided(fast_replace(view, answerable=False)) == []
