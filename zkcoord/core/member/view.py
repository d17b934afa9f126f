"""One member as it sees itself: its registration, channel and partitions as they were read, its application, and the
requests to it.

`tree.member_view` and the member's role build it. It is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Application, FirstRecords
from zkcoord.core.member.log import CommitLog
from zkcoord.core.member.neighbours import ALONE, Neighbours
from zkcoord.core.member.requests import Asked
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.core.view import Owner

NOBODY = Owner("", -1)
"""The owner of a partition without an owner node."""

STATUSES = "statuses"
"""The name of the look-up of other members' announced ranges."""

ANNOUNCED = "announced"
"""The name of the look-up of own announced ranges. Every other look-up is named by the sequence of its first start."""


class Position(NamedTuple):
    """An offset node as it was read. `offset` None: it holds no offset. `version` None: there is no node. `problem`:
    why it cannot be read.

    `mzxid` is the transaction that wrote it last; it is the partition's tenure (`core.tenure`).
    """

    offset: int | None
    version: int | None
    problem: str | None = None
    mzxid: int = 0


NOWHERE = Position(None, None)


@dataclass(frozen=True, kw_only=True)
class Received:
    """A command in the channel."""

    sequence: str  # ten digits
    version: int = 0
    command: Command | None = None  # None: it cannot be understood, or was refused
    error: str = ""  # why it cannot be understood; empty for a refused command
    size: int = 0  # bytes of its data
    made_ms: int = 0  # when it was written, by ZooKeeper's clock; for people only

    def asks(self, option: Option) -> bool:
        """True when the command has this option."""
        return self.command is not None and self.command.option is option


class Holder(NamedTuple):
    """Another consumer whose status says that it holds partitions, so that it may announce ranges of them. `held` None:
    the status does not name all of them. `version` is that of the status as it was read."""

    version: int
    held: frozenset[TopicPartition] | None

    def may_hold(self, partition: TopicPartition) -> bool:
        """True unless the status says that it does not hold the partition."""
        return self.held is None or partition in self.held


@dataclass(frozen=True, kw_only=True)
class MemberView:
    """Everything that the decisions of one member depend on."""

    # what was read
    missing: frozenset[str] = frozenset()  # own registration and channel, if they were seen to be missing
    evicted: bool = False  # the mark of an eviction exists
    refused_mark: bool = False  # the mark of a refused command exists
    commands: Mapping[str, Received | None] = field(default_factory=dict)  # by sequence; None: listed, not read yet
    claims: bool = False  # True in a layout where consumers create their owner nodes
    status_version: int = 0
    status: MemberStatus | None = None  # the status in the channel; None: not the one that this registration wrote last
    owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    # owners of followed partitions, except for held ones that were read as they are held
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)  # the same
    fresh: frozenset[TopicPartition] = frozenset()  # partitions of which something was read since the last decision
    unread: frozenset[str] = frozenset()  # look-ups with nodes that are still to be read
    channel_read: bool = True  # False while registration, channel or a command is still to be read
    neighbours: Neighbours = ALONE
    announced: Mapping[TopicPartition, tuple[Announced, ...]] = field(default_factory=dict)  # others' ranges
    holders: Mapping[str, Holder] = field(default_factory=dict)  # others that may announce, by consumer id
    # how things are
    settled: bool = True  # the link is up, and what was read is current
    writing: bool = False  # multis of this member are under way
    ready: bool = True  # False: writes wait, since they were refused again and again
    leased: bool = True  # the lease holds
    application: Application = field(default_factory=Application)
    log: CommitLog | None = None  # the group's commits in Kafka; None: this consumer keeps offsets in ZooKeeper only
    requests: tuple[Asked, ...] = ()
    leaving: bool = False  # the consumer was asked to leave
    said: tuple[int, int] | None = None  # progress and lag, as the application reported them
    firsts: tuple[FirstRecords, ...] = ()  # first records that no decision has seen

    @property
    def gone(self) -> bool:
        """True once the own registration or channel was seen to be gone, or the mark of an eviction was seen.

        None of these can be undone, so this counts whatever else is still to be read or cannot be read.
        """
        return bool(self.missing) or self.evicted

    def deleted(self, partition: TopicPartition) -> bool:
        """True when the offset node of a followed partition was read, and does not exist."""
        at = self.positions.get(partition)
        return at is not None and at.version is None

    @property
    def may_write(self) -> bool:
        """True when a multi may be sent, as far as registration, channel and commands go. Call it only while
        settled."""
        return self.channel_read and not self.writing and self.ready

    def taken_in(self, held: Mapping[TopicPartition, Held]) -> MemberView:
        """Return a copy in which nothing is fresh, since a decision has seen everything. Owners and positions that
        `held` contains are not kept twice."""
        owners = {p: owner for p, owner in self.owners.items() if p not in held or owner != held[p].owner}
        positions = {p: at for p, at in self.positions.items() if p not in held or at[:2] != held[p].position}
        return fast_replace(self, fresh=frozenset(), owners=owners, positions=positions)

    def granted(self) -> set[TopicPartition]:
        """The partitions that the starts in the channel name. Each was free when its start was written. Meaningful only
        when the channel has been read."""
        starts: Iterable[Command] = (
            received.command
            for received in self.commands.values()
            if received is not None and received.command is not None and received.asks(Option.START_FETCHER)
        )
        return {partition for start in starts for partition in start.ownership or ()}
