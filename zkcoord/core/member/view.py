"""One member as it sees itself: its registration, channel and partitions as read, its application, what is asked of it.

Built by `tree.member_view` and the member's role, never changed.
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
"""The name of the look-up of what others announced."""

ANNOUNCED = "announced"
"""The name of the look-up of announced ranges. Every other look-up has the name of its first start's sequence."""


class Position(NamedTuple):
    """An offset node as read: `offset` None = none there; `version` None = no node; `problem`: why it is unreadable.

    `mzxid`: the transaction that wrote it last, which is the partition's tenure (`core.tenure`).
    """

    offset: int | None
    version: int | None
    problem: str | None = None
    mzxid: int = 0


NOWHERE = Position(None, None)


@dataclass(frozen=True, kw_only=True)
class Received:
    """A command that stands in the channel."""

    sequence: str  # ten digits
    version: int = 0
    command: Command | None = None  # None: it cannot be understood, or was refused
    error: str = ""  # why it cannot be understood; of a refused one empty
    size: int = 0  # of its data, in bytes
    made_ms: int = 0  # when it was written, by ZooKeeper's clock; for people only

    def asks(self, option: Option) -> bool:
        """True when it asks for this."""
        return self.command is not None and self.command.option is option


@dataclass(frozen=True, kw_only=True)
class MemberView:
    """All that decisions of one member depend on."""

    # what was read
    missing: frozenset[str] = frozenset()  # own registration and channel, when they were seen not to be there
    evicted: bool = False  # the mark of an eviction stands
    refused_mark: bool = False  # the mark of a refused command stands
    commands: Mapping[str, Received | None] = field(default_factory=dict)  # by sequence; None: listed, not read yet
    claims: bool = False  # owners are claims, made by their consumers
    status_version: int = 0
    status: MemberStatus | None = None  # what the channel says; None: not what this registration said last
    owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)  # of what is followed, but for what is held
    # and was read as it is held
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)  # the same
    fresh: frozenset[TopicPartition] = frozenset()  # of which something was read since the last decision
    unread: frozenset[str] = frozenset()  # look-ups of which something is still to be read
    channel_read: bool = True  # nothing of registration, channel and commands is still to be read
    neighbours: Neighbours = ALONE
    announced: Mapping[TopicPartition, tuple[Announced, ...]] = field(default_factory=dict)  # by others
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
        """True once the own registration, or the channel, was seen to be gone, or the mark of an eviction to stand.

        None of these is ever taken back, so it counts whatever else is still to be read, or cannot be.
        """
        return bool(self.missing) or self.evicted

    def deleted(self, partition: TopicPartition) -> bool:
        """True when the offset node of a partition that is followed was read, and is not there."""
        at = self.positions.get(partition)
        return at is not None and at.version is None

    @property
    def may_write(self) -> bool:
        """True when a multi may be sent, decided from registration, channel and commands. Asked while settled."""
        return self.channel_read and not self.writing and self.ready

    def taken_in(self, held: Mapping[TopicPartition, Held]) -> MemberView:
        """With nothing fresh: a decision has seen all. What is held, and was read as it is held, is not kept twice."""
        owners = {p: owner for p, owner in self.owners.items() if p not in held or owner != held[p].owner}
        positions = {p: at for p, at in self.positions.items() if p not in held or at[:2] != held[p].position}
        return fast_replace(self, fresh=frozenset(), owners=owners, positions=positions)

    def granted(self) -> set[TopicPartition]:
        """What the starts that stand name. Each was free when it was written. Meaningful only when the channel is
        read."""
        starts: Iterable[Command] = (
            received.command
            for received in self.commands.values()
            if received is not None and received.command is not None and received.asks(Option.START_FETCHER)
        )
        return {partition for start in starts for partition in start.ownership or ()}
