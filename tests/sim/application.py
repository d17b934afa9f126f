"""The simulated application behind a consumer: obeys its callbacks, reads what it may, and journals all of it.

It stands for a user's program: one worker takes the callbacks in order, each takes a while, a start may raise; records
are read only from partitions that were started and that `allowed` permits at that moment.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.sim.process import SimProcess
from tests.sim.world import World
from zkcoord.core.member.application import FirstRecords
from zkcoord.core.member.requests import CommitRequest
from zkcoord.core.model import TopicPartition
from zkcoord.errors import UnknownPartitionError, ZkcoordError
from zkcoord.member.calls import CALLS_WAITING_MAX
from zkcoord.shell.ports import CallDone, Request

READ_RECORDS_MAX = 500
MS_PER_RECORD = 16
CALLS_MAX = CALLS_WAITING_MAX + 6
"""No more calls may ever wait: at the bound one registration may still ask for a replay and a start and take it back,
and so may the task that was taken up meanwhile."""
DRAIN_FACTOR, DRAIN_MS_MAX = 5, 8_000
"""In calm an application looks this many times less often: nothing but lease syncs shall happen then. But it looks once
at least before a world counts as quiet: that takes a session timeout, 4 s at least, and QUIET_MS."""


class Logs:
    """The partitions' logs: each begins at offset 0 and grows with virtual time until the world is calm."""

    def __init__(self, world: World, ms_per_record: int = MS_PER_RECORD) -> None:
        self._world, self._ms_per_record = world, ms_per_record
        self._born_ms: dict[str, int] = {}  # topics that were created again
        self.away_rate = 0.1  # rate of questions to the brokers that nobody answers, in a storm
        self.births: Counter[str] = Counter()  # how many questions were not answered
        self._first: dict[TopicPartition, int] = {}  # how many records each log had at time 0

    def empty(self, topic: str) -> None:
        """The topic was created again: its logs begin anew."""
        self._born_ms[topic] = self._world.now_ms
        self.births[topic] += 1

    def end(self, partition: TopicPartition) -> int:
        """The offset after the last record."""
        world = self._world
        now_ms = world.now_ms if world.drain_from_ms is None else world.drain_from_ms
        born_ms = self._born_ms.get(partition.topic)
        if born_ms is not None:
            return 1 + max(0, now_ms - born_ms) // self._ms_per_record
        first = self._first.get(partition)
        if first is None:
            first = self._first[partition] = zlib.crc32(str(partition).encode()) % 1_000
        return first + now_ms // self._ms_per_record


class Application:
    """The `Callbacks` port of one consumer. Set `allowed` (and `commit`) when the consumer's loop is built.

    `reset`: where a partition without an offset starts, `latest` or `earliest`.
    `commit`: called with {partition: next offset}; by default a `Request("commit", wanted, future)` to the inbox.
    """

    def __init__(self, process: SimProcess, logs: Logs, group: str, *, reset: str = "latest") -> None:
        self._process = process
        self._world = process.world
        self._logs = logs
        self._reset = reset
        self._calls: deque[tuple[int, str, Any]] = deque()
        self._commit: Future[Any] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._committing: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.replays: dict[TopicPartition, tuple[int, int]] = {}  # to be processed as they are, from their starts
        self._told: dict[TopicPartition, tuple[int, int]] = {}  # such ranges, for the next start
        self.starts: dict[TopicPartition, int] = {}  # partition -> the number of the last start that named it
        self.allowed: Callable[[TopicPartition], bool] = lambda partition: False
        self.commit: Callable[[dict[TopicPartition, int]], Future[Any]] = self._request_commit
        self.reading: Callable[[FirstRecords], None] = lambda first: None  # called with first records
        self._begun: dict[TopicPartition, int] = {}  # partition -> the last start of which a record was read
        self.unknown: set[TopicPartition] = set()  # partitions that its Kafka does not know
        self.commits = True  # whether it commits while it reads
        self.hung = False
        self._reads_on = False  # it goes on reading while it hangs
        self._answering = False  # an answer is scheduled
        process.group = group
        process.application = self
        self._look_later()

    # -- the port

    def call(self, token: int, name: str, argument: Any) -> None:
        """One callback; answered by one CallDone, in order, after a while."""
        self._calls.append((token, name, argument))
        if len(self._calls) > CALLS_MAX:
            self._world.fail(f"{len(self._calls)} calls wait in {self._process.client}")
        if len(self._calls) == 1:
            self._next_call()

    def _next_call(self) -> None:
        delay_ms = int(self._world.rng.random() * (self._world.options.call_ms_max + 1))
        self._answering = True
        self._process.after(delay_ms, self._answer)

    def hang(self, *, reads_on: bool = False) -> None:
        """From now on it answers no callback and reads nothing (unless `reads_on`), while its consumer's loop lives."""
        self._world.trace(self._process.client, "hangs", "and reads on" if reads_on else "")
        self.hung, self._reads_on = True, reads_on

    def go_on(self) -> None:
        """It works again: it first answers the calls that came while it hung, in their order."""
        self.hung = False
        if self._calls and not self._answering:
            self._next_call()

    @property
    def waiting(self) -> int:
        """How many calls it has not answered."""
        return len(self._calls)

    def _answer(self) -> None:
        self._answering = False
        if self.hung:
            return
        token, name, argument = self._calls.popleft()
        if name == "start":
            self.starts |= dict.fromkeys(argument, argument.number)
            self.replays = {p: r for p, r in self.replays.items() if p not in argument} | self._told
            self._told = {}  # they count for this start only, whether it succeeds or not
        done = CallDone(token, error=RuntimeError("the application cannot start"))
        if not self._raises(name):
            try:
                done = CallDone(token, getattr(self, HANDLERS[name])(argument))
            except ZkcoordError as error:
                done = CallDone(token, error=error)
        self._process.inbox.put(done)
        if self._calls:
            self._next_call()

    def _raises(self, name: str) -> bool:
        world = self._world
        return name == "start" and world.stormy and world.rng.random() < world.options.start_raises_rate

    def _start(self, positions: dict[TopicPartition, int]) -> None:
        for partition in sorted(positions):
            self.positions[partition] = self._committed[partition] = positions[partition]
            self._note("start", partition, positions[partition])

    def _replay(self, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
        for partition, (start, end) in sorted(ranges.items()):
            self._told[partition] = (start, end)
            self._note("replay", partition, start, end)

    def _stop(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        final = {}
        for partition in partitions:
            if partition in self.positions:
                final[partition] = self.positions.pop(partition)
                self._note("stop", partition, final[partition])
        return final

    def _lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self._note("lost", partition, self.positions.pop(partition, -1))

    def _resolve(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        unknown = self.unknown.intersection(partitions)
        if unknown:
            raise UnknownPartitionError(f"Kafka does not know {sorted(unknown)}", unknown)
        found = {p: self._logs.end(p) if self._reset == "latest" else 0 for p in partitions}
        for partition, offset in found.items():
            self._note("reset", partition, offset)
        return found

    def _note(self, event: str, partition: TopicPartition, start: int, end: int = -1) -> None:
        self._world.note(self._process, event, partition, start, end)

    # -- reading

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the log's end; None when it does not read the partition now."""
        if partition not in self.positions or not self.allowed(partition):
            return None
        return self._logs.end(partition) - self.positions[partition]

    def _look_later(self) -> None:
        world = self._world
        delay_ms = 1 + int(world.rng.random() * world.options.read_ms_max)
        self._process.after(min(delay_ms * DRAIN_FACTOR, DRAIN_MS_MAX) if world.draining else delay_ms, self._look_now)

    def _look_now(self) -> None:
        if self.hung and not self._reads_on:
            self._look_later()
        else:
            self._look()

    def _look(self) -> None:
        draining, random, allowed = self._world.draining, self._world.rng.random, self.allowed
        for partition in sorted(self.positions):
            if (draining or random() < 0.5) and allowed(partition):
                self._read(partition, draining=draining)
        if self.commits and (draining or random() < 0.3):
            self._commit_positions()
        self._look_later()

    def _read(self, partition: TopicPartition, *, draining: bool) -> None:
        start, end = self.positions[partition], self._logs.end(partition)
        if start >= end:
            return
        if not draining:
            end = min(end, start + 1 + int(self._world.rng.random() * READ_RECORDS_MAX))
        self.positions[partition] = end
        number = self.starts.get(partition, 0)
        if self._begun.get(partition) != number:
            self._begun[partition] = number
            self.reading(FirstRecords({partition: number}, self._process.clock.now_ms()))
        self._note("read", partition, start, end)

    def _commit_positions(self) -> None:
        """Commit the positions that moved, one commit at a time. After a failed commit the present positions are
        committed."""
        if self._commit is not None:
            if not self._commit.done():
                return
            if self._commit.exception() is None:
                self._committed.update(self._committing)
            self._commit = None
        moved = {p: o for p, o in self.positions.items() if self._committed.get(p) != o and self.allowed(p)}
        if moved:
            self._committing = dict(sorted(moved.items()))
            self._commit = self.commit(dict(self._committing))

    def _request_commit(self, offsets: dict[TopicPartition, int]) -> Future[Any]:
        future: Future[Any] = Future()
        self._process.inbox.put(Request("commit", self.wanted(offsets), future))
        return future

    def wanted(self, offsets: dict[TopicPartition, int]) -> CommitRequest:
        """A commit request that is decided now."""
        return CommitRequest(offsets, {p: self.starts.get(p, 0) for p in offsets})


HANDLERS = {"start": "_start", "replay": "_replay", "stop": "_stop", "lost": "_lost", "reset": "_resolve"}
"""Of each call, the method that answers it."""
