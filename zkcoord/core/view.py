"""One group as a coordinator sees it: members, channels, owners. `tree.view` builds it. It is never changed."""

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
"""Defaults in ms of a registration without these keys. They are part of its format, whatever this version's consumers
use."""

START, STOP, OFFSET_STORE, REJECT, PING = "start-fetcher", "stop-fetcher", "offset-store", "reject", "ping"
"""The options of commands, as they are in a command's JSON."""


class Owner(NamedTuple):
    """An owner node. `thread` is "" when the partition is free. `version` guards the next write."""

    thread: str
    version: int


class OffsetSeen(NamedTuple):
    """An offset node as it was read. Its text is only shown and dropped here, never parsed."""

    text: str
    version: int


class TopicChange(Enum):
    """How a topic differs from the one that its mark names."""

    RENEWED = "renewed"  # the same topic; only the mark is out of date
    RECREATED = "recreated"  # deleted and created again
    DELETED = "deleted"
    UNREADABLE = "unreadable"  # nobody can parse the mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The remaining nodes of a topic that is to be dropped, except its owners."""

    offsets: Mapping[TopicPartition, OffsetSeen] = field(default_factory=dict)
    version: int | None = None  # of the offsets' parent; None: there is none
    strange: tuple[str, ...] = ()  # paths of nodes that belong to no partition: an operator must remove them


class Wildcard(NamedTuple):
    """A subscription by pattern: all topics that a Java regex matches (`black_list`: that it does not match)."""

    regex: str
    black_list: bool
    threads: int  # for each topic that the pattern takes


@dataclass(frozen=True, kw_only=True)
class Member:
    """One registration. `unreadable` says why it cannot be parsed: then it is a member, but not an eligible one."""

    consumer_id: str
    czxid: int  # gives the order of joining
    version: int = 0
    threads: Mapping[str, int] = field(default_factory=dict)
    # topic -> threads; for a wildcard: the topics that it takes now
    wildcard: Wildcard | None = None
    speaks_protocol: bool = True  # its registration carries the marker: it has a channel and obeys commands
    unreadable: str | None = None
    instance: str | None = None
    replaces: str | None = None
    assignors: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()  # offset stores that it can use; empty: only ZooKeeper
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    offers: frozenset[str] = frozenset()  # commands that it obeys beyond the draft's
    protocols: tuple[int, int] = (1, 1)  # lowest and highest protocol that it speaks
    hold_ms: int = 0  # ms for which its instance's share waits for it
    rack: str | None = None
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCommand:
    """A command in a channel: written, and not acknowledged yet."""

    sequence: str  # ten digits
    version: int
    option: str  # START, STOP, OFFSET_STORE, REJECT or PING
    threads: Mapping[TopicPartition, str] | None  # None: no map, so everything that the consumer holds
    generation: int = 0
    error: str | None = None  # why the consumer refused it
    replay: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # announced ranges of a start
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
"""The first word of a refusal because another session had claimed the partition. It makes no strike, and the start is
tried again as soon as that claim is gone."""


class Refusal(NamedTuple):
    """A start that the consumer could not carry out: its generation, its sequence in the channel ("": not told), and
    the reason."""

    generation: int
    sequence: str
    reason: str

    @property
    def taken(self) -> bool:
        """True when another session had claimed the partition."""
        return self.reason.startswith(TAKEN)


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A consumer's channel. At version 0 no consumer has registered with it yet."""

    consumer_id: str
    version: int
    czxid: int = 0  # distinguishes it from a channel that was removed and created again under the same name
    commands: tuple[QueuedCommand, ...] = ()  # by sequence
    refusals: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    evicted_ms: int | None = None
    # set by the mark: ms for which the evicted consumer's partitions are kept from others (its session timeout)
    held: frozenset[TopicPartition] = frozenset()  # partitions that its consumer says that it holds
    evicted_owned: frozenset[TopicPartition] = frozenset()  # partitions in the mark, where owners are claims
    announced: Mapping[TopicPartition, Announced] = field(default_factory=dict)  # ranges that its consumer announced
    refused_mark: bool = False  # True if the child `refused` exists
    pinged: str = ""  # the sequence of the last ping that its consumer answered
    progress: int | None = None  # reported by its application with that answer; it grows with the work done
    lag: int | None = None  # the remaining work, reported likewise
    store_name: str = ""  # the offset store that its consumer uses; "": ZooKeeper, since it was never told another
    store_step: int = 0  # number of the step that it obeyed last
    status_unreadable: bool = False
    timing: tuple[Timing, ...] = field(default=(), compare=False)  # of its last commands, for people only
    written_ms: int = field(default=0, compare=False)
    # when its status was written, by ZooKeeper's clock; for people only
    status_mzxid: int = field(default=0, compare=False)  # transaction that wrote this status; 0: not known

    def outstanding(self, option: str) -> bool:
        """True when a command with this option is in the channel."""
        return option in [command.option for command in self.commands]

    @property
    def reading(self) -> bool:
        """True when its consumer tells first records of its last start."""
        starts = [each for each in self.timing if not each.stops]
        last = max((each.sequence for each in starts), default="")
        return any(each.first_record_ms is not None and each.sequence == last for each in starts)

    def names(self, partition: TopicPartition) -> bool:
        """True when any command in the channel is about this partition."""
        return bool(self.commands) and any(command.names(partition) for command in self.commands)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A static member as the state remembers it: its inputs for the assignor, the assignor, and its share.

    `version` and `written_ms` belong to its node, and are not compared.
    """

    last_id: str
    hold_ms: int
    threads: Mapping[str, int]
    share: Mapping[TopicPartition, int]  # partition -> number of the thread
    rack: str | None = None
    capacity: int | None = None
    assignor: str = ""  # the assignor that gave it its share; "": not known
    away: bool = False  # True if it is no member and is waited for; the coordinator notes this once
    version: int = field(default=-1, compare=False)
    written_ms: int = field(default=0, compare=False)  # when its node was written last, by the server's wall clock


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """Everything that decisions about one group depend on."""

    group: str
    members: Mapping[str, Member] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    # existing owner nodes; for claims also those of `tree.owners`, at version -1
    claims: bool = False  # True in a layout where owners are claims: ephemeral nodes of their consumers
    claim_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    # versions of the offsets of evicted consumers' claims, as they were looked up; None: the node does not exist
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # existing topics that members subscribe to
    marked: frozenset[str] = frozenset()  # topics that have a mark
    brokers: Mapping[int, str] = field(default_factory=dict)
    # racks of the brokers with replicas, if a member has a rack
    replica_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)  # the same, by partition
    incarnations: Mapping[str, int] = field(default_factory=dict)  # topic -> the number in its mark, if readable
    protocols: tuple[int, int] = (1, 1)  # lowest and highest protocol that all coordinators speak
    changed: Mapping[str, TopicChange] = field(default_factory=dict)  # marked topics that differ from their marks
    leftovers: Mapping[str, Leftovers] = field(default_factory=dict)  # for those of `changed` that were looked up
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    # offsets of partitions with announced ranges and without a living owner; None: there is none
    offsets: int | None = None  # number of the group's offsets; None: nobody has looked
    record: GroupRecord = DEFAULT_RECORD  # the decisions of people
    record_version: int | None = None  # None: there is no record yet
    adopts: bool = False  # True in a layout whose groups are served only once they are adopted
    answerable: bool = True  # False: the record cannot be read, so nobody may write into it
    state: GroupState = field(default_factory=GroupState)  # the state that the coordinator wrote last
    state_version: int | None = None  # None: there is no state yet
    draft_stops: frozenset[TopicPartition] = frozenset()
    # partitions whose owners know only the draft, and were told to stop
    instances: Mapping[str, Instance] = field(default_factory=dict)  # static members, by instance
    ids_changes: int = 0  # number of members that came and went so far, in a layout whose groups may have old members
    mode: GroupMode = COORDINATED  # other than coordinated only beside old members, in the layout `legacy`
    unreadable: str | None = None
    # why record or state cannot be read, if nothing was known of it before: the group is left alone

    @property
    def observed(self) -> bool:
        """True while the group is not adopted: nothing of it may be written."""
        return self.adopts and self.record.adoption is None

    def living_threads(self) -> set[str]:
        """The threads of registered consumers that own something. There are few, even for many partitions."""
        threads = {thread for thread, _ in self.owners.values()}
        return {thread for thread in threads if thread and consumer_of(thread) in self.members}


def phase(view: GroupView, owning: Iterable[str]) -> Phase:
    """The group's phase; the tools show it as STATE (docs/protocol.md, section 8).

    `owning` holds the threads that own the target's partitions, and "" if one of these has no owner.
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
