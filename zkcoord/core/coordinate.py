"""Decides on one group: it takes view and memory, and returns decisions and the next memory.

This module sets the order of the parts. Each part decides in a module of its own. The decisions hold only what can be
done now; the rest becomes possible when something is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from zkcoord.core.assignors import ASSIGNORS, Assignor
from zkcoord.core.beside import changes_mode, mode_changes, problem_beside, responses_beside
from zkcoord.core.budget import limited
from zkcoord.core.decisions import (
    Decision,
    EvictMember,
    FoundGroup,
    MarkTopic,
    PurgeChannel,
    RejectMember,
    RememberInstances,
    RemoveRefused,
    SetState,
    StateEvent,
    written,
)
from zkcoord.core.eager import everybody_stops
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.memory import Memory
from zkcoord.core.model import consumer_of
from zkcoord.core.old_owners import noted
from zkcoord.core.ownership import available, claims_of_evicted, claims_to_delete
from zkcoord.core.quarantine import Exclusions
from zkcoord.core.rebalance_reason import RebalanceReason
from zkcoord.core.reconcile import Granted, draft_releases, grantable, grants, stops
from zkcoord.core.record import HOLD, REBALANCE, RESET
from zkcoord.core.replay import Replays, kept, replays
from zkcoord.core.replay_quota import pings
from zkcoord.core.requests import paused, rebalancing, responses
from zkcoord.core.retention import clear
from zkcoord.core.state import Failure, GroupState
from zkcoord.core.stores import store_changes, store_problem
from zkcoord.core.target import Digest, Target
from zkcoord.core.topics import drops
from zkcoord.core.view import REJECT, GroupView, Member, Owner, QueuedCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One step of a group."""

    decisions: tuple[Decision, ...]  # in the order of writing
    memory: Memory  # for the next step
    wake_at_ms: int | None = None  # monotonic time at which to decide again at the latest


def decide(
    view: GroupView,
    memory: Memory,
    now_ms: int,
    digest: Digest,
    assignors: Mapping[str, Assignor] = ASSIGNORS,
) -> Decided:
    """Return what to do for a group now. Pure: the same arguments give the same decisions."""
    if view.unreadable is not None or view.observed:
        return Decided(decisions=(), memory=memory)
    if view.record_version is None or view.state_version is None:
        return Decided(decisions=(FoundGroup(why="first sight of the group"),), memory=memory)
    memory = memory.seen(view, now_ms)
    if not view.mode.coordinated or changes_mode(view):
        return _beside_old_members(view, memory, now_ms)
    memory = fast_replace(memory, negotiation=memory.negotiation.of(view, assignors.keys()))
    negotiated = memory.negotiation.answer
    eligible = [m for m in negotiated.members if not memory.static_timers.held_off(m, now_ms)]
    decisions: list[Decision] = [
        RejectMember(consumer_id=c, why=r, final=c in negotiated.final) for c, r in sorted(negotiated.rejected.items())
    ]
    announced = replays(view, memory.open_ranges.found)
    keeping, waiting = kept(view, announced)  # before their announcements are removed
    decisions += keeping
    decisions += _refused_commands(view, waiting)
    decisions += draft_releases(view)
    decisions += claims_to_delete(view, memory.ack_timeouts, now_ms)
    memory = _asked_to_rebalance(view, memory)
    exclusions = memory.quarantines.exclusions(view, eligible)
    decisions += _quarantine(view, exclusions, decisions)
    held = memory.static_timers.held(view, now_ms)
    target = memory.target.asked(view, negotiated.assignor, eligible, digest, assignors, held, exclusions)
    memory = _spent(view, _with_holders(view, memory.aiming(view, target), now_ms), now_ms, digest)
    turned_away = memory.turned_away.seen(negotiated.rejected, anybody=bool(eligible))
    memory = fast_replace(memory, turned_away=turned_away)
    decisions += noted(view, memory.old_owners, decisions)
    decisions += _problem(view, decisions, negotiated.problem, memory.target.problem, turned_away.problem)
    why, memory = _why(view, memory, negotiated.assignor, eligible)
    state = written(view.state, decisions)
    rebalance, memory = _rebalance(view, state, memory, why, announced, now_ms)
    decisions += rebalance

    def free(owner: Owner | None) -> bool:
        return available(view, memory.ack_timeouts, owner, now_ms)

    def still(owner: Owner | None) -> bool:
        return not memory.holders.astray and free(owner)

    decisions += drops(view, memory.topics, free, memory.holders.astray, now_ms)
    decisions += _overdue(view, memory, decisions, now_ms)
    decisions += pings(view, memory.full_members, memory.liveness, now_ms)
    decisions += _purges(view, memory, announced, now_ms)
    decisions += clear(view, memory.retention, decisions, now_ms)
    pending = memory.quarantines.pending(view, memory.target.assignment, memory.ack_timeouts, decisions, now_ms)
    pending |= memory.initial_delay.waits(now_ms)
    expired = memory.reset_timer.expired(view, now_ms)
    # last, so that a coordinator that takes over in between finds the request
    decisions += expired or responses(view, still, waiting=pending)
    return Decided(decisions=tuple(decisions), memory=memory, wake_at_ms=_wake_at_ms(view, memory, now_ms))


def _beside_old_members(view: GroupView, memory: Memory, now_ms: int) -> Decided:
    """Finish what is outstanding, and begin nothing. See `core.beside`."""
    memory = memory.aiming(view, Target(assignment=view.mode.plan or {}))
    announced = replays(view, memory.open_ranges.found)
    keeping, waiting = kept(view, announced)
    decisions = [*keeping, *_refused_commands(view, waiting)]
    decisions += mode_changes(view, memory.old_owners, decisions)
    if not view.mode.coordinated:
        decisions += _problem(view, decisions, problem_beside(view, memory.looker, now_ms))
        decisions += claims_to_delete(view, memory.ack_timeouts, now_ms)
        decisions += _overdue(view, memory, decisions, now_ms)
        decisions += _purges(view, memory, announced, now_ms)
        answered, looker = responses_beside(view, memory.looker, now_ms)
        decisions += answered
        memory = fast_replace(memory, looker=looker)
    return Decided(decisions=tuple(decisions), memory=memory, wake_at_ms=_wake_at_ms(view, memory, now_ms))


def _asked_to_rebalance(view: GroupView, memory: Memory) -> Memory:
    """For a requested rebalance, forget target and refusals once. (Repeated forgetting would give an eager group on its
    way another target.) A start that is refused while the request is open waits for its back-off as usual."""
    if not rebalancing(view):
        return memory
    run = view.record.requests[REBALANCE].run
    if memory.rebalanced == run:
        return memory
    return fast_replace(
        memory, rebalanced=run, target=memory.target.forgotten(), ack_timeouts=memory.ack_timeouts.trying_again()
    )


def _with_holders(view: GroupView, memory: Memory, now_ms: int) -> Memory:
    """Return the memory with the partitions that a consumer still reads though their owners were set empty."""

    def may_read(consumer_id: str) -> bool:
        return consumer_id in view.members or memory.ack_timeouts.in_grace(view, consumer_id, now_ms)

    def free(owner: Owner | None) -> bool:
        return available(view, memory.ack_timeouts, owner, now_ms)

    holders = memory.holders.seen(view, memory.difference.value.lacking, may_read, free)
    return fast_replace(memory, holders=holders)


def _problem(view: GroupView, before: Sequence[Decision], *problems: str | None) -> list[Decision]:
    of_store = store_problem(view) if view.mode.coordinated else None
    problem = "; ".join(filter(None, (*problems, of_store))) or None
    if problem == view.state.problem:
        return []
    state = replace(written(view.state, before), problem=problem)
    event = StateEvent.ASSIGNMENT_AS_ASKED if problem is None else StateEvent.ASSIGNMENT_PROBLEM
    return [SetState(state=state, event=event, why=problem or "the assignment is what was asked for")]


def _spent(view: GroupView, memory: Memory, now_ms: int, digest: Digest) -> Memory:
    """Under a budget of moves, limit the target to what a raise may move now. See `core.budget`."""
    target = memory.target
    if target.unanswered or not limited(view):
        return memory
    same = target.digest == view.state.target
    if same and not target.waiting:
        return memory
    commands = [command for name in view.members if (c := view.channels.get(name)) for command in c.commands]
    under_way = any(command.moves for command in commands)
    at_rest = not under_way and not any(grantable(view, memory, now_ms))
    if same and (not at_rest or stops(view, memory, now_ms)):
        return memory
    return memory.aiming(view, target.next_moves(view, digest, at_rest=at_rest))


def _wake_at_ms(view: GroupView, memory: Memory, now_ms: int) -> int | None:
    """The next moment at which a wait ends."""
    beside = (memory.looker, memory.old_owners)
    waits = (memory.ack_timeouts, memory.liveness, memory.static_timers, memory.full_members, *beside)
    times = (
        memory.initial_delay.until_ms,
        memory.topics.wake_at_ms(now_ms),
        memory.retention.wake_at_ms(now_ms),
        memory.reset_timer.until_ms,
        memory.lingers_until_ms,
        *(w.wake_at_ms(view, now_ms) for w in waits),
    )
    return min((at_ms for at_ms in times if at_ms is not None and at_ms > now_ms), default=None)


def _why(view: GroupView, memory: Memory, assignor: str, eligible: Sequence[Member]) -> tuple[str, Memory]:
    """Why the target differs from the state's; "" while it is the same."""
    ids = [m.consumer_id for m in eligible]
    target = memory.target
    if target.unanswered:
        return "", memory
    if target.digest == view.state.target or not (target.assignment or view.state.target):
        settled = RebalanceReason(assignor, frozenset(ids), view.topics, view.replica_racks)
        return "", fast_replace(memory, rebalance_reason=settled)
    why = memory.rebalance_reason.told(assignor, ids, view.topics, view.replica_racks)
    return f"{why}; {len(target.waiting)} moves wait for later raises" if target.waiting else why, memory


def _rebalance(
    view: GroupView,
    state: GroupState,
    memory: Memory,
    changed: str,
    announced: Replays,
    now_ms: int,
) -> tuple[list[Decision], Memory]:
    """From the owners to the target: the raise, marks, the store, stops, grants. `state` is the state as written before
    these."""
    still, hold = paused(view), HOLD in view.record.requests
    raising = changed != "" and not still and not memory.initial_delay.waits(now_ms)
    stopping = not still and not hold and everybody_stops(view, memory.difference.value.misplaced, raising=raising)
    decisions: list[Decision] = []
    if raising:
        raised = replace(
            state,
            generation=state.generation + 1,
            target=memory.target.digest,
            stopping=stopping,
            until=memory.target.until,
            brokers=view.brokers,
        )
        decisions.append(SetState(state=raised, event=StateEvent.REBALANCE_STARTED, why=changed))
    elif stopping is not view.state.stopping:
        event = StateEvent.STOPPING if stopping else StateEvent.STOPPED
        why = _why_stopping(view, stopping)
        decisions.append(SetState(state=replace(state, stopping=stopping), event=event, why=why))
    if view.state.failed is not None and (raising or rebalancing(view)):
        memory = fast_replace(memory, ack_timeouts=memory.ack_timeouts.forgiving(now_ms))
    waiting = still or memory.initial_delay.waits(now_ms)
    decisions += _instances(view, memory, now_ms, waiting=waiting)
    topics = [] if waiting else sorted(memory.target.topics - view.marked)
    decisions += [MarkTopic(topic=topic, why="members subscribe to it") for topic in topics]
    decisions += store_changes(view, memory.ack_timeouts, now_ms)
    if still or not hold:
        why_all = _why_still(view) if still else EAGER_WHY if stopping else ""
        decisions += stops(view, memory, now_ms, everything=why_all)
    granted = Granted() if waiting or stopping else grants(view, memory, announced, now_ms)
    full_members = memory.full_members.seen(view, granted.full, now_ms)
    memory = fast_replace(memory, full_members=full_members, lingers_until_ms=granted.lingers_until_ms)
    return [*decisions, *granted.decisions], memory


def _quarantine(view: GroupView, exclusions: Exclusions, before: Sequence[Decision]) -> list[Decision]:
    """Write the quarantined partitions into the state if they have changed."""
    if exclusions.quarantined == view.state.quarantined and exclusions.forgiven == view.state.forgiven:
        return []
    new = sorted(exclusions.quarantined.keys() - view.state.quarantined.keys())
    words = [f"{partition} {exclusions.quarantined[partition].why}" for partition in new]
    lifted = sorted(view.state.quarantined.keys() - exclusions.quarantined.keys())
    words += [f"{partition} is tried again" for partition in lifted]
    why = "; ".join(words) or "what a requested rebalance forgave"
    state = replace(written(view.state, before), quarantined=exclusions.quarantined, forgiven=exclusions.forgiven)
    return [SetState(state=state, event=StateEvent.QUARANTINED, why=why)]


def _instances(view: GroupView, memory: Memory, now_ms: int, *, waiting: bool) -> list[Decision]:
    """Write the static members' shares and absences into the state if they have changed.

    With `waiting` nothing is granted now, so only absences are written.
    """
    made = {} if waiting else memory.target.instances
    if not made and not view.instances:
        return []
    held = memory.static_timers.held(view, now_ms)
    away = {m.instance: view.instances[m.instance] for m in held if m.instance is not None}
    present = {m.instance for m in view.members.values() if m.hold_ms}  # also if held off or at odds: not forgotten
    wanted = {i: instance for i, instance in made.items() if i in present}  # a target that did not change may be older
    gone = {i: fast_replace(known, away=True) for i, known in away.items() if not known.away}
    returned = [i for i, known in view.instances.items() if known.away and i in present]
    back = {i: fast_replace(view.instances[i], away=False) for i in returned}
    known = back | {i: instance for i, instance in wanted.items() if view.instances.get(i) != instance} | gone
    forgotten = [i for i in sorted(view.instances) if i not in wanted and i not in away and i not in present]
    if waiting:
        forgotten = []
    if not known and not forgotten:
        return []
    return [
        RememberInstances(
            known=known,
            forgotten=tuple(forgotten),
            away=tuple(sorted(gone)),
            returned=tuple(sorted(returned)),
            why="what static members have, and who is waited for",
        )
    ]


EAGER_WHY = "everybody stops first: the group is eager"


def _why_still(view: GroupView) -> str:
    return "its offsets are to be reset" if RESET in view.record.requests else "the group is paused"


def _why_stopping(view: GroupView, stopping: bool) -> str:
    if stopping:
        return "something must move, and the group is eager"
    if not view.living_threads():
        return "everybody has stopped"
    held = paused(view) or HOLD in view.record.requests
    return "the group is held or paused" if held else "the group is not eager any more"


def _refused_commands(view: GroupView, waiting: Collection[tuple[str, str]]) -> list[Decision]:
    return [
        RemoveRefused(consumer_id=c, sequence=command.sequence, why=f"its consumer refused it: {command.error}")
        for c in sorted(view.channels)
        for command in view.channels[c].commands
        if command.error is not None and (c, command.sequence) not in waiting
    ]


def _overdue(view: GroupView, memory: Memory, before: Sequence[Decision], now_ms: int) -> list[Decision]:
    """Evict members that are overdue, or mark the group as failed, by its policy.

    The mark stays, also over a failover, until its commands are acknowledged or the group has changed. Members that are
    stalled, and rejected members that do not go, are evicted by any policy: waiting would not help.
    """
    timeouts = memory.ack_timeouts
    hopeless = (*memory.liveness.stalled(view), *memory.looker.overdue(view, now_ms))
    evictions = {c: _evict(view, c, None, why) for c, why in hopeless}
    error, known = None, view.state.failed.error if view.state.failed is not None else None
    for consumer_id, command in timeouts.overdue(view, now_ms):
        why = f"{command.option} {command.sequence} was not acknowledged within its retries"
        if view.record.policy.on_timeout == "evict" or command.option == REJECT:
            evictions[consumer_id] = _evict(view, consumer_id, command, why)
        elif error is None:
            error = f"ConsumerRebalanceFailed: {consumer_id}: {why}"
    decisions: list[Decision] = [evictions[c] for c in sorted(evictions)]
    if error is None and timeouts.unforgiven(view):
        error = known
    if error != known:
        decisions.append(_failed(written(view.state, before), error, forgave=timeouts.forgave))
    return decisions


def _failed(state: GroupState, error: str | None, *, forgave: bool) -> SetState:
    """Mark the group as failed with this error, or with None clear the mark."""
    if error is not None:
        failed = Failure(error=error, since_generation=state.generation)
        return SetState(state=replace(state, failed=failed), event=StateEvent.REBALANCE_FAILED, why=error)
    over = "the group has changed, or was asked to rebalance" if forgave else "acknowledged after all"
    return SetState(state=replace(state, failed=None), event=StateEvent.REBALANCE_RECOVERED, why=over)


def _evict(view: GroupView, consumer_id: str, command: QueuedCommand | None, why: str) -> EvictMember:
    return EvictMember(
        consumer_id=consumer_id,
        sequence=None if command is None else command.sequence,
        session_timeout_ms=view.members[consumer_id].session_timeout_ms,
        why=why,
    )


def _purges(view: GroupView, memory: Memory, announced: Replays, now_ms: int) -> list[Decision]:
    """Purge channels without a registration. An evicted consumer's channel stays for its grace, and while the consumer
    owns partitions of the target. A channel with announced ranges stays until they are handed on."""
    orphans = [c for c in sorted(view.channels) if c not in view.members]
    if not orphans:
        return []
    timeouts = memory.ack_timeouts
    owning = {consumer_of(thread) for thread in memory.difference.value.owning} | claims_of_evicted(view).keys()
    decisions: list[Decision] = []
    for consumer_id in orphans:
        channel = view.channels[consumer_id]
        if channel.version == 0 and channel.evicted_ms is None and not timeouts.abandoned(channel, now_ms):
            continue
        if channel.evicted_ms is not None and (consumer_id in owning or timeouts.in_grace(view, consumer_id, now_ms)):
            continue
        if announced.need(channel):
            continue
        decisions.append(PurgeChannel(consumer_id=consumer_id, why="its registration is gone"))
    return decisions
