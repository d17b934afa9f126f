"""A coordinator's decisions on one group in one step, for the log and for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zkcoord.core.decisions import Decision
from zkcoord.core.memory import Memory
from zkcoord.core.model import Phase
from zkcoord.core.phase import planned_phase
from zkcoord.core.view import GroupView


@dataclass(frozen=True, slots=True)
class DecidedGroup:
    """One group with the decisions that were made on it at `now_ms`. Any thread may read it."""

    view: GroupView
    memory: Memory
    decisions: Sequence[Decision]
    now_ms: int

    @property
    def phase(self) -> Phase:
        """The group's phase with these decisions."""
        return planned_phase(self.view, self.memory.target, self.memory.difference.value.owning, self.decisions)
