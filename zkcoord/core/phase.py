"""A group's phase as the coordinator decides on it, and its reason: for the log, the journal and the tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkcoord.core.decisions import (
    Decision,
    FoundGroup,
    GrantPartitions,
    SetState,
    StateEvent,
    StopFetching,
)
from zkcoord.core.mode import Mode
from zkcoord.core.model import Phase, consumer_of
from zkcoord.core.record import DELETE, PAUSE, RESET
from zkcoord.core.requests import deleting, has_paused, has_stopped
from zkcoord.core.target import Target
from zkcoord.core.view import START, STOP, GroupView, phase

REBALANCING = (StateEvent.REBALANCE_STARTED, StateEvent.STOPPING, StateEvent.STOPPED)
"""Changes of the state that partitions wait for."""


def pending(decision: Decision) -> bool:
    """True when the group is not settled before this decision is carried out."""
    if isinstance(decision, SetState):
        return decision.event in REBALANCING
    return isinstance(decision, (FoundGroup, StopFetching, GrantPartitions))


def planned_phase(view: GroupView, target: Target, owning: Iterable[str], decisions: Sequence[Decision]) -> Phase:
    """The group's phase with the present decisions. `owning` is as for `phase`."""
    if view.observed or view.mode.mode is Mode.OBSERVE:
        return Phase.OBSERVED
    if deleting(view):
        return Phase.DEAD
    now = phase(view, owning)
    if now is not Phase.EMPTY and (has_paused(view.record) or has_stopped(view.record)):
        return Phase.PAUSED
    if now is Phase.STABLE and any(map(pending, decisions)):
        return Phase.PREPARING_REBALANCE
    if now is Phase.STABLE and not view.mode.coordinated and _misplaced(view, target):
        return Phase.PREPARING_REBALANCE
    if now is Phase.STABLE and target.reserved:
        return Phase.AWAITING_MEMBER
    return now


def phase_reason(now: Phase, view: GroupView, target: Target, decisions: Sequence[Decision]) -> str:
    """Why the group is in the phase `now`."""
    next_step = next((decision.why for decision in decisions if pending(decision)), "")
    commands = [command.option for channel in view.channels.values() for command in channel.commands]
    if now is Phase.OBSERVED:
        return "it is not adopted" if view.observed else view.mode.why
    if now is Phase.DEAD:
        return f"it is being deleted (run {view.record.requests[DELETE].run})"
    if now is Phase.EMPTY:
        return "it has no members"
    if now is Phase.STABLE:
        return "every partition has a reader, and no command is outstanding"
    if now is Phase.AWAITING_MEMBER:
        consumers = {consumer_of(thread) for thread in target.reserved.values()}
        names = sorted(i for i, known in view.instances.items() if known.last_id in consumers)
        return f"{len(target.reserved)} partitions have no reader: they wait for {', '.join(names)}"
    if RESET in view.record.requests:
        return f"its offsets are being reset (run {view.record.requests[RESET].run})"
    if view.record.handed_over:
        return "it is handed over to consumers of Kafka's own protocol: `zkcoord group take-back` ends that"
    if PAUSE in view.record.requests:
        return f"it is paused (run {view.record.requests[PAUSE].run})"
    if next_step:
        return next_step
    option = START if now is Phase.AWAITING_SYNC else STOP
    if option in commands:
        return f"outstanding: {commands.count(option)} {option}"
    living = view.living_threads()
    wanted = target.assignment
    waiting = [p for p in wanted if p not in view.owners or view.owners[p].thread not in living]
    return f"without a living owner: {len(waiting)} of {len(wanted)} partitions"


def _misplaced(view: GroupView, target: Target) -> bool:
    owners = view.owners
    return any(p not in owners or owners[p].thread != thread for p, thread in target.assignment.items())
