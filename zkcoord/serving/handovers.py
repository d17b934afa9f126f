"""The hand-overs of all groups of one coordinator, step by step, and how JSON shows a hand-over."""

from __future__ import annotations

from typing import Any

from zkcoord.core.handovers import MOMENTS, HandOver, KeptHandOvers
from zkcoord.serving.role import CoordinatorRole


class ServedHandOvers:
    """Keeps the hand-overs that are under way. Call `after_step` after each step of the coordinator's loop."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptHandOvers] = {}
        self.amended: list[tuple[str, HandOver]] = []
        # hand-overs completed in earlier steps, whose first record the last step learned

    def after_step(self, role: CoordinatorRole) -> list[tuple[str, HandOver]]:
        """Take in what the step decided. Return the hand-overs that it completed, each with its group.

        When this coordinator does not serve, it forgets the hand-overs under way: another coordinator completes them.
        """
        self.amended = []
        if role.term is None:
            self._kept.clear()
            return []
        completed: list[tuple[str, HandOver]] = []
        for of in role.decided:
            group = of.view.group
            now = self._kept.pop(group, KeptHandOvers()).after(of.view, of.decisions, of.now_ms)
            completed += [(group, done) for done in now.completed]
            self.amended += [(group, done) for done in now.amended]
            if now.open or now.reading:
                self._kept[group] = now
        if self._kept:
            for group in self._kept.keys() - role.groups:
                del self._kept[group]
        return completed

    @property
    def under_way(self) -> list[tuple[str, HandOver]]:
        """The hand-overs that are not complete, each with its group."""
        return [(group, each) for group, kept in self._kept.items() for each in kept.open.values()]


def document(group: str, each: HandOver, shift_ms: int) -> dict[str, Any]:
    """Return a hand-over as JSON shows it. `shift_ms` is added to its times to make them those of the wall clock."""
    known: dict[str, int | None] = {name: getattr(each, name) for name in MOMENTS}
    times = {name: None if at_ms is None else at_ms + shift_ms for name, at_ms in known.items()}
    said = {"group": group, "topic": each.partition.topic, "partition": each.partition.partition}
    return {**said, "from": each.giver or None, "to": each.taker or None, "generation": each.generation, **times}
