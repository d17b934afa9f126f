"""What a coordinator wants of one group: view and memory in, decisions out. Deciding twice gives the same.

Reconciliation is set arithmetic on three maps from partition to thread (KIP-429, KIP-848 in Kafka's words):

    owned   what the owner nodes say             stop   = owned by the living, not where the target has it
    target  what the assignor answered           grant  = available, and in the target
    named   what outstanding commands are about  neither touches what a command of that consumer still names

The decisions hold only what can be done now; the rest becomes possible when something is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.core.assignors import ASSIGNORS, AssignorInput, check_assignment
from zkcoord.core.decisions import (
    Decision,
    EvictMember,
    FailGroup,
    FoundGroup,
    GrantPartitions,
    MarkTopic,
    PurgeChannel,
    RaiseGeneration,
    RejectMember,
    RemoveRefused,
    StopFetching,
)
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.core.patience import Patience
from zkcoord.core.view import GroupView, Member, Outstanding, Owner

Digest = Callable[[Mapping[TopicPartition, str]], str]


@dataclass(slots=True)
class Memory:
    """What this coordinator remembers of a group between two steps; lost at a failover without harm.

    Invariant: `target` and `digest` belong to `target_key`; everything else is first sights on the monotonic clock.
    """

    patience: Patience = field(default_factory=Patience)
    target_key: object = None
    target: Mapping[TopicPartition, str] = field(default_factory=dict)
    digest: str = ""


def decide(view: GroupView, memory: Memory, now_ms: int, digest: Digest) -> tuple[tuple[Decision, ...], int | None]:
    """Decisions for a group, in the order of writing, and when to decide again at the latest (monotonic ms)."""
    if view.unreadable is not None:
        return (), None
    if view.record_version is None or view.state_version is None:
        return (FoundGroup(why="first sight of the group"),), None
    patience = memory.patience
    patience.look(view, now_ms)
    candidates = _candidates(view)
    assignor, rejected = agree(candidates, view.assignor)
    eligible = [m for m in candidates if m.consumer_id not in rejected]
    decisions: list[Decision] = [RejectMember(consumer_id=c, reason=r, why=r) for c, r in rejected.items()]
    decisions += _refused_commands(view)
    _retarget(view, memory, assignor, eligible, digest)
    if memory.digest != view.target_digest and (memory.target or view.target_digest):
        decisions.append(
            RaiseGeneration(generation=view.generation + 1, digest=memory.digest, why="the target is another one")
        )
    decisions += [
        MarkTopic(topic=topic, why="members subscribe to it")
        for topic in sorted({p.topic for p in memory.target} - view.marked)
    ]
    decisions += _stops(view, memory.target)
    decisions += _grants(view, memory, now_ms)
    decisions += _overdue(view, patience, now_ms)
    decisions += _purges(view, memory, now_ms)
    return tuple(decisions), patience.wake_at_ms(view, now_ms)


def agree(candidates: Sequence[Member], decided: str | None) -> tuple[str, dict[str, str]]:
    """The assignor that all can use, and whom to send away for leaving nothing in common (design, section 4).

    Candidates in the order of joining; the one `decided` in the group's record counts before all, then the oldest
    member's preference.
    """
    rejected: dict[str, str] = {}
    common = [decided] if decided in ASSIGNORS else []
    for member in sorted(candidates, key=lambda m: (m.czxid, m.consumer_id)):
        offered = [name for name in member.assignors if name in ASSIGNORS]
        shared = [name for name in common if name in offered] if common else offered
        if shared:
            common = shared
        else:
            rejected[member.consumer_id] = (
                f"offers the assignors {list(member.assignors)}, the group uses {common or sorted(ASSIGNORS)}"
            )
    return (common[0] if common else "sticky"), rejected


def _candidates(view: GroupView) -> list[Member]:
    """Members that could be given work: readable, of this protocol, with a channel, not asked to go."""
    replaced = {m.replaces for m in view.members.values() if m.replaces}
    found = []
    for consumer_id, member in view.members.items():
        channel = view.channels.get(consumer_id)
        if member.unreadable or not member.coordinated or channel is None or channel.evicted:
            continue
        if consumer_id in replaced or (member.stores and view.store not in member.stores):
            continue
        if any(command.option == "reject" for command in channel.commands):
            continue
        found.append(member)
    return found


def _retarget(view: GroupView, memory: Memory, assignor: str, eligible: list[Member], digest: Digest) -> None:
    """Ask the assignor again when what it depends on has changed; else the target stands (a step costs its change)."""
    subscribers = tuple(
        Subscriber(consumer_id=m.consumer_id, threads=m.threads) for m in sorted(eligible, key=lambda m: m.consumer_id)
    )
    key = (assignor, tuple((s.consumer_id, tuple(sorted(s.threads.items()))) for s in subscribers), view.topics)
    if memory.target_key == key:
        return
    wanted = {topic for s in subscribers for topic in s.threads}
    topics = {topic: ids for topic, ids in view.topics.items() if topic in wanted}
    eligible_ids = {s.consumer_id for s in subscribers}
    owned = {p: t for p, t in view.held() if consumer_of(t) in eligible_ids}
    preferred: dict[TopicPartition, str] = {}
    for channel in view.channels.values():
        for command in channel.commands:
            if command.option == "stop-fetcher" and command.threads:
                for partition, thread in command.threads.items():
                    owned.pop(partition, None)
                    if thread and consumer_of(thread) in eligible_ids:
                        preferred[partition] = thread
    question = AssignorInput(subscribers=subscribers, partitions=topics, owned=owned, preferred=preferred)
    answer = ASSIGNORS[assignor](question)
    check_assignment(question, answer)
    memory.target_key = key
    memory.target = answer
    memory.digest = digest(answer)


def _stops(view: GroupView, target: Mapping[TopicPartition, str]) -> list[Decision]:
    stops: dict[str, dict[TopicPartition, str]] = defaultdict(dict)
    for partition, thread in view.held():
        if target.get(partition) == thread:
            continue
        holder = consumer_of(thread)
        channel = view.channels.get(holder)
        if channel is not None and not channel.names(partition):
            stops[holder][partition] = target.get(partition, "")
    return [
        StopFetching(consumer_id=c, partitions=dict(sorted(stops[c].items())), why="the target has them elsewhere")
        for c in sorted(stops)
    ]


def _grants(view: GroupView, memory: Memory, now_ms: int) -> list[Decision]:
    grants: dict[str, dict[TopicPartition, str]] = defaultdict(dict)
    patience = memory.patience
    owners = view.owners
    for partition, thread in memory.target.items():
        owner = owners.get(partition)
        if owner is not None and owner.thread == thread:
            continue
        if not available(view, patience, partition, owner, now_ms):
            continue
        receiver = consumer_of(thread)
        channel = view.channels.get(receiver)
        if channel is None or receiver not in view.members or channel.names(partition):
            continue
        if not patience.held_back(receiver, partition, now_ms):
            grants[receiver][partition] = thread
    return [
        GrantPartitions(consumer_id=c, partitions=dict(sorted(grants[c].items())), why="available, and in the target")
        for c in sorted(grants)
    ]


def available(view: GroupView, patience: Patience, partition: TopicPartition, owner: Owner | None, now_ms: int) -> bool:
    """True when the owner node is absent or empty, or names a registration that is gone and past any grace.

    An owner that names no thread is nobody's and not free: somebody overwrote it, perhaps under a reader.
    """
    if owner is None or not owner.thread:
        return True
    holder = consumer_of(owner.thread)
    return holder != "" and holder not in view.members and not patience.in_grace(view, holder, now_ms)


def _refused_commands(view: GroupView) -> list[Decision]:
    return [
        RemoveRefused(consumer_id=c, sequence=command.sequence, why=f"its consumer refused it: {command.error}")
        for c in sorted(view.channels)
        for command in view.channels[c].commands
        if command.error is not None
    ]


def _overdue(view: GroupView, patience: Patience, now_ms: int) -> list[Decision]:
    """Members whose patience is over: evicted, or the group is marked failed, by its policy."""
    decisions: list[Decision] = []
    error = None
    for consumer_id, command in patience.overdue(view, now_ms):
        member = view.members[consumer_id]
        why = f"{command.option} {command.sequence} was not acknowledged within its retries"
        if view.on_timeout == "evict":
            decisions.append(_evict(member, command, why))
        elif error is None:
            error = f"ConsumerRebalanceFailed: {consumer_id}: {why}"
    if error != view.failed:
        decisions.append(FailGroup(error=error, why=error or "acknowledged after all"))
    return decisions


def _evict(member: Member, command: Outstanding, why: str) -> EvictMember:
    return EvictMember(
        consumer_id=member.consumer_id,
        sequence=command.sequence,
        session_timeout_ms=member.session_timeout_ms,
        why=why,
    )


def _purges(view: GroupView, memory: Memory, now_ms: int) -> list[Decision]:
    """Channels without a registration; an evicted one's stays through its grace, and while it owns what is wanted."""
    orphans = [c for c in sorted(view.channels) if c not in view.members]
    if not orphans:
        return []
    patience = memory.patience
    wanted = (view.owners.get(partition) for partition in memory.target)
    owning = {consumer_of(owner.thread) for owner in wanted if owner is not None and owner.thread}
    decisions: list[Decision] = []
    for consumer_id in orphans:
        channel = view.channels[consumer_id]
        if channel.version == 0 and not channel.evicted and not patience.abandoned(consumer_id, now_ms):
            continue
        if channel.evicted and (consumer_id in owning or patience.in_grace(view, consumer_id, now_ms)):
            continue
        decisions.append(PurgeChannel(consumer_id=consumer_id, why="its registration is gone"))
    return decisions
