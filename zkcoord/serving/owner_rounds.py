"""Reads the owners of all groups again, slowly. Nobody watches owner nodes: there may be very many of them, and
programs of this protocol change them only together with a node that is watched. Somebody else may write one anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from zkcoord.serving.group_watch import GroupWatch
from zkcoord.shell.tracker import Tracker

ROUND_MS = 600_000
"""From the end of a round to the beginning of the next: so long an overwritten owner is not noticed, at most."""

PAUSE_MS, OWNERS_MAX = 1_000, 1_000
"""At most OWNERS_MAX owners are read in PAUSE_MS, of all groups together: half of a request, so others have room."""


class OwnerRounds:
    """The rounds of one term."""

    def __init__(self) -> None:
        self._at_ms: int | None = None  # when owners are read next
        self._left: Iterator[str] | None = None  # of the round that has begun

    def advance(self, groups: Mapping[str, GroupWatch], tracker: Tracker, now_ms: int) -> int:
        """Have the next owners read when it is time; returns when to ask again."""
        if self._at_ms is None:
            self._at_ms = now_ms + ROUND_MS
        elif now_ms >= self._at_ms:
            if self._left is None:
                self._left = _owners(groups)
            paths = list(islice(self._left, OWNERS_MAX))
            for path in paths:
                tracker.touch(path)
            if len(paths) < OWNERS_MAX:
                self._left = None
            self._at_ms = now_ms + (ROUND_MS if self._left is None else PAUSE_MS)
        return self._at_ms


def _owners(groups: Mapping[str, GroupWatch]) -> Iterator[str]:
    """The paths of all owners: of each group as they are when the round comes to it."""
    for group in sorted(groups):
        following = groups.get(group)
        if following is not None:
            yield from [following.layout.owner(group, partition) for partition in following.nodes.view.owners]
