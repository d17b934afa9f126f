"""How a consumer obeys a command: reads what it needs, asks the application, and acknowledges in one multi.

Starts that wait one behind the other are obeyed as one: no two commands of a channel name the same partition.

Each task is advanced until it is done; it never trusts an outcome. After a refused or unknown write it reads the nodes
again and decides again: a command that is gone was acknowledged, one that stands was not. A partition is the
application's exactly from the acknowledgement of its start to the multi that releases it (rule 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import BROKER
from zkcoord.core.view import Refusal
from zkcoord.errors import CorruptError, UnavailableError
from zkcoord.shell.desk import Desk
from zkcoord.shell.holdings import Lookup, Position
from zkcoord.shell.ports import CallDone, CommitDone, Outcome
from zkcoord.tree import member
from zkcoord.tree.command import Command, Option, decode_command
from zkcoord.tree.member import Held
from zkcoord.tree.writes import Transaction

TASK = "task"  # the scope of what a task looks up

STARTS_MAX = 100
"""Acknowledged in one multi: so deleting them takes little of its size, whatever else it holds."""


class Step(Enum):
    """Where a task stands."""

    READ = "read"  # owners and offsets are being read
    CALL = "call"  # the application is at it
    WRITE = "write"  # ready to send
    SENT = "sent"  # multis under way
    VERIFY = "verify"  # an outcome was refused or unknown: reading again
    DONE = "done"


class Task(Protocol):
    """Commands being obeyed."""

    step: Step

    def advance(self) -> None: ...

    def called(self, done: CallDone) -> None: ...

    def written(self, outcomes: list[CommitDone]) -> None: ...

    def partitions(self) -> set[TopicPartition]: ...


def starts_behind(desk: Desk, first: str, command: Command) -> dict[str, Command]:
    """The starts that wait right behind one (sequence -> start), as far as one acknowledgement has room for them."""
    found: dict[str, Command] = {}
    for sequence in sorted(sequence for sequence in desk.commands if sequence > first):
        node = desk.commands[sequence]
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
    room = member.room(desk.paths, named) - len(command.ownership or ())
    for sequence, start in list(found.items()):
        room -= len(start.ownership or ())
        if room < 0:
            del found[sequence]
    return found


class StartTask:
    """Obey start-fetchers: read offsets, tell the application, acknowledge; what cannot start is refused there."""

    def __init__(self, desk: Desk, commands: Mapping[str, Command]) -> None:
        """`commands`: sequence -> start, in their order."""
        self.step = Step.READ
        self._desk, self._commands = desk, dict(commands)
        self._sequences = {p: sequence for sequence, command in commands.items() for p in command.ownership or ()}
        self._threads = {p: thread for c in commands.values() for p, thread in (c.ownership or {}).items()}
        self._first: dict[TopicPartition, int] = {}  # what the reset policy answered
        self._refused: dict[TopicPartition, str] = {}
        self._told: dict[TopicPartition, int] = {}  # where the application was told to start
        self._asked: tuple[str, tuple[TopicPartition, ...]] = ("", ())
        self._holds: dict[TopicPartition, Held] = {}
        for partition in self._threads:
            desk.holdings.refused.pop(partition, None)
        for command in commands.values():
            desk.holdings.hand_on(command)
        self._owner_versions: dict[TopicPartition, int] = {}  # of what is granted; below: as read, in order
        self._positions: dict[TopicPartition, Position] = {}
        self._missing_parents: list[str] = []
        self._begin_lookup({p: version for c in commands.values() for p, version in c.owner_versions.items()})

    def _begin_lookup(self, owner_versions: Mapping[TopicPartition, int]) -> None:
        """Look up offsets, and owners but those whose versions the commands say: as granted, if nobody edited them."""
        self._looked = False
        self._given_versions = owner_versions
        self._lookup = self._desk.lookup(TASK)
        self._lookup.begin(self._threads, known_owners=owner_versions.keys(), parents=True)
        left = self._desk.holdings.left_over() - self._threads.keys()
        if left:
            self._lookup.begin(left)

    def _end_lookup(self) -> None:
        """Keep what was read and follow it no more: the own acknowledgement would have it read again."""
        lookup, given = self._lookup, self._given_versions
        owners = {p: lookup.owner(p) for p in self._threads if p not in given}
        read = {p: version for p, (thread, version) in owners.items() if thread == self._threads[p]}
        self._owner_versions = dict(sorted({**given, **read}.items()))
        self._positions = {p: lookup.position(p) for p in self._owner_versions}
        self._missing_parents = lookup.missing_parents(p for p, at in self._positions.items() if at.offset is None)
        for partition in [p for p, at in self._positions.items() if at.offset is None and not at.problem]:
            self._desk.holdings.batch.pop(partition, None)  # its topic was dropped, or its offset: that ends it
        self._desk.holdings.forget_passed(lookup, self._threads)
        lookup.end()
        self._looked = True

    def partitions(self) -> set[TopicPartition]:
        """What this task is about."""
        return set(self._threads)

    def advance(self) -> None:
        """Do what can be done now."""
        if not self._looked:
            if not self._lookup.clean or (self.step is Step.VERIFY and not self._desk.channel_clean):
                return
            self._end_lookup()
            if self.step is Step.VERIFY and not self._standing():
                self._done({p: self._hold(p) for p in self._positions if p not in self._refused})
                return
            self.step = Step.READ
        if self.step is Step.READ:
            self._read()
        if self.step is Step.WRITE and self._desk.may_write:
            self._write()

    def _standing(self) -> list[str]:
        """The commands that are not acknowledged yet. Meaningful only while `channel_clean`."""
        return [sequence for sequence in self._commands if not self._desk.acknowledged(sequence)]

    def _read(self) -> None:
        positions = self._positions
        self._refused.update({p: at.problem for p, at in positions.items() if at.problem})
        unknown = [
            p for p, at in positions.items() if at.offset is None and p not in self._first and p not in self._refused
        ]
        if unknown:
            self._asked = ("reset", tuple(unknown))
            self.step = Step.CALL
            self._desk.call("reset", tuple(unknown))
            return
        starting = {
            p: self._first[p] if at.offset is None else at.offset
            for p, at in positions.items()
            if p not in self._refused
        }
        running = self._desk.holdings.running
        starting = {p: at for p, at in starting.items() if p not in running or self._told.get(p, at) != at}
        if starting:
            self._told.update(starting)
            self._asked = ("start", tuple(starting))
            self.step = Step.CALL
            self._desk.call_start(starting)
            return
        self.step = Step.WRITE

    def called(self, done: CallDone) -> None:
        """The application answered: with offsets for a reset, with nothing or an error for a start."""
        name, partitions = self._asked
        if done.error is not None:
            reason = f"{name}: {type(done.error).__name__}: {done.error}"
            if isinstance(done.error, UnavailableError):  # Kafka is away: nobody's fault, and tried again here
                reason = f"{BROKER}: {reason}"
            self._refused.update(dict.fromkeys(partitions, reason))
        elif name == "reset":
            self._first.update({p: done.value[p] for p in partitions if p in done.value})
            self._refused.update({p: "reset: gave no offset" for p in partitions if p not in done.value})
        else:
            self._desk.holdings.running.update(partitions)
        self.step = Step.READ

    def _hold(self, partition: TopicPartition) -> Held:
        at = self._positions[partition]
        return Held(
            thread=self._threads[partition],
            owner_version=self._owner_versions[partition],
            offset=self._first[partition] if at.offset is None else at.offset,
            offset_version=0 if at.version is None else at.version + (at.offset is None),
            generation=self._generation(partition),
            incarnation=self._commands[self._sequences[partition]].incarnations.get(partition.topic, 0),
        )

    def _generation(self, partition: TopicPartition) -> int:
        return self._commands[self._sequences[partition]].generation

    def _write(self) -> None:
        desk = self._desk
        self._holds = {p: self._hold(p) for p in self._positions if p not in self._refused}
        for partition, reason in self._refused.items():
            desk.holdings.refused[partition] = Refusal(
                generation=self._generation(partition), reason=reason, sequence=self._sequences[partition]
            )
        unset = {p: self._positions[p].version for p in self._holds if self._positions[p].offset is None}
        first = {p: (self._first[p], version) for p, version in unset.items()}
        refused = {p: version for p, version in self._owner_versions.items() if p in self._refused}
        done = desk.acknowledgement(self._standing() or list(self._commands), {**desk.holdings.held, **self._holds})
        self.step = Step.SENT
        desk.write("task", [member.start(desk.paths, first, self._missing_parents if first else (), refused, done)])

    def written(self, outcomes: list[CommitDone]) -> None:
        """The acknowledgement was answered."""
        if all(done.outcome is Outcome.COMMITTED for done in outcomes):
            self._done(self._holds)
        else:
            self.step = Step.VERIFY
            self._begin_lookup({})

    def _done(self, holds: Mapping[TopicPartition, Held]) -> None:
        holdings = self._desk.holdings
        holdings.held.update(holds)
        moved = [
            p for p, mine in holds.items() if p in holdings.running and self._told.get(p, mine.offset) != mine.offset
        ]
        if moved:  # somebody else set the offset right behind the acknowledgement: it is revived from there
            self._desk.stop_running(moved)
        gone = [p for p in self._threads if p in holdings.running and p not in holdings.held]
        if gone:  # told to start, and taken away before the acknowledgement: a topic that was dropped
            holdings.running.difference_update(gone)
            self._desk.call("lost", tuple(sorted(gone)))
        self.step = Step.DONE
        started: dict[int, dict[TopicPartition, int]] = {}  # by generation
        for partition, mine in holds.items():
            started.setdefault(mine.generation, {})[partition] = mine.offset
        for generation, offsets in started.items():
            self._desk.fetch_started(offsets, generation)
        for partition, reason in sorted(self._refused.items()):
            self._desk.event("start_refused", {"partitions": [partition], "why": reason, "level": "warning"})


class StopTask:
    """Obey a stop-fetcher, or leave: the application stops, then offsets and releases, then the command is deleted.

    What the application has stopped while it is still at the rest is released at once: the command stands on.
    """

    def __init__(self, desk: Desk, sequence: str | None, named: set[TopicPartition] | None) -> None:
        """`sequence` None: no command asked for it (leaving); `named` None: everything that is held."""
        self.sequence = sequence
        self.step = Step.CALL
        self._desk = desk
        held = desk.holdings.held
        self._left = {p for p in held if named is None or p in named}
        self._early: set[TopicPartition] = set()  # of these: stopped already, in the middle of the call
        self._sent: set[TopicPartition] = set()  # what the multis under way release
        self._answered = self._last = False  # the application; the multis under way acknowledge
        self._finals: dict[TopicPartition, int] = {}
        self._lookup: Lookup | None = None
        running = tuple(sorted(self._left & desk.holdings.running))
        if running:
            desk.call("stop", running)
        else:
            self.step, self._answered = Step.WRITE, True

    def partitions(self) -> set[TopicPartition]:
        """What this task is about."""
        return set(self._left)

    def called(self, done: CallDone) -> None:
        """The application stopped, all or a part, with final offsets; one that raised keeps what was committed."""
        running = self._desk.holdings.running
        stopped, offsets = done.value if done.part else (self._left, done.value)
        stopped = self._left.intersection(stopped)
        if done.part:
            stopped &= running
            self._early |= stopped
        else:
            self._answered = True
        running.difference_update(stopped)
        if done.error is not None:
            why = f"{type(done.error).__name__}: {done.error}"
            self._desk.event("stop_failed", {"partitions": sorted(self._left), "why": why, "level": "warning"})
        self._finals |= {p: offset for p, offset in dict(offsets or {}).items() if p in stopped}
        self._go_on()

    def _go_on(self) -> None:
        """What comes next while nothing is under way. Leaving, all is released together: the session's end tells."""
        if self.step in (Step.CALL, Step.WRITE):
            early = bool(self._early) and self.sequence is not None
            self.step = Step.WRITE if self._answered or early else Step.CALL

    def advance(self) -> None:
        """Do what can be done now."""
        if self.step is Step.VERIFY and self._lookup is not None and self._lookup.clean and self._desk.channel_clean:
            self._verify(self._lookup)
        while self.step is Step.WRITE and self._desk.may_write:
            self._write()

    def _write(self) -> None:
        desk = self._desk
        self._last = self._answered
        self._sent = set(self._left if self._last else self._early)
        held = {p: desk.holdings.held[p] for p in self._sent if p in desk.holdings.held}
        if self.sequence is None:  # an unfinished range: the session's end frees it, at which the status is read
            unfinished = desk.holdings.standing({}, desk.holdings.batch)
            held = {p: mine for p, mine in held.items() if p not in unfinished or self._finishes(p)}
        done = None
        if self._last and self.sequence is not None and not desk.acknowledged(self.sequence):
            rest = {p: mine for p, mine in desk.holdings.held.items() if p not in self._left}
            done = desk.acknowledgement([self.sequence], rest)
        transactions = member.release(desk.paths, held, self._finals, done, tell=not self._last)
        if not transactions:
            self._end()
            return
        self.step = Step.SENT
        desk.write("task", transactions)

    def _finishes(self, partition: TopicPartition) -> bool:
        mine = self._desk.holdings.held[partition]
        return self._finals.get(partition, mine.offset) != mine.offset

    def written(self, outcomes: list[CommitDone]) -> None:
        """The releases were answered."""
        if all(done.outcome is Outcome.COMMITTED for done in outcomes):
            self._end()
            return
        self.step = Step.VERIFY
        self._lookup = self._desk.lookup(TASK)
        self._lookup.begin(self._sent)

    def _verify(self, lookup: Lookup) -> None:
        holdings = self._desk.holdings
        granted = self._sent & self._desk.granted() & holdings.held.keys()
        gone, foreign = holdings.reconcile(self._sent - granted, self._finals, lookup)
        gone |= granted  # released, and given back: that owner's node may be another one, at the same version
        released = {p: holdings.held.pop(p) for p in gone}
        self._left -= gone
        self._early -= gone
        self._report({p: self._finals.get(p, mine.offset) for p, mine in released.items()})
        for partition, offset in sorted(foreign.items()):
            final = self._finals.pop(partition, None)
            fields = {"partitions": [partition], "offset": offset, "own": final, "level": "warning"}
            self._desk.event("foreign_offset", fields)
        lookup.end()
        self.step = Step.WRITE
        self._go_on()

    def _end(self) -> None:
        """What was sent is released."""
        held = self._desk.holdings.held
        self._report({p: self._finals.get(p, held.pop(p).offset) for p in sorted(self._sent) if p in held})
        self._left -= self._sent
        self._early -= self._sent
        self.step = Step.DONE if self._last else Step.CALL
        self._go_on()

    def _report(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition in offsets:
            self._desk.holdings.held.pop(partition, None)
        if offsets:
            self._desk.event("fetch_stopped", {"partitions": sorted(offsets), "offsets": dict(offsets)})


class WriteTask:
    """A command that needs neither reading nor the application: acknowledge it, or refuse it, in one multi."""

    def __init__(self, desk: Desk, transaction: Callable[[], Transaction]) -> None:
        self.step = Step.WRITE
        self._desk, self._transaction = desk, transaction

    def partitions(self) -> set[TopicPartition]:
        """It is about no partition."""
        return set()

    def called(self, done: CallDone) -> None:
        """Nothing was asked."""

    def advance(self) -> None:
        """Send it."""
        if self.step is Step.WRITE and self._desk.may_write:
            self.step = Step.SENT
            self._desk.write("task", [self._transaction()])

    def written(self, outcomes: list[CommitDone]) -> None:
        """Whatever came of it is read from the channel: a command that still stands is taken up again."""
        self.step = Step.DONE
