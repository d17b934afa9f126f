"""A group's phase as it is decided on, with its cause: what the log, the journal and the tools say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkcoord.core.decisions import (
    Decision,
    FoundGroup,
    GrantPartitions,
    RaiseGeneration,
    SetStopping,
    StopFetching,
)
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.view import GroupView, alive, phase
from zkcoord.core.wishes import DELETE, PAUSE, deleting

PENDING = (FoundGroup, RaiseGeneration, SetStopping, StopFetching, GrantPartitions)
"""What a coordinator that read the same tree would do now; until then a group is not settled."""


def outlook(view: GroupView, target: Mapping[TopicPartition, str], decisions: Sequence[Decision]) -> tuple[Phase, str]:
    """The phase of a group for which this is decided now, and why it is in it."""
    if deleting(view):
        return Phase.DEAD, f"it is being deleted (run {view.wishes[DELETE].run})"
    now = phase(view, target)
    pending = [decision for decision in decisions if isinstance(decision, PENDING)]
    if now is Phase.STABLE and pending:
        return Phase.PREPARING_REBALANCE, pending[0].why
    return now, _why(view, target, now, pending)


def _why(view: GroupView, target: Mapping[TopicPartition, str], now: Phase, pending: Sequence[Decision]) -> str:
    if now is Phase.EMPTY:
        return "it has no members"
    if now is Phase.STABLE:
        return "every partition has a reader, and no command is outstanding"
    if PAUSE in view.wishes:
        return f"it is paused (run {view.wishes[PAUSE].run})"
    if pending:
        return pending[0].why
    options = [command.option for channel in view.channels.values() for command in channel.commands]
    stops, starts = options.count("stop-fetcher"), options.count("start-fetcher")
    if now is Phase.AWAITING_SYNC:
        return f"starts outstanding: {starts}"
    if stops:
        return f"stops outstanding: {stops}"
    return f"partitions without a living owner: {sum(not alive(view, partition) for partition in target)}"
