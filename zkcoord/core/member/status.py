"""What a member says of itself in its channel, and which announced ranges stand there.

An announced range counts while its start is the committed offset. What is not held any more stays, since nobody else
may have it, until the offset or the owner says that it is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from zkcoord.core.command import Command
from zkcoord.core.member.told import Told
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import ZOOKEEPER
from zkcoord.core.state import Announced
from zkcoord.core.view import Refusal

ANNOUNCED_BYTES_MAX = 256 * 1024
"""Of a status with an announcement: with the rest of its multi far below 1 MiB."""

ACKNOWLEDGED_BYTES_MAX = 960 * 1024
"""Of the multi that acknowledges starts: below the server's 1 MiB by what a chroot adds to each path, and the server
itself."""

Batch = Mapping[TopicPartition, Announced]


class Store(NamedTuple):
    """The offset store that a member uses, and the number of the change that named it."""

    name: str = ZOOKEEPER
    step: int = 0

    @property
    def tenured(self) -> bool:
        """True where Kafka is read and written, too: commits there name their tenure."""
        return self.name != ZOOKEEPER


IN_ZOOKEEPER = Store()


class Held(NamedTuple):
    """A partition between its start's acknowledgement and its release, with the versions that guard its writes.

    `offset`: what is committed, wherever it is. In the store `kafka` the node may hold an older one.
    """

    thread: str
    owner_version: int
    offset: int
    offset_version: int
    generation: int
    incarnation: int = 0  # of the topic, by the start; 0: untold
    mzxid: int = 0  # of the offset node: the tenure

    @property
    def owner(self) -> tuple[str, int]:
        """The owner node as it is held; equal to an Owner that says the same."""
        return self[:2]

    @property
    def position(self) -> tuple[int, int]:
        """Offset and version of the offset node, as it is held."""
        return self[2:4]


@dataclass(frozen=True, kw_only=True)
class MemberStatus:
    """The status, as values."""

    held: Mapping[TopicPartition, Held] = field(default_factory=dict)
    batch: Batch = field(default_factory=dict)
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    pinged: str = ""  # the sequence of the last ping that was answered
    said: tuple[int, int] | None = None  # progress and lag, as the application reported them
    store: str = ZOOKEEPER  # "" before the first start
    step: int = 0  # of the store's change
    timing: tuple[Told, ...] = field(default=(), compare=False)  # for people: no decision depends on it


class Sizes(Protocol):
    """How much the member's nodes and multis take: the tree knows."""

    def status_bytes(self, status: MemberStatus) -> int:
        """Of the status as the channel's data."""

    def room(self, partitions: list[TopicPartition]) -> int:
        """How many of these, from the first on, one multi can acknowledge or release."""

    def acknowledgement_bytes(
        self, starts: Mapping[str, Command], command_bytes: int, held: Mapping[TopicPartition, Held], batch: Batch
    ) -> int:
        """Of the multi that acknowledges these starts (by sequence), at most, if that is too much; else 0.

        `command_bytes`: of their data; `batch`: what stands announced.
        """


def standing(held: Mapping[TopicPartition, Held], batch: Batch) -> Batch:
    """Those of these announced ranges that no commit has passed, as far as is known of what is held."""
    if not batch:
        return {}
    return {p: r for p, r in sorted(batch.items()) if p not in held or held[p].offset == r.start}


def handed_on(batch: Batch, command: Command) -> Batch:
    """With what a start hands on: it is announced here from its acknowledgement on, also of what is refused there.

    What was announced of an earlier incarnation of its topics is over: it would be replayed of another log.
    """
    new = dict(batch)
    for partition in (command.ownership or ()) if command.replay or batch else ():
        number, known = command.incarnations.get(partition.topic, 0), batch.get(partition)
        if partition in command.replay:
            new[partition] = Announced(*command.replay[partition], command.generation, number)
        elif known is not None and number and known.incarnation not in (0, number):
            del new[partition]
    return new
