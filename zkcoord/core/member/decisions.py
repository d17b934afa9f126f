"""A member's decisions, named in the imperative. A closed union: match it with `assert_never`.

At most one decision of a step writes. The multis of one such decision may be under way together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.member.application import CallKind, Partitions
from zkcoord.core.member.requests import Ranges
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit
from zkcoord.core.view import Owner
from zkcoord.errors import ZkcoordError


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Read the offsets of these partitions, and the owners that are not known. Follow both from now on.

    `known` holds owners that need not be read. An owner without a thread is free and will be claimed: the partition's
    offset is read after the claim. With `parents` also read the nodes above the offsets.
    """

    name: str
    partitions: Partitions
    known: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgain:
    """Read owners and offsets of these partitions again; with `parents` also the nodes above the offsets."""

    partitions: Partitions
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOffsets:
    """Watch the offset nodes of these partitions from now on, or (with `watch` False) stop watching them."""

    partitions: Partitions
    watch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Stop following these partitions; with `parents` also the nodes above any offset."""

    partitions: Partitions
    parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStatuses:
    """Read the ranges that the other consumers of the group announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskReset:
    """Ask the application where partitions without an offset start."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCommits:
    """Ask Kafka for the group's commits of these partitions. `starting` is the number of a start's question, else 0."""

    partitions: Partitions
    starting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitToKafka:
    """Commit these to Kafka, each with its tenure."""

    commits: Mapping[TopicPartition, KafkaCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStart:
    """Have the application start these partitions at these offsets. Ranges announced from there on come first."""

    positions: Mapping[TopicPartition, int]
    incarnations: Mapping[TopicPartition, int]  # of their topics; 0: not told
    replay: Ranges = field(default_factory=dict)
    resumes: bool = False  # True if they are held already


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStop:
    """Have the application stop these partitions, and answer with their final offsets."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class LosePartitions:
    """The application must not read these any more. Its answers to calls of the kind `ignored` do not count any
    more."""

    partitions: Partitions
    ignored: CallKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPartitions:
    """Create the owner nodes of these partitions (in a layout where consumers create them). Then read them and their
    offsets."""

    partitions: Mapping[TopicPartition, str]  # partition -> thread


class Versions(NamedTuple):
    """Versions of a partition's nodes, as read."""

    owner: int
    offset: int | None  # None: the node does not exist


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeStarts:
    """Acknowledge starts: set offsets, give back partitions that cannot be started, delete the commands.

    `first` holds the partitions whose offset is set, with the offset: those without one, or all
    (`core.member.ownership`).
    """

    commands: Mapping[str, int]  # sequence -> version, in their order
    first: Mapping[TopicPartition, tuple[int, Versions]]
    refused: Mapping[TopicPartition, Versions]  # partitions that cannot be started
    status: MemberStatus
    record_version: int | None = None  # version that the record must still have, if there is no command
    statuses: Mapping[str, int] = field(default_factory=dict)  # consumer -> version that its status must still have


@dataclass(frozen=True, kw_only=True)
class ReleasePartitions:
    """Write final offsets and release partitions; with `commands` also acknowledge the stop.

    With a status and without commands the stop goes on, and the write makes the watcher of the channel look. `tenured`:
    offsets are set even to their present value, so that a new tenure begins.
    """

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    commands: Mapping[str, int] = field(default_factory=dict)
    status: MemberStatus | None = None  # None: the session's end shows it
    tenured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPing:
    """Acknowledge a ping with the status."""

    commands: Mapping[str, int]
    status: MemberStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseCommand:
    """Write into a command that it cannot be understood."""

    sequence: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Set offsets of held partitions. A status, if given, is written in the last multi."""

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    status: MemberStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchStore:
    """Set offsets of held partitions to their present value, and acknowledge the change of the offset store."""

    held: Mapping[TopicPartition, Held]
    offsets: Mapping[TopicPartition, int]
    commands: Mapping[str, int]
    status: MemberStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Write the status with the ranges that are about to be processed. `offsets` holds partitions whose offset must
    still have this version (`core.member.ownership`)."""

    status: MemberStatus
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """Answer a request of the program: it was done, or why not."""

    number: int
    error: type[ZkcoordError] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report an event. `sequence` is the command that it is about."""

    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    sequence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """Give up registration and session, and register again."""

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
