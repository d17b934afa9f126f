"""What a member's status in its channel says, and which announced ranges it contains.

An announced range counts while its start is the committed offset. The range of a partition that is not held any more
stays, since nobody else may have it, until offset or owner shows that somebody else has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from zkcoord.core.command import Command
from zkcoord.core.member.told import Told
from zkcoord.core.model import TopicPartition
from zkcoord.core.offset_store import ZOOKEEPER, offset_store
from zkcoord.core.state import Announced
from zkcoord.core.view import Refusal

ANNOUNCED_BYTES_MAX = 256 * 1024
"""Bytes of a status with an announcement. With the rest of its multi it is far below ZooKeeper's limit of 1 MiB."""

ACKNOWLEDGED_BYTES_MAX = 960 * 1024
"""Bytes of the multi that acknowledges starts. The difference to the server's limit of 1 MiB is for what a chroot adds
to each path, and for the server itself."""

Batch = Mapping[TopicPartition, Announced]


class Store(NamedTuple):
    """The offset store that a member uses, and the number of the change that introduced it."""

    name: str = ZOOKEEPER
    step: int = 0

    @property
    def tenured(self) -> bool:
        """True where Kafka is read and written, too."""
        return offset_store(self.name).tenured

    @property
    def node_counts(self) -> bool:
        """True where the node in ZooKeeper holds the committed offset."""
        return offset_store(self.name).node_counts


IN_ZOOKEEPER = Store()


class Held(NamedTuple):
    """A partition between its start's acknowledgement and its release, with the versions that guard its writes.

    `offset` is the committed offset, wherever it is kept. In the store `kafka` the node may hold an older one.
    """

    thread: str
    owner_version: int
    offset: int
    offset_version: int
    generation: int
    incarnation: int = 0  # of the topic, by the start; 0: not told
    mzxid: int = 0  # of the offset node; it is the tenure

    @property
    def owner(self) -> tuple[str, int]:
        """The owner node as the member holds it. It equals an Owner with the same content."""
        return self[:2]

    @property
    def position(self) -> tuple[int, int]:
        """Offset and version of the offset node, as the member holds them."""
        return self[2:4]


@dataclass(frozen=True, kw_only=True)
class MemberStatus:
    """The status as a value."""

    held: Mapping[TopicPartition, Held] = field(default_factory=dict)
    batch: Batch = field(default_factory=dict)
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    pinged: str = ""  # the sequence of the last ping that was answered
    said: tuple[int, int] | None = None  # progress and lag, as the application reported them
    store: str = ZOOKEEPER  # "" before the first start
    step: int = 0  # number of the store's change
    timing: tuple[Told, ...] = field(default=(), compare=False)  # for people: no decision depends on it


class Sizes(Protocol):
    """How many bytes the member's nodes and multis take. The package `tree` implements it."""

    def status_bytes(self, status: MemberStatus) -> int:
        """Bytes of the status as the channel's data."""

    def room(self, partitions: list[TopicPartition]) -> int:
        """How many of these partitions, from the first on, one multi can acknowledge or release."""

    def acknowledgement_bytes(
        self, starts: Mapping[str, Command], command_bytes: int, held: Mapping[TopicPartition, Held], batch: Batch
    ) -> int:
        """The most bytes of the multi that acknowledges these starts (by sequence), if it is too large; else 0.

        `command_bytes` are the bytes of their data. `batch` holds the announced ranges.
        """


def standing(held: Mapping[TopicPartition, Held], batch: Batch) -> Batch:
    """Those announced ranges that no commit has passed, as far as `held` shows."""
    if not batch:
        return {}
    return {p: r for p, r in sorted(batch.items()) if p not in held or held[p].offset == r.start}


def handed_on(batch: Batch, command: Command) -> Batch:
    """Return the ranges with those that a start hands on. From its acknowledgement on they are announced here, also for
    partitions that it refuses.

    Ranges of an earlier incarnation of a topic are over: they would be replayed from another log.
    """
    new = dict(batch)
    for partition in (command.ownership or ()) if command.replay or batch else ():
        number, known = command.incarnations.get(partition.topic, 0), batch.get(partition)
        if partition in command.replay:
            new[partition] = Announced(*command.replay[partition], command.generation, number)
        elif known is not None and number and known.incarnation not in (0, number):
            del new[partition]
    return new
