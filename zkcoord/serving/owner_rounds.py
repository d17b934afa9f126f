"""Reads nodes again that nobody watches: the owners of all groups, slowly, and statuses some seconds after a start.

There may be very many owner nodes, and programs of this protocol change an owner only together with a node that is
watched. Somebody else may write one anyway. A status tells the first record after a start, but only with its member's
next write after the acknowledgement. No decision depends on these reads. A decision that is due during such a read is
made when the read is answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from zkcoord.serving.group_watch import GroupWatch
from zkcoord.shell.tracker import Tracker

ROUND_MS = 600_000
"""ms from the end of one round to the beginning of the next. An owner that somebody overwrote goes unnoticed for about
this time, which is long because hardly anybody does so."""

PAUSE_MS, OWNERS_MAX = 1_000, 1_000
"""At most OWNERS_MAX owners, over all groups, are read in PAUSE_MS. This is half of what one request holds, so other
reads have room."""

STATUS_AFTER_MS = (10_000, 60_000)
"""When the status is read again, in ms after the acknowledgement of a start. By the first time a consumer has committed
once, and has told its first record. The second time is only for a consumer that has told none, for example because its
batch takes long."""


class OwnerRounds:
    """The rounds of one term."""

    def __init__(self) -> None:
        self._statuses: dict[tuple[str, str], tuple[int, int]] = {}
        # (group, consumer) -> when its start was acknowledged, and how often its status was read again since
        self._statuses_at_ms = 0  # before this time none of them is due
        self._at_ms: int | None = None  # when the next owners are read
        self._left: Iterator[str] | None = None  # owners that the present round has not read

    def advance(self, groups: Mapping[str, GroupWatch], tracker: Tracker, now_ms: int) -> int:
        """Have owners and statuses read if it is time. Returns when to be called again."""
        if self._statuses and now_ms >= self._statuses_at_ms:
            self._read_statuses(groups, tracker, now_ms)
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
        return min(self._at_ms, self._statuses_at_ms) if self._statuses else self._at_ms

    def started(self, watch: GroupWatch, now_ms: int) -> None:
        """Note that consumers of this group have acknowledged starts."""
        for consumer_id in sorted(watch.channels.started):
            due_ms = now_ms + STATUS_AFTER_MS[0]
            self._statuses_at_ms = min(due_ms, self._statuses_at_ms) if self._statuses else due_ms
            self._statuses[watch.group, consumer_id] = now_ms, 0
        watch.channels.started.clear()

    def _read_statuses(self, groups: Mapping[str, GroupWatch], tracker: Tracker, now_ms: int) -> None:
        """Have the due statuses read, of consumers that tell times, and note when the next are due."""
        for (group, consumer_id), (since_ms, times) in list(self._statuses.items()):
            if now_ms < since_ms + STATUS_AFTER_MS[times]:
                continue
            del self._statuses[group, consumer_id]
            watch = groups.get(group)
            channel = watch.nodes.view.channels.get(consumer_id) if watch is not None else None
            if watch is None or channel is None or not channel.timing or (times and channel.reading):
                continue
            tracker.touch(watch.layout.channel(group, consumer_id))
            if times + 1 < len(STATUS_AFTER_MS):
                self._statuses[group, consumer_id] = since_ms, times + 1
        dues_ms = (since_ms + STATUS_AFTER_MS[times] for since_ms, times in self._statuses.values())
        self._statuses_at_ms = min(dues_ms, default=0)


def _owners(groups: Mapping[str, GroupWatch]) -> Iterator[str]:
    """The paths of all owners. Each group's owners are taken when the round comes to that group."""
    for group in sorted(groups):
        watch = groups.get(group)
        if watch is not None:
            yield from [watch.layout.owner(group, partition) for partition in watch.nodes.view.owners]
