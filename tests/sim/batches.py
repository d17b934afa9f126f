"""An application that announces a batch, processes its ranges and commits them; and the checker of a sink keyed by
ranges.

When it is stopped or loses a partition, it forgets the ranges that it announced. The next start tells it which ranges
must be processed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from tests.sim.application import Application
from tests.sim.world import Entry, World
from zkcoord.core.member.requests import AnnounceRequest
from zkcoord.core.model import TopicPartition
from zkcoord.shell.ports import CallDone, Request

RECORDS_MAX = 400
"""Of a range."""


class BatchApplication(Application):
    """One batch at a time: announced, then each range processed whole, then committed."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._batch: dict[TopicPartition, tuple[int, int]] = {}
        self._begun: dict[TopicPartition, int] = {}  # partition -> the number of its start when the batch was planned
        self._processed: set[TopicPartition] = set()
        self._future: Future[Any] | None = None  # result of the write in progress
        self._act: Callable[[], None] = self._plan

    def _start(self, positions: dict[TopicPartition, int]) -> None:
        super()._start(positions)
        for partition in positions:
            if self.replays.get(partition, (-1, -1))[0] != positions[partition]:
                self.replays.pop(partition, None)

    def _answer(self) -> None:
        """In a stop, the partitions that the running batch does not read are released before the others."""
        token, name, argument = self._calls[0]
        if name == "stop" and self._act != self._plan:
            free = tuple(p for p in argument if not self._reads(p))
            rest = tuple(p for p in argument if p not in free)
            if free and rest:
                self._calls[0] = token, name, rest
                self._process.inbox.put(CallDone(token, (free, self._stop(free)), part=True))
                self._next_call()
                return
        super()._answer()

    def _stop(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        finish = self._world.rng.random() < 0.5
        final = {}
        for partition in partitions:
            if finish and self._act == self._work and partition in self._processed and self._reads(partition):
                final[partition] = self._batch[partition][1]
            self._note("stop", partition, final.get(partition, -1))  # -1: the committed offset stays
            self._forget(partition)
        return final

    def _lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self._note("lost", partition, self.positions.get(partition, -1))
            self._forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self.positions.pop(partition, None)
        self.replays.pop(partition, None)

    def _reads(self, partition: TopicPartition) -> bool:
        """True while the running batch may count for the partition."""
        started = self.starts.get(partition) == self._begun.get(partition)
        return partition in self._batch and partition in self.positions and started

    def _look(self) -> None:
        if self._future is None or self._future.done():
            self._act()
        self._look_later()

    def _plan(self) -> None:
        world = self._world
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition in sorted(self.positions):
            if not self.allowed(partition) or not (world.draining or world.rng.random() < 0.7):
                continue
            start, end = self.positions[partition], self._logs.end(partition)
            if not world.draining:
                end = min(end, start + 1 + int(world.rng.random() * RECORDS_MAX))
            start, end = self.replays.get(partition, (start, end))
            if start < end:
                ranges[partition] = (start, end)
        if ranges:
            self._batch, self._processed = ranges, set()
            self._begun = {p: self.starts.get(p, 0) for p in ranges}
            self._ask("announce", AnnounceRequest(ranges, dict(self._begun)), self._announced)

    def _ask(self, name: str, argument: Any, then: Callable[[], None]) -> None:
        self._future, self._act = Future(), then
        self._process.inbox.put(Request(name, argument, self._future))

    def _announced(self) -> None:
        if self._failed():
            return
        for partition in filter(self._reads, list(self._batch)):
            self.replays[partition] = self._batch[partition]
        self._act = self._work

    def _failed(self) -> bool:
        future, self._future = self._future, None
        failed = future is not None and future.exception() is not None
        if failed:
            self._act = self._plan
        return failed

    def _work(self) -> None:
        world = self._world
        for partition in sorted(self._batch.keys() - self._processed):
            if not self._reads(partition):
                del self._batch[partition]
            elif self.allowed(partition) and (world.draining or world.rng.random() < 0.5):
                self._note("read", partition, *self._batch[partition])
                self._processed.add(partition)
        self._batch = {p: r for p, r in self._batch.items() if self._reads(p)}
        if not self._batch:
            self._act = self._plan
        elif self._processed.issuperset(self._batch):
            offsets = {p: end for p, (_, end) in self._batch.items()}
            self._ask("commit", self.wanted(offsets), self._committed_all)

    def _committed_all(self) -> None:
        if self._failed():
            return
        for partition in filter(self._reads, list(self._batch)):
            self.positions[partition] = self._batch[partition][1]
            self.replays.pop(partition, None)
        self._act = self._plan


Key = tuple[str, TopicPartition, Any]
"""Of a sink: the group, the partition, the incarnation of its topic."""


class Sink:
    """The contents of a sink keyed by (topic, partition, start, end): no two ranges of one incarnation may overlap."""

    def __init__(self, world: World, incarnation: Callable[[str, str], int]) -> None:
        """`incarnation`: returns the number of a group's topic, read from its mark."""
        self._world, self._incarnation = world, incarnation
        self._starts: dict[Key, list[int]] = {}  # sorted
        self._ends: dict[tuple[Key, int], int] = {}
        self._back_to: dict[tuple[str, TopicPartition], int] = {}
        self.again = 0  # how many ranges were written again
        world.on_journal.append(self._take)

    def taken_back(self, group: str, partition: TopicPartition, offset: int) -> None:
        """A commit of a former owner replaced a newer one, as may happen in Kafka. Reading may begin there again, once,
        and the ranges from there on may be cut anew."""
        self._back_to[group, partition] = offset

    def _take(self, entry: Entry) -> None:
        if entry.event == "read":
            for complaint in self.write(entry):
                self._world.fail(complaint)

    def write(self, entry: Entry, incarnation: Any = None) -> Iterator[str]:
        """Add a range to the sink; yields a complaint when the range overlaps another one and is not equal to it."""
        known = self._incarnation(entry.group, entry.partition.topic) if incarnation is None else incarnation
        key = entry.group, entry.partition, known
        starts = self._starts.setdefault(key, [])
        if self._back_to.get(key[:2]) == entry.start:
            del self._back_to[key[:2]]
            anew = bisect_left(starts, entry.start)
            for start in starts[anew:]:
                del self._ends[key, start]
            del starts[anew:]
        if self._ends.get((key, entry.start)) == entry.end:
            self.again += 1
            return
        place = bisect_left(starts, entry.end)
        if place and self._ends[key, starts[place - 1]] > entry.start:
            other = starts[place - 1]
            beside = f"{other}..{self._ends[key, other]}"
            yield f"{entry.client} processes {entry.partition} {entry.start}..{entry.end} beside {beside}"
            return
        starts.insert(bisect_left(starts, entry.start), entry.start)
        self._ends[key, entry.start] = entry.end

    def complete(self) -> list[str]:
        """Complaints about partitions whose ranges have gaps between them."""
        found = []
        for key, starts in sorted(self._starts.items()):
            group, partition, _ = key
            ends = [self._ends[key, start] for start in starts]
            gaps = [(end, start) for end, start in zip(ends, starts[1:], strict=False) if end != start]
            found += [f"{partition} {end}..{start} of {group} was never processed" for end, start in gaps]
        return found

    @property
    def incarnations(self) -> int:
        """The highest number of incarnations of one partition that have ranges in the sink."""
        seen = Counter(key[:2] for key in self._starts)
        return max(seen.values(), default=0)
