"""The application's callbacks, as the membership calls them. Their answers are checked.

Callbacks run on the worker's thread, one after the other. Other threads only look up a start's number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from zkcoord.core.given import given_function, given_offsets
from zkcoord.core.member.status import ANNOUNCED_BYTES_MAX
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import UsageError
from zkcoord.tree.status import announced_bytes

Partitions = tuple[TopicPartition, ...]
Positions = Mapping[TopicPartition, int]
Ranges = Mapping[TopicPartition, tuple[int, int]]


class ApplicationCallbacks:
    """The callbacks of one consumer (`zkcoord.Consumer` says what each is for)."""

    def __init__(
        self,
        on_start: Callable[[Starting], None],
        on_stop: Callable[[Partitions], Positions],
        on_lost: Callable[[Partitions], None],
        on_replay: Callable[[Ranges], None] | None,
        reset: Callable[[Partitions], Positions] | None,
    ) -> None:
        """Raises UsageError if a callback is not a function."""
        optional = {"on_replay": on_replay, "reset": reset}
        given = {name: function for name, function in optional.items() if function is not None}
        for name, function in {"on_start": on_start, "on_stop": on_stop, "on_lost": on_lost, **given}.items():
            given_function(name, function)
        self._on_start, self._on_stop, self._on_lost, self._on_replay = on_start, on_stop, on_lost, on_replay
        self._reset = reset or _no_reset
        self._started: dict[TopicPartition, int] = {}  # partition -> number of its start; only of partitions that run
        self._incarnations: dict[TopicPartition, int] = {}
        # partition -> incarnation of its topic, where it is known; of partitions that start or run
        self._read: dict[TopicPartition, int] = {}
        # partition -> number of the start since which a record was handed out
        self._announced: dict[TopicPartition, tuple[int, int]] = {}  # announced ranges, for the start that comes next

    def functions(self) -> dict[str, Callable[[Any], Any]]:
        """The functions that the worker calls, by the names in `ports.Callbacks`."""
        return {
            "replay": self._announced.update,
            "start": self._start,
            "stop": self._stop,
            "lost": self._lost,
        }

    def questions(self) -> dict[str, Callable[[Any], Any]]:
        """The functions that the worker calls on its other thread."""
        return {"reset": lambda partitions: answered_offsets(self._reset(partitions))}

    def started(self, partition: TopicPartition) -> int:
        """The number of the start by which the partition runs. 0: it does not run."""
        return self._started.get(partition, 0)

    def first_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the partitions of which no record was handed out since their start, each with the number of that
        start. Note that a record of each is handed out now."""
        started, read = self._started, self._read
        fresh = {p: number for p in partitions if (number := started.get(p, 0)) and read.get(p) != number}
        read |= fresh
        return fresh

    def incarnation(self, partition: TopicPartition) -> int:
        """The number of the topic's incarnation for which the partition was started. 0: the number is unknown, or the
        partition was not started."""
        return self._incarnations.get(partition, 0)

    def _start(self, starting: Starting) -> None:
        self._incarnations |= starting.incarnations
        announced = dict(self._announced)
        self._announced.clear()
        try:
            if announced and self._on_replay is not None:
                self._on_replay(announced)
            self._on_start(starting)
        except BaseException:
            self._forget(starting)
            raise
        # only now: commits that came before belong to the earlier start
        self._started |= dict.fromkeys(starting, starting.number)

    def _stop(self, partitions: Partitions) -> Positions:
        try:
            return answered_offsets(self._on_stop(partitions))
        finally:
            self._forget(partitions)

    def _lost(self, partitions: Partitions) -> None:
        self._forget(partitions)
        self._on_lost(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._started.pop(partition, None)
            self._read.pop(partition, None)
            self._incarnations.pop(partition, None)


def answered_offsets(answer: Positions | None) -> dict[TopicPartition, int]:
    """The offsets that a callback returned; None counts as no offsets. Raises UsageError if they are no offsets."""
    return {} if answer is None else given_offsets(answer)


def check_size(ranges: Ranges) -> None:
    """Raises UsageError for ranges that take more bytes than a status can hold."""
    size = announced_bytes(ranges)
    if size > ANNOUNCED_BYTES_MAX:
        raise UsageError(
            f"{len(ranges)} ranges take {size} bytes, {ANNOUNCED_BYTES_MAX} are allowed: announce fewer at once"
        )


def _no_reset(partitions: Partitions) -> Positions:
    names = ", ".join(map(str, partitions[:5]))
    raise UsageError(f"no offset for {names}: give Consumer a `reset` function that says where to start")
