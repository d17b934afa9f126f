"""What a member remembers between two steps: what it held as last read, what it is about, what it wants to say."""

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
"""In place of a sequence, of what no command asked for: the plan of a mixed group did (`core.member.sharing`)."""


class Grant(NamedTuple):
    """What a start says of one partition."""

    thread: str
    sequence: str
    generation: int
    incarnation: int  # of its topic, 0: the command does not say


@dataclass(frozen=True, kw_only=True)
class Start:
    """Starts that are obeyed as one: no two commands of a channel name the same partition."""

    commands: Mapping[str, Command]  # sequence -> start, in their order
    grants: Mapping[TopicPartition, Grant]  # sorted
    first: Mapping[TopicPartition, int] = field(default_factory=dict)  # what the reset policy answered
    told: Mapping[TopicPartition, int] = field(default_factory=dict)  # where the application was told to start
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)  # why it cannot be started
    acknowledged: bool = False  # the acknowledgement was sent
    said: MemberStatus | None = None  # of a planned one: the status that was sent with it
    begun_ms: int = 0
    looked: bool = False  # of a planned one: what others announced was asked for
    commits: Mapping[TopicPartition, KafkaCommit | None] = field(default_factory=dict)  # as Kafka told them
    asking: int = 0  # the number of the question for them that is open; 0: none is
    asked_ms: int = 0

    @property
    def planned(self) -> bool:
        """True when the plan of a mixed group asks for it, no command."""
        return PLANNED in self.commands

    @property
    def name(self) -> str:
        """Of its look-up."""
        return next(iter(self.commands))


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A stop that is obeyed. `sequence` None: nothing asked for it (leaving, or sent away); PLANNED: the plan did."""

    sequence: str | None
    left: frozenset[TopicPartition]  # what is still to be released
    early: frozenset[TopicPartition] = frozenset()  # of these: stopped already, in the middle of the call
    finals: Mapping[TopicPartition, int] = field(default_factory=dict)
    rested: Mapping[TopicPartition, int] = field(default_factory=dict)  # since when the application has stopped each
    answered: bool = False  # the application has stopped all
    committed: frozenset[TopicPartition] = frozenset()  # to Kafka, or tried, before their release
    released: bool = False  # something of it was written


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit that was sent."""

    requests: tuple[int, ...]  # whose offsets they are
    offsets: Mapping[TopicPartition, int]
    before: Mapping[TopicPartition, int]  # the offsets when it was sent
    spoiled: frozenset[TopicPartition] = frozenset()  # taken away, or set by somebody else, meanwhile


class Switch(NamedTuple):
    """A change of the offset store that is obeyed. `before`: the tenures that it ends."""

    sequence: str
    store: Store
    before: Mapping[TopicPartition, int]


class Announcement(NamedTuple):
    """An announcement that was sent: the request's number, and the status that was to say it."""

    request: int
    status: MemberStatus


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A value: each step has the next one. It ends with the registration."""

    held: Mapping[TopicPartition, Held] = field(default_factory=dict)  # acknowledged and not released, as read last
    readable: frozenset[TopicPartition] = frozenset()  # what is held and runs
    idle: frozenset[TopicPartition] = frozenset()  # what is held and does not run
    turns: int = 0  # how often the keys of `held` changed
    counted: tuple[int, object] = (-1, None)  # the turn, and what ran, when these sets were made
    writing: Mapping[TopicPartition, int] = field(default_factory=dict)  # offsets that the multis under way set
    overwritten: frozenset[TopicPartition] = frozenset()  # somebody else set their offset since their start
    batch: Batch = field(default_factory=dict)  # announced, here or by whom a partition came from
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)  # partitions that could not be started
    pinged: str = ""  # the sequence of the last ping that was answered
    short_of_room: bool = False  # in the status: what is left over there is to be looked up
    cleaning: bool = False  # it is being looked up
    start: Start | None = None
    stop: Stop | None = None
    rejected: Command | None = None  # the reject that was taken up: nothing comes after it
    commit: Commit | None = None
    announcement: Announcement | None = None
    store: Store = IN_ZOOKEEPER  # the offset store of all that is held
    switch: Switch | None = None
    mirror: Mirror = NO_MIRROR  # of what Kafka has
    questions: int = 0  # asked of Kafka by starts
    waiting: Mapping[str, int] = field(default_factory=dict)  # starts that wait for room: sequence -> since when
    unknown: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)  # to Kafka: first and last try
    put_off: Mapping[TopicPartition, int] = field(default_factory=dict)  # not claimed before this time
    restoring: Mapping[TopicPartition, int] = field(default_factory=dict)  # overwritten by an old member's late commit
    generation: int = 0  # the highest among the commands taken up
    times: Times = NO_TIMES  # of its commands

    def counting(self, view: MemberView) -> Memory:
        """With `readable` and `idle` as they are now: they change with the keys of what is held and runs only."""
        running = view.application.running
        if self.turns == self.counted[0] and running is self.counted[1]:
            return self
        held = frozenset(self.held)
        idle = held.difference(running)  # of a dict it needs no hash anew: there are many
        readable = held - idle if idle else held
        return fast_replace(self, readable=readable, idle=idle, counted=(self.turns, running))

    def holding(self, fresh: Mapping[TopicPartition, Held]) -> Memory:
        """With these held, too."""
        return fast_replace(self, held={**self.held, **fresh}, turns=self.turns + 1)

    def without(self, partitions: Iterable[TopicPartition]) -> Memory:
        """With these not held any more; those that are not held do not count."""
        held, gone = dict(self.held), list(partitions)
        for partition in gone:
            held.pop(partition, None)
        mirror = self.mirror if self.mirror is NO_MIRROR else self.mirror.without(gone)
        return fast_replace(self, held=held, turns=self.turns + 1, mirror=mirror)

    def finals(self) -> dict[TopicPartition, int]:
        """The final offsets that the application answered to the stop. One that somebody else has set since stays."""
        finals = self.stop.finals if self.stop is not None else {}
        return {p: offset for p, offset in finals.items() if p not in self.overwritten}

    def left_over(self) -> set[TopicPartition]:
        """What was announced, and is not held any more."""
        return self.batch.keys() - self.held.keys() if self.batch else set()

    def saying(
        self, view: MemberView, held: Mapping[TopicPartition, Held] | None = None
    ) -> tuple[MemberStatus, Memory]:
        """The status once `held` is what is held, and memory with only those ranges that still count."""
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
