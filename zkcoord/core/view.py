"""One group as a coordinator sees it: members, channels, owners. Built by `tree.view`, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from zkcoord.core.mode import COORDINATED, GroupMode
from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.state import Announced, GroupState
from zkcoord.core.timing import Timing

REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS = 60_000, 10_000
"""Defaults of a registration without these keys: part of its format, whatever this version's consumers choose."""

START, STOP, OFFSET_STORE, REJECT, PING = "start-fetcher", "stop-fetcher", "offset-store", "reject", "ping"
"""The options of commands."""


class Owner(NamedTuple):
    """An owner node: `thread` is "" when the partition is free; `version` guards the next write."""

    thread: str
    version: int


class OffsetSeen(NamedTuple):
    """An offset node as it was read: its text is only shown and dropped, never understood here."""

    text: str
    version: int


class TopicChange(Enum):
    """How a topic differs from the one that its mark tells of."""

    RENEWED = "renewed"  # the same topic; only the mark is out of date
    RECREATED = "recreated"  # deleted and created again
    DELETED = "deleted"
    UNREADABLE = "unreadable"  # nobody can parse the mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The nodes of a topic that is to be dropped, beside its owners."""

    offsets: Mapping[TopicPartition, OffsetSeen] = field(default_factory=dict)
    version: int | None = None  # of the offsets' parent; None: there is none
    strange: tuple[str, ...] = ()  # paths that are no partition's: an operator's


class Wildcard(NamedTuple):
    """A subscription by pattern: all topics that a Java regex matches (`black_list`: that it does not match)."""

    regex: str
    black_list: bool
    threads: int  # for each topic that it takes


@dataclass(frozen=True, kw_only=True)
class Member:
    """One registration. `unreadable` says why nobody can parse it: a member, but not an eligible one."""

    consumer_id: str
    czxid: int  # the order of joining
    version: int = 0
    threads: Mapping[str, int] = field(default_factory=dict)  # topic -> threads; of a wildcard: what it takes now
    wildcard: Wildcard | None = None
    speaks_protocol: bool = True  # its registration carries the marker: it has a channel and obeys commands
    unreadable: str | None = None
    instance: str | None = None
    replaces: str | None = None
    assignors: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()  # offset stores it can use; empty: ZooKeeper alone
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    offers: frozenset[str] = frozenset()  # commands that it obeys beyond the draft's
    protocols: tuple[int, int] = (1, 1)  # lowest and highest that it speaks
    hold_ms: int = 0  # how long its instance's share waits for it
    rack: str | None = None
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCommand:
    """A command that stands in a channel: written, not yet acknowledged."""

    sequence: str  # ten digits
    version: int
    option: str  # START, STOP, OFFSET_STORE, REJECT or PING
    threads: Mapping[TopicPartition, str] | None  # None: no map, everything the consumer holds
    generation: int = 0
    error: str | None = None  # why the consumer refused it
    replay: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # of a start
    store_name: str = ""  # of a start or an offset-store; "" is ZooKeeper
    store_step: int = 0  # of an offset-store

    @property
    def moves(self) -> bool:
        """True when it starts or stops partitions."""
        return self.option in (START, STOP)

    def names(self, partition: TopicPartition) -> bool:
        """True when the command is about this partition."""
        if not self.moves:
            return False
        return self.threads is None or partition in self.threads


TAKEN = "taken"
"""The first word of a refusal because another session had claimed the partition: nobody's fault, and tried again as
soon as that claim is gone."""


class Refusal(NamedTuple):
    """A start that the consumer could not carry out: its generation, its sequence in the channel ("": untold), why."""

    generation: int
    sequence: str
    reason: str

    @property
    def taken(self) -> bool:
        """True when another session had claimed it."""
        return self.reason.startswith(TAKEN)


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A consumer's queue. A channel at version 0 was never registered with."""

    consumer_id: str
    version: int
    czxid: int = 0  # tells a channel from one that was removed and made again under its name
    commands: tuple[QueuedCommand, ...] = ()  # by sequence
    refusals: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    evicted_ms: int | None = None  # marked: what it owned is kept from others this long, its own session timeout
    held: frozenset[TopicPartition] = frozenset()  # what its consumer says that it holds
    evicted_owned: frozenset[TopicPartition] = frozenset()  # by the mark, where owners are claims
    announced: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # ranges, by its consumer
    refused_mark: bool = False  # the child `refused` stands
    pinged: str = ""  # the sequence of the last ping that its consumer answered
    progress: int | None = None  # as its application reported it with that answer: grows with its work
    lag: int | None = None  # the work that is left, reported likewise
    store_name: str = ""  # the offset store that its consumer uses; "": ZooKeeper, it was never told
    store_step: int = 0  # the step that it obeyed last
    status_unreadable: bool = False
    timing: tuple[Timing, ...] = field(default=(), compare=False)  # of its last commands, for people only
    written_ms: int = field(default=0, compare=False)  # when its status was written, by ZooKeeper's clock; likewise
    status_mzxid: int = field(default=0, compare=False)  # the transaction that wrote this status; 0: none is known

    def outstanding(self, option: str) -> bool:
        """True when a command of this kind stands in it."""
        return option in [command.option for command in self.commands]

    @property
    def reading(self) -> bool:
        """True when its consumer tells of first records of its last start."""
        starts = [each for each in self.timing if not each.stops]
        last = max((each.sequence for each in starts), default="")
        return any(each.first_record_ms is not None and each.sequence == last for each in starts)

    def names(self, partition: TopicPartition) -> bool:
        """True when any command in it is about this partition."""
        return bool(self.commands) and any(command.names(partition) for command in self.commands)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A static member as the state remembers it: the assignor's input about it, the assignor, and its share.

    `version` and `written_ms` belong to its node: they are not compared.
    """

    last_id: str
    hold_ms: int
    threads: Mapping[str, int]
    share: Mapping[TopicPartition, int]  # partition -> number of the thread
    rack: str | None = None
    capacity: int | None = None
    assignor: str = ""  # that gave it its share; "": unknown
    away: bool = False  # it is no member, and is waited for: the coordinator notes it once
    version: int = field(default=-1, compare=False)
    written_ms: int = field(default=0, compare=False)  # when its node was written last, by the server's wall clock


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """All that decisions about one group depend on."""

    group: str
    members: Mapping[str, Member] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)  # nodes that exist; of claims also those of
    # `tree.owners`, at version -1
    claims: bool = False  # owners are claims: ephemeral nodes of their consumers
    claim_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    # versions of the offsets of claims whose consumers were evicted, as looked up; None: there is no node
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # those members subscribe, that exist
    marked: frozenset[str] = frozenset()  # topics whose mark stands
    brokers: Mapping[int, str] = field(default_factory=dict)  # the racks of brokers with replicas, if a member has one
    replica_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)  # the same by partition
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> the number in its mark, if readable
    protocols: tuple[int, int] = (1, 1)  # lowest and highest that all coordinators speak
    changed: Mapping[str, TopicChange] = field(default_factory=dict)  # marked topics that are not what was marked
    leftovers: Mapping[str, Leftovers] = field(default_factory=dict)  # of those of them that were looked up
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    # offsets, where something was announced and no living member is the owner; None: there is none
    offsets: int | None = None  # how many the group has; None: nobody has looked
    record: GroupRecord = DEFAULT_RECORD  # the decisions of people
    record_version: int | None = None  # None: there is no record yet
    adopts: bool = False  # the layout's groups are served only once they are adopted
    answerable: bool = True  # False: the record cannot be read, so nobody may write into it
    state: GroupState = field(default_factory=GroupState)  # as the coordinator wrote it last
    state_version: int | None = None  # None: there is no state yet
    draft_stops: frozenset[TopicPartition] = frozenset()  # their owners know only the draft, and were told to stop
    instances: Mapping[str, Instance] = field(default_factory=dict)  # static members, by instance
    mode: GroupMode = COORDINATED  # other than coordinated only beside old members, in the layout `legacy`
    unreadable: str | None = None  # record or state, of which nothing was known before: the group is left alone

    @property
    def observed(self) -> bool:
        """True while the group is not adopted, and nothing of it may be written."""
        return self.adopts and self.record.adoption is None

    def living_threads(self) -> set[str]:
        """The threads of registered consumers among those that own something: few, for many partitions."""
        threads = {thread for thread, _ in self.owners.values()}
        return {thread for thread in threads if thread and consumer_of(thread) in self.members}


def phase(view: GroupView, owning: Iterable[str]) -> Phase:
    """The group's phase; the tools show it as STATE (docs/protocol.md, section 8).

    `owning`: the threads that own what the target has, "" when nobody owns some of it.
    """
    if not view.members:
        return Phase.EMPTY
    if view.state.stopping:
        return Phase.PREPARING_REBALANCE
    commands = [command for channel in view.channels.values() for command in channel.commands]
    if any(command.option == STOP for command in commands):
        return Phase.PREPARING_REBALANCE
    if any(consumer_of(thread) not in view.members for thread in owning):
        return Phase.PREPARING_REBALANCE
    if any(command.option == START for command in commands):
        return Phase.AWAITING_SYNC
    return Phase.STABLE
