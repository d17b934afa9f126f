"""What a member decides, in the imperative. A closed union: match it with `assert_never`.

At most one decision of a step writes: the multis of one such decision are under way at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.member.application import Partitions
from zkcoord.core.member.requests import Ranges
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit
from zkcoord.core.view import Owner
from zkcoord.errors import ZkcoordError


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Read the offsets of these partitions, and the owners that are not known, and follow them from now on.

    `known`: owners that need not be read. One without a thread is free, and will be claimed: the partition's offset is
    read behind the claim. `parents`: read what stands above the offsets, too.
    """

    name: str
    partitions: Partitions
    known: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgain:
    """Read owners and offsets of these partitions once more; with `parents` also what stands above the offsets."""

    partitions: Partitions
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOffsets:
    """Watch the offset nodes of these partitions from now on, or (`watch` False) no more."""

    partitions: Partitions
    watch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Follow these partitions no more; with `parents` nor what stands above any offset."""

    partitions: Partitions
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStatuses:
    """Read what the other consumers of the group announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskReset:
    """Ask the application where partitions without an offset start."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCommits:
    """Ask Kafka for the group's commits of these partitions; `starting`: the number of a start's question, else 0."""

    partitions: Partitions
    starting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitToKafka:
    """Commit these to Kafka, each under its tenure."""

    commits: Mapping[TopicPartition, KafkaCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStart:
    """Have the application start these, at these offsets; what was announced from there on comes first."""

    positions: Mapping[TopicPartition, int]
    incarnations: Mapping[TopicPartition, int]  # of their topics, 0: untold
    replay: Ranges = field(default_factory=dict)
    resumes: bool = False  # they are held already


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStop:
    """Have the application stop these, and say their final offsets."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class LosePartitions:
    """The application must not read these any more. `resuming`: nor what it is starting again. `stopping`: its
    answer to a stop does not count any more."""

    partitions: Partitions
    resuming: bool = False
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPartitions:
    """Make the owner nodes of these partitions, where consumers make them; then read them and their offsets."""

    partitions: Mapping[TopicPartition, str]  # partition -> thread


class Versions(NamedTuple):
    """Versions of a partition's nodes, as read."""

    owner: int
    offset: int | None  # None: there is no node


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeStarts:
    """Acknowledge starts: set offsets, give back what cannot be started, delete the commands.

    `first`: the partitions whose offset is set, and to what: those without one, or all (`core.member.ownership`).
    """

    commands: Mapping[str, int]  # sequence -> version, in their order
    first: Mapping[TopicPartition, tuple[int, Versions]]
    refused: Mapping[TopicPartition, Versions]  # what cannot be started
    status: MemberStatus
    record_version: int | None = None  # of the record that must still stand, where no command does


@dataclass(frozen=True, kw_only=True)
class ReleasePartitions:
    """Write final offsets and release; with `commands` acknowledge the stop.

    With a status and no commands the stop stands on, and who watches the channel is told to look. `tenured`: offsets
    are set even to what they are, so that a new tenure begins.
    """

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    commands: Mapping[str, int] = field(default_factory=dict)
    status: MemberStatus | None = None  # None: the session's end tells of it
    tenured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPing:
    """Acknowledge a ping with the status."""

    commands: Mapping[str, int]
    status: MemberStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseCommand:
    """Say in a command that it cannot be understood."""

    sequence: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Set offsets of held partitions; with a status, say that in the same multi (the last one)."""

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    status: MemberStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchStore:
    """Set offsets of held partitions, to what they are, and acknowledge the change of the offset store."""

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    commands: Mapping[str, int]
    status: MemberStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Write the status with ranges that are about to be processed."""

    status: MemberStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """Answer what the program asked: it was done, or why not."""

    number: int
    error: type[ZkcoordError] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report an event. `sequence`: of the command that it is about."""

    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    sequence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """Give registration and session up, and register afresh."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Everything is released: end the session."""


Write = (
    ClaimPartitions
    | AcknowledgeStarts
    | ReleasePartitions
    | AnswerPing
    | RefuseCommand
    | CommitOffsets
    | SwitchStore
    | Announce
)

Decision = (
    LookUp
    | ReadAgain
    | WatchOffsets
    | LetGo
    | ReadStatuses
    | AskReset
    | AskCommits
    | CommitToKafka
    | AskStart
    | AskStop
    | LosePartitions
    | Write
    | AnswerRequest
    | Report
    | Rejoin
    | Leave
)
