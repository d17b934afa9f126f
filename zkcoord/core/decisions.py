"""A coordinator's decisions, named in the imperative. Each says why. A closed union: match it with `assert_never`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from zkcoord.core.model import TopicPartition
from zkcoord.core.state import GroupState
from zkcoord.core.view import OFFSET_STORE, PING, Instance, OffsetSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A decision, and its reason."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfTopic(_Decided):
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMember(_Decided):
    consumer_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroup(_Decided):
    """Create record and state of a group that is seen for the first time."""


class StateEvent(Enum):
    """The meaning of a change of the group's state. The value is the event's name in the log."""

    # the target has changed; written before any decision that serves the new target
    REBALANCE_STARTED = "rebalance_started"
    STOPPING = "stopping"  # eager: from now on all members stop, and nothing is granted
    STOPPED = "stopped"  # the stopping is over
    REBALANCE_FAILED = "rebalance_failed"  # given up by the group's policy: ConsumerRebalanceFailed
    REBALANCE_RECOVERED = "rebalance_recovered"
    QUARANTINED = "quarantined"  # the quarantined partitions, or the forgiven refusals, have changed
    REPLAY_KEPT = "replay_kept"  # the announced ranges that no other node holds have changed
    ASSIGNMENT_PROBLEM = "assignment_problem"  # why the assignment differs from the requested one, and who must act
    ASSIGNMENT_AS_ASKED = "assignment_as_asked"
    MODE_CHANGED = "mode_changed"  # coordinated, mixed or observed: old members came or went
    OLD_OWNERS = "old_owners"  # what old members have, or may still commit, has changed
    GROUP_EMPTY = "group_empty"  # how long the group has had no members, as far as coordinators saw


@dataclass(frozen=True, slots=True, kw_only=True)
class SetState(_Decided):
    """Write the group's state. It contains the changes of the decisions before it in the same step: see `written`."""

    state: GroupState
    event: StateEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkTopic(_OfTopic):
    """Write a topic's mark: the incarnation of the topic to which the group's owners and offsets belong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewMark(_OfTopic):
    """Write a topic's mark again, with the same incarnation: the topic is the same, but its czxid or id has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTopic(_OfTopic):
    """Read the remaining nodes of a topic that is not the group's any more. This writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTopic(_OfTopic):
    """Empty or remove the owners of a topic, and remove its offsets. With `again` mark the topic's next incarnation;
    else it has no mark."""

    again: bool
    offsets: Mapping[TopicPartition, OffsetSeen]  # the offsets that are dropped, as they were read


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFetching(_OfMember):
    """Tell a consumer to stop reading partitions and release them. The map names the thread that is meant to be next,
    or ""."""

    partitions: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPartitions(_OfMember):
    """Set a consumer's threads as owners of available partitions, and tell the consumer to start."""

    partitions: Mapping[TopicPartition, str]
    replay: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    # announced ranges, to be processed first


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMember(_OfMember):
    """End a consumer's registration. `sequence` is the command that the consumer did not acknowledge.

    `sequence` is None if the consumer answers, but is stalled; then the eviction requires that its last status is
    unchanged.
    """

    sequence: str | None
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMember(_OfMember):
    """Send a consumer a command that names no partition. Then its status is read, which tells the outcome."""

    option: ClassVar[str]  # kind of the command


@dataclass(frozen=True, slots=True, kw_only=True)
class PingMember(ControlMember):
    """Ask a consumer to prove that it is alive: it answers at once, with its status."""

    option: ClassVar[str] = PING


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStore(ControlMember):
    """Tell a consumer to use another offset store from now on. `step` is the number of the group's change to that
    store."""

    option: ClassVar[str] = OFFSET_STORE
    store: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResponse(_Decided):
    """Write the response to a request into the group's record; with `state` None remove it. `ends`: the request is
    over.

    `pauses`: replace the request by a request for a pause.
    """

    request: str
    run: str
    state: str | None
    reason: str = ""  # why the request cannot be met
    ends: bool
    pauses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PokeMembers(_Decided):
    """Make old members rebalance: register a consumer without topics, and remove it in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup(_Decided):
    """Remove all nodes of the group, except those of its present members. Record and state come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectMember(_OfMember):
    """Tell a consumer that it cannot take part. `final`: it must not register again by itself."""

    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseForDraftMember(_OfMember):
    """Empty the owners of partitions that a draft-only consumer has stopped reading, since it cannot release them by
    itself."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberInstances(_Decided):
    """Write down the static members' shares and absences, and forget the members that are not waited for any more.

    `away` names those of `known` whose absence is noted now, `returned` those with a noted absence that are back.
    """

    known: Mapping[str, Instance]
    forgotten: tuple[str, ...]
    away: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaims(_OfMember):
    """Delete claims of an evicted consumer whose session goes on. `partitions` maps each to its offset's version."""

    partitions: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeChannel(_OfMember):
    """Remove the channel of a registration that is gone, with the commands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRefused(_OfMember):
    """Remove a command that its consumer did not understand. If it was a start, empty the owners that it names."""

    sequence: str


Decision = (
    FoundGroup
    | SetState
    | MarkTopic
    | RenewMark
    | LookUpTopic
    | DropTopic
    | StopFetching
    | GrantPartitions
    | EvictMember
    | WriteResponse
    | PokeMembers
    | RemoveGroup
    | RejectMember
    | RememberInstances
    | ReleaseForDraftMember
    | PingMember
    | ChangeStore
    | DeleteClaims
    | PurgeChannel
    | RemoveRefused
)


def written(state: GroupState, decisions: Sequence[Decision]) -> GroupState:
    """The group's state after these decisions; `state` if none of them changes it."""
    return next((decision.state for decision in reversed(decisions) if isinstance(decision, SetState)), state)
