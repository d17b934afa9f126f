"""A coordinator's decisions, in the imperative; each says why. A closed union: match it with `assert_never`."""

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
    """Make the record and state of a group that is seen for the first time."""


class StateEvent(Enum):
    """The meaning of a change of the group's state. The value is the event's name in the log."""

    REBALANCE_STARTED = "rebalance_started"  # the target is another one: written before anything that serves it
    STOPPING = "stopping"  # eager: from now on everybody stops, and nothing is granted
    STOPPED = "stopped"  # that is over
    REBALANCE_FAILED = "rebalance_failed"  # given up, by the group's policy: ConsumerRebalanceFailed
    REBALANCE_RECOVERED = "rebalance_recovered"
    QUARANTINED = "quarantined"  # the quarantined partitions, or the forgiven refusals, have changed
    REPLAY_KEPT = "replay_kept"  # the announced ranges that stand nowhere else have changed
    ASSIGNMENT_PROBLEM = "assignment_problem"  # why the assignment is not what was asked for, and who must act
    ASSIGNMENT_AS_ASKED = "assignment_as_asked"
    MODE_CHANGED = "mode_changed"  # coordinated, mixed or observed: old members came, or have gone
    GROUP_EMPTY = "group_empty"  # the time without members, as far as coordinators have seen it


@dataclass(frozen=True, slots=True, kw_only=True)
class SetState(_Decided):
    """Write the group's state. It contains the changes of the decisions before it in the same step: see `written`."""

    state: GroupState
    event: StateEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkTopic(_OfTopic):
    """Note which incarnation of a topic the group's owners and offsets belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewMark(_OfTopic):
    """Write a topic's mark anew, with the same incarnation: the topic is the same, its czxid or id is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTopic(_OfTopic):
    """Read what is left of a topic that is not the group's any more; nothing is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTopic(_OfTopic):
    """Empty or remove the owners of a topic, remove its offsets; `again`: then mark its next incarnation, else none."""

    again: bool
    offsets: Mapping[TopicPartition, OffsetSeen]  # what is dropped, as it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFetching(_OfMember):
    """Tell a consumer to stop reading partitions and release them; the map names the thread meant to be next, or ""."""

    partitions: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPartitions(_OfMember):
    """Set the owners of available partitions to a consumer's threads, and tell it to start."""

    partitions: Mapping[TopicPartition, str]
    replay: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)  # announced, and to be done first


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMember(_OfMember):
    """End a consumer's registration; `sequence` is the command that it did not acknowledge.

    None: it answers, but is dead inside; then its last status is what must still hold.
    """

    sequence: str | None
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMember(_OfMember):
    """Send a consumer a command that names no partition. Its status, which tells what came of it, is read then."""

    option: ClassVar[str]  # the kind of the command


@dataclass(frozen=True, slots=True, kw_only=True)
class PingMember(ControlMember):
    """Ask a consumer to prove that it is alive: it answers at once, with its status."""

    option: ClassVar[str] = PING


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStore(ControlMember):
    """Tell a consumer to use another offset store from now on; `step` is the number of the group's step to it."""

    option: ClassVar[str] = OFFSET_STORE
    store: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResponse(_Decided):
    """Write the response to a request into the group's record (None: remove it); `ends`: the request is over.

    `pauses`: a pause is requested in its place.
    """

    request: str
    run: str
    state: str | None
    reason: str = ""  # why it cannot be met
    ends: bool
    pauses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PokeMembers(_Decided):
    """Make old members rebalance: register somebody without topics, and remove it in the same transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup(_Decided):
    """Remove all nodes of the group, except those of its present members; record and state at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectMember(_OfMember):
    """Tell a consumer that it cannot take part; `final`: it is not to register again by itself."""

    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseForDraftMember(_OfMember):
    """Empty the owners that a draft-only consumer has stopped reading: it cannot release them by itself."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberInstances(_Decided):
    """Write down what static members have and who is away, and forget those that are not waited for any more.

    `away`, `returned`: of the `known` those whose absence is noted now, and those that were noted and are back.
    """

    known: Mapping[str, Instance]
    forgotten: tuple[str, ...]
    away: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaims(_OfMember):
    """Delete claims of an evicted consumer whose session goes on; `partitions`: with the versions of their offsets."""

    partitions: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeChannel(_OfMember):
    """Remove the channel of a registration that is gone, with what still stands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRefused(_OfMember):
    """Remove a command that its consumer could not understand, and free what a refused start named."""

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
    """The state that these decisions leave, beginning with `state`."""
    return next((decision.state for decision in reversed(decisions) if isinstance(decision, SetState)), state)
