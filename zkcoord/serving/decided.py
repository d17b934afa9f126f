"""What a coordinator decided on one group in one step, for the log and for whoever measures. A value of values."""

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
    """One group as it was decided on at `now_ms`; any thread may read it."""

    view: GroupView
    memory: Memory
    decisions: Sequence[Decision]
    now_ms: int

    @property
    def phase(self) -> Phase:
        """The group's phase, given these decisions."""
        return planned_phase(self.view, self.memory.target, self.memory.difference.value.owning, self.decisions)
