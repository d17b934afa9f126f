"""Simulated programs: a user's threads around the product's real public classes (`threads.py`).

A program notes in the world's journal what its user code does with records: `handed` (user code was given the records),
`processed` (it is done with them), `broken` (it was told to end, or failed, and is not done), `told` (it was told that
it may not finish). The checkers of `tests/sim/records.py` use only these lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from tests.sim.actors import GROUP
from tests.sim.application import Logs
from tests.sim.kafka import SimKafka
from tests.sim.offset_log import OffsetLog
from tests.sim.process import NEVER_MS, SimProcess
from tests.sim.seam import SLOW, UNTRACED, traced_files
from tests.sim.sync import SimCondition
from tests.sim.threads import Crew
from tests.sim.world import World
from zkcoord.consumer import Consumer
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import ZkcoordError

ZOOKEEPER = "zk:2181"
LINES_MAX = (0, 10, 50, 300)
"""After how many lines, at most, a thread loses the baton: one is drawn for each process."""

HUNG_MS_MAX = 40_000
EXIT_SHARE = 0.2
"""Of the starts that fail: those in which the program wants to exit."""

Positions = Mapping[TopicPartition, int]


class ProgramProcess(SimProcess):
    """A process whose actor is a program with threads."""

    crew: Crew
    kafka: SimKafka

    def __init__(
        self, world: World, name: str, factory: Any, crews: list[Crew], logs: Logs, log: OffsetLog | None = None
    ) -> None:
        super().__init__(world, name, factory)
        self._crews, self._logs, self._log = crews, logs, log
        self._dying = False
        self.stopped_ms = -1  # when its last pause by a signal ended
        self.disk: Any = None  # the program's files, which outlive the process

    def start(self) -> None:
        """A new incarnation, with new threads."""
        lines_max = LINES_MAX[int(self.world.rng.random() * len(LINES_MAX))]
        self.crew = Crew(self, traced_files(), lines_max, UNTRACED, SLOW)
        self._crews.append(self.crew)
        self.kafka = SimKafka(self, self._logs, self._log)
        self._dying = False
        super().start()

    def step(self) -> None:
        """Let one thread run until it waits."""
        self.wake_ms = NEVER_MS
        wake_ms = self.crew.step()
        if self._dying:
            self._dying = False
            self.kill()
        if wake_ms is not None and self.running:
            self.wake_ms = self.clock.world_ms(wake_ms)

    def pause(self) -> None:
        """SIGSTOP. Threads first run on to their waits."""
        if self.running and not self.paused:
            self.crew.to_their_waits()
            self.wake_ms = self.world.now_ms  # waiting threads may now wait for another time
            super().pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.paused:
            self.stopped_ms = self.world.now_ms
        super().resume()

    def kill(self, *, exact: bool = False) -> None:
        """SIGKILL. If one of its own threads calls this, the process dies when that thread has passed the baton on."""
        if self.crew.current is not None:
            self._dying = True
            return
        program = self.actor
        super().kill(exact=exact)
        if isinstance(program, Program):
            program.gone = True
        self.crew.kill()


class Program(ABC):
    """The common part of all programs: a main thread, a way to be asked to leave, and a journal."""

    def __init__(
        self, process: SimProcess, logs: Logs, topics: Mapping[str, int], *, hang_rate: float = 0.0, **settings: Any
    ) -> None:
        assert isinstance(process, ProgramProcess)
        self.process, self.world, self.logs = process, process.world, logs
        self.crew = process.crew
        self.topics = topics
        self.settings = {"session_timeout_ms": self.world.options.session_timeout_ms, **settings}
        self.member: Consumer | None = None  # the membership, once it exists
        self.leaving = False
        self.gone = self.exited = False
        self.hang_rate, self.hung_ms, self.hangs = hang_rate, -1, 0
        process.group = GROUP
        process.application = self
        self.threads = [self.crew.spawn(self._main, "main")]

    # for the world

    @property
    def loop(self) -> Program:
        """The program itself, which says whether it has left."""
        return self

    @property
    def finished(self) -> bool:
        """True when it was asked to leave and has left."""
        return self.leaving and not any(thread.is_alive() for thread in self.threads)

    patience_ms = NEVER_MS
    """So long a stop waits for its user code, at least."""

    @property
    def waiting(self) -> int:
        """The number of waiting calls, as a simulated application tells it."""
        return 0

    def lag(self, partition: TopicPartition) -> int | None:
        """None when it may not read the partition, else 0. (The journal tells whether everything was processed.)"""
        return 0 if self.member is not None and partition in self.member._role.readable else None

    def leave(self) -> None:
        """Ask the program to leave, as a signal handler or another thread does."""
        if not self.leaving:
            self.leaving = True
            self.threads.append(self.crew.spawn(self.stop, "stopper"))

    @abstractmethod
    def stop(self) -> None:
        """Stop the program; called on a thread of its own."""

    @abstractmethod
    def run(self) -> None:
        """The program."""

    def _main(self) -> None:
        try:
            self.run()
        except SystemExit:
            self.exited = True
        if not self.leaving:
            self.world.trace(self.process.client, "ends by itself")
            self.world.at(self.world.now_ms, self._crash)

    def _crash(self) -> None:
        if not self.gone and self.process.actor is self:
            self.world.crash(self.process.name)

    # for its threads

    def note(self, event: str, partition: TopicPartition, start: int, end: int = -1) -> None:
        """Add a line to the journal."""
        if not self.crew.dead:
            self.world.note(self.process, event, partition, start, end)

    def draw(self) -> float:
        """A number from 0 to 1."""
        return self.world.rng.random()

    def nap(self, ms_max: int) -> None:
        """Wait for a while."""
        self.crew.sleep(int(self.draw() * (ms_max + 1)) / 1000)

    def rest(self) -> None:
        """Wait between two looks for records."""
        self.crew.sleep((1 + int(self.draw() * self.world.options.read_ms_max)) / 1000)
        if self.world.draining:
            self.crew.sleep(self.world.options.read_ms_max / 250)

    def work(self) -> None:
        """User code works on records. A program that hangs takes very long."""
        if self.world.stormy and self.draw() < self.hang_rate:
            self.hangs += 1
            self.hung_ms = self.world.now_ms + int(self.draw() * HUNG_MS_MAX)
            self.world.trace(self.process.client, "hangs until", self.hung_ms)
            self.crew.sleep((self.hung_ms - self.world.now_ms) / 1000)
        elif self.draw() < 0.3:
            self.nap(self.world.options.read_ms_max)

    def share(self, start: int, end: int, records_max: int) -> int:
        """The end of a part of a log from `start`, of at most `records_max` records."""
        return end if self.world.draining else min(end, start + 1 + int(self.draw() * records_max))

    def handed(self, partition: TopicPartition, start: int, end: int) -> None:
        """User code was given these records."""
        self.note("handed", partition, start, end)

    def processed(self, partition: TopicPartition, start: int, end: int) -> None:
        """User code is done with these records."""
        self.note("processed", partition, start, end)


class PlainProgram(Program):
    """A program around `zkcoord.Consumer`: one thread reads and commits; the callbacks run on the membership's worker.

    `on_lost` tells user code that reads that it may not finish. `on_stop` waits until no records of the partition are
    in work.
    """

    def run(self) -> None:
        """Read until the program is told to leave, or the membership has ended."""
        self.changed = SimCondition()
        self.positions: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}  # partition -> the number of the last start that named it
        self.committed: dict[TopicPartition, int] = {}
        self.in_work: dict[TopicPartition, tuple[int, int]] = {}
        self.ends: dict[TopicPartition, int] = {}  # partition -> the end of what was processed since the start
        self.member = Consumer(
            ZOOKEEPER,
            GROUP,
            dict(self.topics),
            on_start=self._on_start,
            on_stop=self._on_stop,
            on_lost=self._on_lost,
            reset=self._reset,
            **self.settings,
        )
        self.member.start()
        while not self.leaving:
            self.rest()
            self._look(self.member)
            if self.member.error is not None:
                break
        self.member.stop()

    def stop(self) -> None:
        """Called on another thread."""
        if self.member is not None:
            self.member.stop()

    # -- on the worker

    def _on_start(self, positions: Starting) -> None:
        self.starts |= dict.fromkeys(positions, positions.number)
        self.nap(self.world.options.call_ms_max)
        options = self.world.options
        if self.world.stormy and self.draw() < options.start_raises_rate:
            raise SystemExit(3) if self.draw() < EXIT_SHARE else RuntimeError("the program cannot start")
        for partition, position in sorted(positions.items()):
            self.positions[partition] = self.committed[partition] = position
            self.ends[partition] = position
            self.note("start", partition, position)

    def _on_stop(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        self.nap(self.world.options.call_ms_max)
        with self.changed:
            final = {p: self.positions.pop(p) for p in partitions if p in self.positions}
            self.changed.wait_for(lambda: self.in_work.keys().isdisjoint(partitions))
            for partition in final:
                if partition in self.ends:
                    final[partition] = max(final[partition], self.ends[partition])
                self.note("stop", partition, final[partition])
        return final

    def _on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)
            self.note("lost", partition, -1)
            if partition in self.in_work:
                self.note("told", partition, *self.in_work[partition])
        self.nap(self.world.options.call_ms_max)

    def _reset(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        self.nap(self.world.options.call_ms_max)
        return self.process.kafka.client().reset_positions(partitions, "latest")

    # -- on the main thread

    def _look(self, member: Consumer) -> None:
        for partition in sorted(self.positions):
            if (self.world.draining or self.draw() < 0.5) and partition in self.positions and member.allowed(partition):
                self._read(partition)
        if self.world.draining or self.draw() < 0.3:
            self._commit(member)

    def _read(self, partition: TopicPartition) -> None:
        start, log_end = self.positions.get(partition), self.logs.end(partition)
        if start is None or start >= log_end:  # None: a stop came while the program asked whether it may read on
            return
        count, end = self.starts[partition], self.share(start, log_end, 500)
        self.in_work[partition] = start, end
        self.handed(partition, start, end)
        self.work()
        with self.changed:
            del self.in_work[partition]
            held = self.starts[partition] == count
            if held:
                self.ends[partition] = end
            self.note("processed", partition, start, end)
            if held and partition in self.positions:
                self.positions[partition] = end
            self.changed.notify_all()

    def _commit(self, member: Consumer) -> None:
        moved = {p: o for p, o in sorted(self.positions.items()) if self.committed.get(p) != o and member.allowed(p)}
        starts = {p: self.starts[p] for p in moved}
        if not moved:
            return
        try:
            member.commit(moved, starts)
        except ZkcoordError:
            return
        for partition, offset in moved.items():
            if self.starts[partition] == starts[partition]:
                self.committed[partition] = offset


class Programs:
    """Creates processes in a world, with programs of one kind."""

    def __init__(self, world: World, logs: Logs, topics: Mapping[str, int]) -> None:
        self.world, self.logs, self.topics = world, logs, topics
        self.crews: list[Crew] = []
        self.log: OffsetLog | None = None  # the group's commits in Kafka

    def spawn(self, name: str, kind: Callable[..., Program], **settings: Any) -> ProgramProcess:
        """One more process, whose program is of this kind."""

        def factory(process: SimProcess) -> Any:
            return kind(process, self.logs, self.topics, **settings)

        process = ProgramProcess(self.world, name, factory, self.crews, self.logs, self.log)
        self.world.processes[name] = process
        process.start()
        return process
