"""A group's phase as it is decided on, with its cause: what the log, the journal and the tools say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zkcoord.core.decisions import (
    Decision,
    FoundGroup,
    GrantPartitions,
    RaiseGeneration,
    SetStopping,
    StopFetching,
)
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.view import START, STOP, GroupView, phase
from zkcoord.core.wishes import DELETE, PAUSE, deleting

PENDING = (FoundGroup, RaiseGeneration, SetStopping, StopFetching, GrantPartitions)
"""What a coordinator that read the same tree would do now; until then a group is not settled."""


def outlook(view: GroupView, owning: Iterable[str], decisions: Sequence[Decision]) -> Phase:
    """The phase of a group for which this is decided now; `owning` as of `phase`."""
    if deleting(view):
        return Phase.DEAD
    now = phase(view, owning)
    if now is Phase.STABLE and any(isinstance(decision, PENDING) for decision in decisions):
        return Phase.PREPARING_REBALANCE
    return now


def cause(now: Phase, view: GroupView, target: Mapping[TopicPartition, str], decisions: Sequence[Decision]) -> str:
    """Why the group is in the phase `now`, its outlook."""
    pending = next((decision.why for decision in decisions if isinstance(decision, PENDING)), "")
    commands = [command.option for channel in view.channels.values() for command in channel.commands]
    if now is Phase.DEAD:
        return f"it is being deleted (run {view.wishes[DELETE].run})"
    if now is Phase.EMPTY:
        return "it has no members"
    if now is Phase.STABLE:
        return "every partition has a reader, and no command is outstanding"
    if PAUSE in view.wishes:
        return f"it is paused (run {view.wishes[PAUSE].run})"
    if pending:
        return pending
    option = START if now is Phase.AWAITING_SYNC else STOP
    if option in commands:
        return f"outstanding: {commands.count(option)} {option}"
    living = view.living_threads()
    waiting = [p for p in target if p not in view.owners or view.owners[p].thread not in living]
    return f"without a living owner: {len(waiting)} of {len(target)} partitions"
