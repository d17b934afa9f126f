"""The checkers of programs compare the records that user code works on (`tests/sim/programs.py`) with the holders of
partitions.

One reader: user code is handed records only by the consumer that holds their partition, and only if no user code of
another consumer still works on records of that partition. The other one may be late only if it was told to end, is
dead, was stopped by a signal, has used all the time that a stop waits for it, or hangs and its registration is gone.

At least once: a range that is handed over begins where the processed records end, and no commit goes beyond them
(`tests/sim/checkers.py`). After a calm everything up to the logs' ends was processed.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.application import Logs
from tests.sim.batches import Sink
from tests.sim.checkers import Complaints
from tests.sim.field import Field, consumer_of
from tests.sim.programs import Program, ProgramProcess
from tests.sim.world import Entry, World
from zkcoord.core.model import TopicPartition

Incarnation = tuple[int, int, int]
"""Of a topic: of its logs, as the group knows it, of repaired positions."""


class Work(NamedTuple):
    """Records that user code works on now."""

    client: str
    partition: TopicPartition
    start: int
    end: int
    since_ms: int
    incarnation: Incarnation
    again: bool = False  # a query repeats a batch of its checkpoint, whoever holds the partition
    consumer: str = ""  # the registration by which it was handed over; its program may have another one now


class Records:
    """The records that user code works on now, from the programs' journal."""

    def __init__(self, world: World, field: Field, logs: Logs, sink: Sink | None = None) -> None:
        """`sink`: a sink keyed by ranges. Then each range must be processed as it was announced, any number of
        times."""
        self.sink = sink
        self._world, self._field, self._logs = world, field, logs
        self.work: dict[tuple[str, TopicPartition], list[Work]] = {}
        self.told: list[Work] = []
        self.overlaps = 0  # excused overlaps
        self.handed = self.again = 0
        self._planned: dict[tuple[str, TopicPartition, int, int], Incarnation] = {}  # ranges that a process was handed
        world.on_journal.append(self.take)
        world.rest_checks.append(lambda: list(self.complete()))

    def take(self, entry: Entry) -> None:
        """Take a line of the journal."""
        if entry.event == "reset":
            self._note_repair(entry)
        if entry.event not in ("handed", "again", "processed", "broken", "told"):
            return
        if entry.event == "handed":
            for complaint in self.check(entry):
                self._world.fail(complaint)
        key, field = (entry.group, entry.partition), self._field
        topic = entry.partition.topic
        known = field.incarnations.get((entry.group, topic), 0)
        incarnation = self._logs.births[topic], known, field.repairs[key]
        works = self.work.setdefault(key, [])
        if entry.event == "handed":
            self.handed += 1
            holding = field.holdings.get(key)
            holder = holding.consumer if holding is not None else ""
            works.append(Work(*_of(entry), entry.time_ms, incarnation, consumer=holder))
            self._planned[entry.process, entry.partition, entry.start, entry.end] = incarnation
            return
        if entry.event == "again":
            self._take_again(entry)
            return
        mine = [each for each in works if each[:4] == _of(entry)]
        if mine and entry.event == "told":
            self.told.append(mine[0])
        elif mine and entry.event == "processed":
            if mine[0].incarnation[1:] == incarnation[1:] and key in field.covered:
                field.covered[key] = max(field.covered[key], entry.end)
            if self.sink is not None:
                for complaint in self.sink.write(entry, mine[0].incarnation):
                    self._world.fail(complaint)
        if entry.event != "told":
            self.work[key] = [each for each in works if each not in mine]
            self.told = [each for each in self.told if each not in mine]

    def _take_again(self, entry: Entry) -> None:
        """A repeated range belongs to the incarnation of the topic for which it was planned. (A range that no process
        was handed belongs to none.)"""
        incarnation = self._planned.get((entry.process, entry.partition, entry.start, entry.end))
        if incarnation is not None:
            self.again += 1
            work = Work(*_of(entry), entry.time_ms, incarnation, again=True)
            self.work.setdefault((entry.group, entry.partition), []).append(work)

    def _note_repair(self, entry: Entry) -> None:
        """A position is behind the log's end, and the reset policy says where to go on."""
        field, key = self._field, (entry.group, entry.partition)
        if max(field.offsets.get(key, 0), field.covered.get(key, 0)) > self._logs.end(entry.partition):
            field.repairs[key] += 1
            field.may_go_back.add(key)
            field.left_behind.setdefault(key, set()).add(field.offsets.get(key, 0))
            field.covered[key] = entry.start

    def check(self, entry: Entry) -> Complaints:
        """Complaints about records that are handed to user code now."""
        field, key = self._field, (entry.group, entry.partition)
        holding = field.holdings.get(key)
        if holding is None or holding.client != entry.client:
            holder = holding.client if holding else "nobody"
            yield f"{entry.client} is handed records of {entry.partition}, which {holder} holds"
        else:
            gone = field.gone.get((entry.group, holding.consumer))
            grace_ms = gone.timeout_ms if gone is not None and gone.how in ("evicted", "removed") else 0
            if gone is not None and entry.time_ms > gone.time_ms + grace_ms:
                late_ms = entry.time_ms - gone.time_ms
                yield f"{entry.client} is handed {entry.partition} {late_ms} ms after its registration ended"
        for work in self.work.get(key, ()):
            if work.client == entry.client or self._excused(work):
                continue
            yield f"{entry.client} is handed {entry.partition} {entry.start}..{entry.end} while {work} is in work"
        covered = field.covered.get(key)
        if covered is None and key not in field.removed:
            yield f"{entry.client} is handed {entry.partition} before its first offset is written"
        elif covered is not None and entry.start > covered and entry.start not in field.left_behind.get(key, ()):
            # (an offset that a repair left behind may be read on if the log has grown before the reset was done)
            yield f"{entry.client} is handed {entry.partition} from {entry.start}: from {covered} on they are skipped"

    def _excused(self, work: Work) -> bool:
        """True if another's work is excused: its program was told to end, or cannot end it, being dead, stopped, or
        hung."""
        if work in self.told or work.again:
            self.overlaps += 1
            return True
        process = self._world.processes[work.client.partition("#")[0]]
        assert isinstance(process, ProgramProcess)
        program = process.application
        stopped = process.paused or process.stopped_ms >= work.since_ms
        if process.client != work.client or not process.running or stopped or not isinstance(program, Program):
            self.overlaps += 1
            return True
        registered = any(consumer == work.consumer for _, consumer in self._field.registrations)
        hung = program.hung_ms >= work.since_ms and not registered
        excused = hung or self._world.now_ms - work.since_ms >= program.patience_ms
        self.overlaps += excused
        return excused

    def complete(self) -> Complaints:
        """After a calm: everything up to the logs' ends was processed by somebody, and programs that have left are no
        members."""
        field = self._field
        members = {made.session.client for made in field.registrations.values()}
        for process in self._world.processes.values():
            program = process.application
            if isinstance(program, Program) and program.finished and process.client in members:
                yield f"{process.client} has left, and is a member"
        for (group, partition), covered in sorted(field.covered.items()):
            end = self._logs.end(partition)
            owner = consumer_of(field.owners.get((group, partition), ""))
            if (group, owner) in field.registrations and covered < end:
                yield f"{partition} of {group} is processed up to {covered}, its log ends at {end}"


def _of(entry: Entry) -> tuple[str, TopicPartition, int, int]:
    """The client, partition and range of a line of the journal."""
    return entry.client, entry.partition, entry.start, entry.end
