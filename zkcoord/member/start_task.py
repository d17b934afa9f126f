"""How a consumer obeys starts: reads offsets, tells the application, acknowledges; what cannot start is refused there.

Starts that wait one behind the other are obeyed as one: no two commands of a channel name the same partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import BROKER, UNREADABLE_OFFSET
from zkcoord.core.view import Refusal
from zkcoord.errors import CorruptError, UnavailableError, UnknownPartitionError, ZkcoordError
from zkcoord.member.owned_partitions import NOWHERE, Position
from zkcoord.member.session import MemberSession
from zkcoord.member.tasks import TASK, Step
from zkcoord.shell.ports import CallDone, CommitDone, Outcome
from zkcoord.tree import member
from zkcoord.tree.command import decode_command
from zkcoord.tree.member import Held

UNKNOWN_MS = 60_000
"""So long a partition that Kafka does not know may be new, and refusing it is nobody's fault; then somebody must act.
(By then the coordinator has tried it five times; a topic that is gone for good is dropped as long after.)"""

STARTS_MAX = 100
"""Acknowledged in one multi: so deleting them takes little of its size, whatever else it holds."""


def starts_behind(session: MemberSession, first: str, command: Command) -> dict[str, Command]:
    """The starts that wait right behind one (sequence -> start), as far as one acknowledgement has room for them."""
    found: dict[str, Command] = {}
    for sequence in sorted(sequence for sequence in session.commands if sequence > first):
        node = session.commands[sequence]
        try:
            behind = decode_command(node.data) if node is not None else None
        except CorruptError:
            behind = None
        if behind is not None and behind.option is Option.PING:
            continue  # answered by itself, behind nothing
        if behind is None or behind.option is not Option.START_FETCHER:
            break
        if len(found) + 1 == STARTS_MAX:
            break
        found[sequence] = behind
    if not found:
        return found
    named = [p for start in (command, *found.values()) for p in start.ownership or ()]
    room = member.room(session.paths, named) - len(command.ownership or ())
    for sequence, start in list(found.items()):
        room -= len(start.ownership or ())
        if room < 0:
            del found[sequence]
    return found


@dataclass(slots=True)
class _Start:
    """One partition on its way to be started. -1 stands for a version or an offset that nobody knows (yet)."""

    thread: str
    sequence: str  # of its command
    generation: int
    incarnation: int  # of its topic, 0: the command does not say
    owner_version: int = -1  # of the grant; -1 also when it was not granted, or is not any more
    at: Position = NOWHERE  # as read
    first: int = -1  # what the reset policy answered
    told: int = -1  # where the application was told to start
    refused: str = ""  # why it cannot be started

    @property
    def offset(self) -> int:
        """The next offset to read."""
        return self.first if self.at.offset is None else self.at.offset

    def hold(self) -> Held:
        """What is held once the acknowledgement has happened."""
        version = 0 if self.at.version is None else self.at.version + (self.at.offset is None)
        return Held(self.thread, self.owner_version, self.offset, version, self.generation, self.incarnation)


class StartTask:
    """Obey start-fetchers: read offsets, tell the application, acknowledge; what cannot start is refused there."""

    def __init__(self, session: MemberSession, commands: Mapping[str, Command]) -> None:
        """`commands`: sequence -> start, in their order."""
        self.step = Step.READ
        self.in_vain: str | None = None  # why what was acknowledged cannot be read by this registration
        self._session, self._commands = session, dict(commands)
        starts = {
            partition: _Start(thread, sequence, command.generation, command.incarnations.get(partition.topic, 0))
            for sequence, command in commands.items()
            for partition, thread in (command.ownership or {}).items()
        }
        self._starts = dict(sorted(starts.items()))
        self._granted: dict[TopicPartition, _Start] = {}  # those of them whose owner is this consumer, as read last
        self._asked: tuple[str, tuple[TopicPartition, ...]] = ("", ())
        self._number = 0  # of the start that the application was asked for last
        self._holds: dict[TopicPartition, Held] = {}
        if session.holdings.refused:
            for partition in self._starts:
                session.holdings.refused.pop(partition, None)
        for command in commands.values():
            session.holdings.hand_on(command)
        self._missing_parents: list[str] = []
        self._begin_lookup({p: version for c in commands.values() for p, version in c.owner_versions.items()})

    def _begin_lookup(self, owner_versions: Mapping[TopicPartition, int]) -> None:
        """Look up offsets, and owners but those whose versions the commands say: as granted, if nobody edited them."""
        self._looked = False
        self._given_versions = owner_versions
        self._lookup = self._session.lookup(TASK)
        self._lookup.begin(self._starts, known_owners=owner_versions.keys(), parents=True)
        left = self._session.holdings.left_over() - self._starts.keys()
        if left:
            self._lookup.begin(left)

    def _end_lookup(self) -> None:
        """Keep what was read and follow it no more: the own acknowledgement would have it read again."""
        lookup, given = self._lookup, self._given_versions
        for partition, start in self._starts.items():
            start.owner_version = given.get(partition, -1)
            if start.owner_version < 0:
                thread, version = lookup.owner(partition)
                start.owner_version = version if thread == start.thread else -1
            start.at = lookup.position(partition)
        self._granted = {p: start for p, start in self._starts.items() if start.owner_version >= 0}
        without = [p for p, start in self._granted.items() if start.at.offset is None]
        self._missing_parents = lookup.missing_parents(without)
        for partition in without:
            if not self._granted[partition].at.problem:  # its topic was dropped, or its offset: that ends it
                self._session.holdings.batch.pop(partition, None)
        self._session.holdings.forget_passed(lookup, self._starts)
        lookup.end()
        self._looked = True

    def partitions(self) -> set[TopicPartition]:
        """What this task is about."""
        return set(self._starts)

    def advance(self) -> None:
        """Do what can be done now."""
        if not self._looked:
            if not self._lookup.clean or (self.step is Step.VERIFY and not self._session.channel_clean):
                return
            self._end_lookup()
            if self.step is Step.VERIFY and not self._standing():
                self._acknowledged({p: start for p, start in self._granted.items() if not start.refused})
                return
            self.step = Step.READ
        if self.step is Step.READ:
            self._read()
        if self.step is Step.WRITE and self._session.may_write:
            self._write()

    def _standing(self) -> list[str]:
        """The commands that are not acknowledged yet. Meaningful only while `channel_clean`."""
        return [sequence for sequence in self._commands if not self._session.acknowledged(sequence)]

    def _acknowledged(self, starts: Mapping[TopicPartition, _Start]) -> None:
        """It happened, as was seen afterwards. What has no offset any more cannot be read: only a start can give it
        one, and nobody sends another to who owns it."""
        without = [str(p) for p, start in starts.items() if start.offset < 0]
        if without:
            self.in_vain = f"somebody deleted the offsets of {', '.join(without[:5])}, or nobody can parse them"
            self.step = Step.DONE
        else:
            self._done({p: start.hold() for p, start in starts.items()})

    def _read(self) -> None:
        for start in self._granted.values():
            if start.at.problem:
                start.refused = f"{UNREADABLE_OFFSET}: {start.at.problem}"
        able = {p: start for p, start in self._granted.items() if not start.refused}
        unknown = tuple(p for p, start in able.items() if start.offset < 0)
        if unknown:
            self._asked = ("reset", unknown)
            self.step = Step.CALL
            self._session.call("reset", unknown)
            return
        running = self._session.holdings.running
        starting = {p: s.offset for p, s in able.items() if p not in running or s.told not in (-1, s.offset)}
        if starting and not self._session.leased:
            return  # the application would be told that it is lost, at once: the next lease has it started
        if starting:
            for partition, offset in starting.items():
                able[partition].told = offset
            self._asked = ("start", tuple(starting))
            self.step = Step.CALL
            numbers = {partition: able[partition].incarnation for partition in starting}
            self._number = self._session.call_start(starting, numbers)
            return
        self.step = Step.WRITE

    def called(self, done: CallDone) -> None:
        """The application answered: with offsets for a reset, with nothing or an error for a start."""
        name, partitions = self._asked
        if done.error is not None:
            self._refuse(name, partitions, done.error)
        elif name == "reset":
            for partition in partitions:
                start = self._starts[partition]
                start.first = done.value.get(partition, -1)
                if start.first < 0:
                    start.refused = "reset: gave no offset"
        else:
            self._session.holdings.run(partitions, self._number)
        self.step = Step.READ

    def _refuse(self, name: str, partitions: Collection[TopicPartition], error: BaseException) -> None:
        """These cannot be started; of what Kafka does not know only that, the rest is asked for without it."""
        kind = "" if isinstance(error, ZkcoordError) else f"{type(error).__name__}: "
        reason = f"{name}: {kind}{error}"
        away = isinstance(error, UnavailableError)  # Kafka: nobody's fault, and tried again here
        unknown = set[TopicPartition]()
        if isinstance(error, UnknownPartitionError):
            unknown = {p for p in partitions if p in error.partitions} or set(partitions)
        for partition in unknown or partitions:
            new = partition in unknown and self._session.unknown_for_ms(partition) < UNKNOWN_MS
            self._starts[partition].refused = f"{BROKER}: {reason}" if away or new else reason

    def _write(self) -> None:
        session = self._session
        self._holds = {p: start.hold() for p, start in self._granted.items() if not start.refused}
        refused = {p: start for p, start in self._starts.items() if start.refused}
        for partition, start in refused.items():
            session.holdings.refused[partition] = Refusal(
                generation=start.generation, reason=start.refused, sequence=start.sequence
            )
        starts = self._granted
        first = {p: (starts[p].first, starts[p].at.version) for p in self._holds if starts[p].at.offset is None}
        free = {p: start.owner_version for p, start in refused.items() if start.owner_version >= 0}
        done = session.acknowledgement(
            self._standing() or list(self._commands), {**session.holdings.held, **self._holds}
        )
        self.step = Step.SENT
        session.write("task", [member.start(session.paths, first, self._missing_parents if first else (), free, done)])

    def written(self, outcomes: list[CommitDone]) -> None:
        """The acknowledgement was answered."""
        if all(done.outcome is Outcome.COMMITTED for done in outcomes):
            self._done(self._holds)
        else:
            self.step = Step.VERIFY
            self._begin_lookup({})

    def _done(self, holds: Mapping[TopicPartition, Held]) -> None:
        holdings, starts = self._session.holdings, self._starts
        holdings.hold(holds)
        self._session.known(holds)
        running = holdings.running
        moved = [p for p, mine in holds.items() if starts[p].told not in (-1, mine.offset) and p in running]
        if moved:  # somebody else set the offset right behind the acknowledgement: it is revived from there
            self._session.stop_running(moved)
        gone = [p for p in starts if p not in holds and p in running and p not in holdings.held]
        if gone:  # told to start, and taken away before the acknowledgement: a topic that was dropped
            self._session.stop_running(gone)
        self.step = Step.DONE
        started: dict[int, dict[TopicPartition, int]] = {}  # by generation
        for partition, mine in holds.items():
            started.setdefault(mine.generation, {})[partition] = mine.offset
        for generation, offsets in started.items():
            self._session.fetch_started(offsets, generation)
        refused: dict[str, list[TopicPartition]] = {}  # by reason: often one is that of them all
        for partition, start in starts.items():
            if start.refused:
                refused.setdefault(start.refused, []).append(partition)
        for why, partitions in refused.items():
            self._session.event("start_refused", {"partitions": partitions, "why": why, "level": "warning"})
