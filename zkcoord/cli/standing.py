"""What `zkcoord consume` says on a terminal while it prints no record: what it reads, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import some

QUIET_MS = 5_000
"""After this time a member usually has its share, and a topic with traffic has had a first record."""


class Standing:
    """Reports each change of the partitions. It reports once that there is no partition, or no record of the
    partitions."""

    def __init__(self, tell: Callable[[str], None], begun_ms: int) -> None:
        self._tell = tell
        self._held: Sequence[TopicPartition] = ()
        self._since_ms: int | None = begun_ms
        # since when these partitions are held without a record; None: everything is reported

    def look(self, held: Sequence[TopicPartition], consumer_id: str | None, now_ms: int, *, printed: bool) -> None:
        """Note the partitions that are held now, and whether a record was printed just now."""
        if held != self._held:
            self._tell(f"reads {some(held)}" if held else "reads nothing now: its partitions were taken away")
            self._held, self._since_ms = held, now_ms
        elif printed and held:
            self._since_ms = None
        elif self._since_ms is not None and now_ms - self._since_ms >= QUIET_MS:
            from zkcoord.subscription import why_nothing_is_held

            self._since_ms = None
            text = (
                "no record yet: it waits for new ones" if held else f"no partition: {why_nothing_is_held(consumer_id)}"
            )
            self._tell(text)
