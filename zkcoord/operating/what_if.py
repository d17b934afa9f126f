"""Computes a group's assignment under a different assumption, from a view of the group. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkcoord.core.assignors import ASSIGNORS
from zkcoord.core.coordinate import decide
from zkcoord.core.memory import Memory
from zkcoord.core.model import TopicPartition, consumer_of
from zkcoord.core.view import GroupView
from zkcoord.errors import UsageError
from zkcoord.tree.state import digest

NEW_MEMBER = "new-member-"
MEMBERS_MAX = 10_000  # each is computed in memory; a group has far fewer
PARTITIONS_MAX = 100_000  # of one topic; each is computed in memory, and a topic has far fewer

Move = tuple[TopicPartition, str, str | None]
"""A partition, its owner now ("": no living owner), and its owner under the assumption (None: nobody)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The assumption. `partitions`: topic -> its number of partitions."""

    added: int = 0
    removed: Sequence[str] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)
    assignor: str | None = None


def moves_if(view: GroupView, change: Change) -> list[Move]:
    """Return the partitions that would move. Raise UsageError for an assumption that is impossible for this group, and
    beside old members, which do not ask an assignor."""
    if view.observed or not view.mode.coordinated:
        why = "it is not adopted" if view.observed else f"{view.mode.mode.value}: {view.mode.why}"
        raise UsageError(
            f"group {view.group} ({why}): its old members compute the assignment, and `zkcoord group plan --dump FILE` "
            "tells what they would settle on"
        )
    assumed = _changed(view, change)
    target = decide(assumed, Memory(), 0, digest, ASSIGNORS).memory.target.assignment
    living = view.living_threads()
    owned = {p: owner.thread for p, owner in view.owners.items() if owner.thread in living}
    found = [(p, owned.get(p, ""), target.get(p)) for p in sorted(owned.keys() | target.keys())]
    return [each for each in found if (each[1] or None) != each[2]]


def _changed(view: GroupView, change: Change) -> GroupView:
    if change.added > MEMBERS_MAX:
        raise UsageError(f"--add-member {change.added}: at most {MEMBERS_MAX} can be assumed")
    members, channels, topics = dict(view.members), dict(view.channels), dict(view.topics)
    record = view.record
    if change.assignor is not None:
        if change.assignor not in ASSIGNORS:
            raise UsageError(f"--assignor {change.assignor}: choose from {', '.join(sorted(ASSIGNORS))}")
        record = replace(record, assignor=change.assignor)
        members = {c: replace(m, assignors=tuple({change.assignor, *m.assignors})) for c, m in members.items()}
    for topic, number in change.partitions.items():
        if topic not in topics:
            raise UsageError(f"--partitions {topic}={number}: the group reads no such topic")
        if number < len(topics[topic]):
            raise UsageError(f"--partitions {topic}={number}: it has {len(topics[topic])}, and Kafka removes none")
        if number > PARTITIONS_MAX:
            raise UsageError(f"--partitions {topic}={number}: at most {PARTITIONS_MAX} can be assumed")
        topics[topic] = tuple(range(number))
    model = max(members.values(), key=lambda member: member.czxid, default=None)
    for consumer in change.removed:
        if consumer not in members:
            raise UsageError(
                f"--remove-member {consumer}: it is no member; `zkcoord group members {view.group}` shows them"
            )
        del members[consumer]
        channels.pop(consumer, None)
    if model is None:
        if change.added:
            raise UsageError("--add-member: the group has no member like which another one could be assumed")
        return replace(view, topics=topics, record=record)
    for n in range(1, change.added + 1):
        name = f"{NEW_MEMBER}{n}"
        members[name] = replace(model, consumer_id=name, czxid=model.czxid + n, instance=None, hold_ms=0)
        source = view.channels.get(model.consumer_id)
        if source is not None:
            channels[name] = replace(source, consumer_id=name, commands=(), held=frozenset())
    owners = {
        p: owner if consumer_of(owner.thread) not in change.removed else owner._replace(thread="")
        for p, owner in view.owners.items()
    }
    return replace(view, members=members, channels=channels, topics=topics, record=record, owners=owners)
