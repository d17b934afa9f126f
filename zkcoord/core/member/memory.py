"""What a member remembers between two steps: what it held as last read, what it is doing, and what its status must
say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.command import Command
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.mirror import NO_MIRROR, Mirror
from zkcoord.core.member.status import IN_ZOOKEEPER, Batch, Held, MemberStatus, Store, standing
from zkcoord.core.member.timing import NO_TIMES, Times
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit
from zkcoord.core.view import Refusal

PLANNED = "plan"
"""Stands in place of a command's sequence for what the plan of a mixed group asks for (`core.member.sharing`). For
starts a number follows."""


class Grant(NamedTuple):
    """What a start says about one partition."""

    thread: str
    sequence: str
    generation: int
    incarnation: int  # of its topic; 0: the command does not say


class Beginning(NamedTuple):
    """Where the application was told to begin a partition."""

    offset: int
    replay_end: int | None  # the end of the announced range that it processes first; None: there is none


@dataclass(frozen=True, kw_only=True)
class Start:
    """Starts that are obeyed together. No two commands of a channel name the same partition."""

    commands: Mapping[str, Command]  # sequence -> start, in their order
    grants: Mapping[TopicPartition, Grant]  # sorted
    first: Mapping[TopicPartition, int] = field(default_factory=dict)  # offsets that the reset policy answered
    told: Mapping[TopicPartition, Beginning] = field(default_factory=dict)  # what the application was told to start
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)  # why a partition cannot be started
    acknowledged: bool = False  # True once the acknowledgement was sent
    said: MemberStatus | None = None  # of a planned start: the status that was sent with it
    begun_ms: int = 0
    looked: bool = False  # after its claims, others' announced ranges were asked for
    commits: Mapping[TopicPartition, KafkaCommit | None] = field(default_factory=dict)  # commits, as Kafka told them
    asking: int = 0  # number of the open question for the commits; 0: none is open
    asked_ms: int = 0

    @property
    def planned(self) -> bool:
        """True when the plan of a mixed group asks for it, and not a command."""
        return self.name.startswith(PLANNED)

    @property
    def name(self) -> str:
        """The name of its look-up."""
        return next(iter(self.commands))


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A stop that is being obeyed. `sequence` is None if no command asked for it (leaving, or sent away), and PLANNED
    if the plan did."""

    sequence: str | None
    left: frozenset[TopicPartition]  # partitions that are still to be released
    early: frozenset[TopicPartition] = frozenset()
    # those of `left` that were stopped already, in the middle of the call
    finals: Mapping[TopicPartition, int] = field(default_factory=dict)
    rested: Mapping[TopicPartition, int] = field(default_factory=dict)  # partition -> when the application stopped it
    answered: bool = False  # True once the application has stopped all
    committed: frozenset[TopicPartition] = frozenset()
    # partitions that were committed to Kafka, or that this was tried for, before their release
    released: bool = False  # True once part of it was written


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit that was sent."""

    requests: tuple[int, ...]  # numbers of the requests whose offsets these are
    offsets: Mapping[TopicPartition, int]
    before: Mapping[TopicPartition, int]  # the offsets when it was sent
    spoiled: frozenset[TopicPartition] = frozenset()
    # partitions that were taken away, or set by somebody else, meanwhile


class Switch(NamedTuple):
    """A change of the offset store that is being obeyed. `before` holds the tenures that it ends."""

    sequence: str
    store: Store
    before: Mapping[TopicPartition, int]


class Announcement(NamedTuple):
    """An announcement that was sent: the request's number, and the status that contains it."""

    request: int
    status: MemberStatus


@dataclass(frozen=True, kw_only=True)
class Memory:
    """An immutable value: each step makes the next one. It ends with the registration."""

    held: Mapping[TopicPartition, Held] = field(default_factory=dict)  # acknowledged and not released, as last read
    readable: frozenset[TopicPartition] = frozenset()  # held partitions that run
    idle: frozenset[TopicPartition] = frozenset()  # held partitions that do not run
    turns: int = 0  # number of changes of the keys of `held`
    counted: tuple[int, object] = (-1, None)  # `turns`, and the running partitions, when these two sets were made
    writing: Mapping[TopicPartition, int] = field(default_factory=dict)  # offsets that the multis under way set
    overwritten: frozenset[TopicPartition] = frozenset()  # partitions whose offset somebody else set since their start
    batch: Batch = field(default_factory=dict)  # announced ranges, by this member or by an earlier owner
    last_own: Mapping[TopicPartition, int] = field(default_factory=dict)
    # partition with a leftover range -> the highest version of its offset that is known not to be a later owner's
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)  # partitions that could not be started
    pinged: str = ""  # the sequence of the last ping that was answered
    short_of_room: bool = False  # True when the status has no room: leftover ranges must be looked up
    cleaning: bool = False  # True while they are being looked up
    start: Start | None = None
    stop: Stop | None = None
    rejected: Command | None = None  # the reject that is being obeyed: no command comes after it
    commit: Commit | None = None
    announcement: Announcement | None = None
    store: Store = IN_ZOOKEEPER  # the offset store of all that is held
    switch: Switch | None = None
    mirror: Mirror = NO_MIRROR  # what Kafka has
    questions: int = 0  # number of questions that starts have asked of Kafka
    waiting: Mapping[str, int] = field(default_factory=dict)  # sequence of a start that waits for room -> since when
    unknown: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # unknown to Kafka -> (first try, last try)
    plans: int = 0  # number of starts by the plan of a mixed group
    shared: bool = False  # the group was seen with old members since a command that stands may have been written
    put_off: Mapping[TopicPartition, int] = field(default_factory=dict)  # partition -> not claimed before this time
    restoring: Mapping[TopicPartition, int] = field(default_factory=dict)
    # offsets that an old member's late commit overwrote
    generation: int = 0  # the highest among the commands taken up
    times: Times = NO_TIMES  # times of its commands, for the status

    def counting(self, view: MemberView) -> Memory:
        """Return a copy with `readable` and `idle` up to date. They change only with the keys of `held`, and with what
        runs."""
        running = view.application.running
        if self.turns == self.counted[0] and running is self.counted[1]:
            return self
        held = frozenset(self.held)
        idle = held.difference(running)  # a dict's hashes are used as they are: there are many
        readable = held - idle if idle else held
        return fast_replace(self, readable=readable, idle=idle, counted=(self.turns, running))

    def noting(self, view: MemberView) -> Memory:
        """Return a copy with `shared` up to date."""
        standing = bool(view.commands) or self.start is not None
        shared = not view.neighbours.mode.coordinated or (self.shared and standing)
        return self if shared is self.shared else fast_replace(self, shared=shared)

    def holding(self, fresh: Mapping[TopicPartition, Held]) -> Memory:
        """Return a copy in which these are held, too."""
        return fast_replace(self, held={**self.held, **fresh}, turns=self.turns + 1)

    def without(self, partitions: Iterable[TopicPartition]) -> Memory:
        """Return a copy in which these are not held. Partitions that are not held anyway are ignored."""
        held, gone, last_own = dict(self.held), list(partitions), dict(self.last_own)
        for partition in gone:
            mine = held.pop(partition, None)
            if mine is not None and partition in self.batch:
                last_own[partition] = mine.offset_version + 1  # its release may have set it
        mirror = self.mirror if self.mirror is NO_MIRROR else self.mirror.without(gone)
        return fast_replace(self, held=held, last_own=last_own, turns=self.turns + 1, mirror=mirror)

    def finals(self) -> dict[TopicPartition, int]:
        """The final offsets that the application answered to the stop, without those that somebody else has set
        since."""
        finals = self.stop.finals if self.stop is not None else {}
        return {p: offset for p, offset in finals.items() if p not in self.overwritten}

    def left_over(self) -> set[TopicPartition]:
        """The partitions with announced ranges that are not held any more."""
        return self.batch.keys() - self.held.keys() if self.batch else set()

    def saying(
        self, view: MemberView, held: Mapping[TopicPartition, Held] | None = None
    ) -> tuple[MemberStatus, Memory]:
        """Return the status once `held` is held, and the memory with only those ranges that still count."""
        known = self.held if held is None else {**self.held, **held}
        memory = fast_replace(self, batch=standing(known, self.batch))
        return memory.status(view, self.held if held is None else held), memory

    def status(self, view: MemberView, held: Mapping[TopicPartition, Held]) -> MemberStatus:
        """The status that says what is held."""
        return MemberStatus(
            held=held,
            batch=self.batch,
            refused=self.refused,
            pinged=self.pinged,
            said=view.said,
            store=self.store.name,
            step=self.store.step,
            timing=self.times.told,
        )
