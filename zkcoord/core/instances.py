"""Static members: an instance's share waits for its return, and the older of two registrations is rejected.

The state remembers each instance with its last id and share, so a clean leave or a failover forgets neither. While an
instance is away, its share is kept for `hold_ms` from the moment at which THIS coordinator first saw the absence. An
eviction or a requested rebalance ends the hold. When the instance returns, the assignor answers as if it had never been
away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from zkcoord.core.model import TopicPartition, consumer_of, json_bytes, number_of, thread_id
from zkcoord.core.requests import rebalancing
from zkcoord.core.view import GroupView, Instance, Member

HELD_OFF_MS = (1_000, 2_000, 5_000, 10_000, 30_000)
"""ms for which an evicted instance is given nothing. Each further eviction takes the next wait. The coordinator waits,
since the instance may register again at once."""

EVICTIONS_FORGOTTEN_MS = 600_000
"""ms without an eviction after which an instance begins with the shortest wait again."""

REMEMBERED_BYTES_MAX = 768 * 1024
"""The most bytes of one static member in the state, which is one node and one multi. A member whose topics' names take
more (about 7,000 topics, by a wildcard) is not waited for."""


@dataclass(frozen=True, slots=True)
class StaticMemberTimers:
    """The first sights of one group's instances. `seen` must be called with every view before any other method."""

    _away: Mapping[str, int] = field(default_factory=dict)  # instance -> first sight of its absence
    _names: Mapping[str, str] = field(default_factory=dict)  # consumer -> its instance
    _evictions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # instance -> (number of evictions, first sight of the last one)

    def seen(self, view: GroupView, now_ms: int) -> StaticMemberTimers:
        """Return a copy that includes the absent instances and the evictions of this view."""
        newest = _newest(view.members.values())
        # the end of a superseded member tells nothing
        names = {m.consumer_id: instance for instance, m in newest.items()}
        present = newest.keys()
        away = {i: self._away.get(i, now_ms) for i in view.instances if i not in present}
        evictions = {
            i: (count, at_ms)
            for i, (count, at_ms) in self._evictions.items()
            if now_ms < at_ms + EVICTIONS_FORGOTTEN_MS
        }
        gone = {c: i for c, i in self._names.items() if c not in view.members and c in view.channels}
        for consumer_id, instance in gone.items():
            if view.channels[consumer_id].evicted_ms is not None:
                evictions[instance] = (evictions.get(instance, (0, 0))[0] + 1, now_ms)
                continue
            names[consumer_id] = instance  # its eviction mark may be read later than its absence
        return StaticMemberTimers(away, names, evictions)

    def held(self, view: GroupView, now_ms: int) -> list[Member]:
        """Return the former members of instances that are away and waited for, sorted by instance."""
        return [
            Member(
                consumer_id=known.last_id,
                czxid=0,
                threads=known.threads,
                instance=i,
                hold_ms=known.hold_ms,
                rack=known.rack,
                capacity=known.capacity,
            )
            for i in sorted(self._away)
            if not self._over(view, i, now_ms)
            for known in [view.instances[i]]
        ]

    def over(self, view: GroupView, now_ms: int) -> list[str]:
        """The absent instances whose hold is over, sorted."""
        return [i for i in sorted(self._away) if self._over(view, i, now_ms)]

    def _over(self, view: GroupView, instance: str, now_ms: int) -> bool:
        known = view.instances[instance]
        channel = view.channels.get(known.last_id)
        evicted = channel is not None and channel.evicted_ms is not None
        return evicted or rebalancing(view) or now_ms >= self._away[instance] + known.hold_ms

    def held_off(self, member: Member, now_ms: int) -> bool:
        """True while an evicted instance is given nothing."""
        return member.instance is not None and now_ms < self._held_off_until_ms(member.instance)

    def _held_off_until_ms(self, instance: str) -> int:
        count, at_ms = self._evictions.get(instance, (0, 0))
        return at_ms + HELD_OFF_MS[min(count, len(HELD_OFF_MS)) - 1] if count else 0

    def wake_at_ms(self, view: GroupView, now_ms: int) -> int | None:
        """When the next hold, or the next wait of an evicted instance, ends."""
        times = [at_ms + view.instances[i].hold_ms for i, at_ms in self._away.items()]
        times += [self._held_off_until_ms(i) for i in self._evictions]
        return min((at_ms for at_ms in times if at_ms > now_ms), default=None)


def superseded(members: Sequence[Member]) -> dict[str, str]:
    """The members to reject because a newer registration (higher czxid) has the same instance and does not replace
    them; each with the reason."""
    newest = _newest(members)
    return {
        m.consumer_id: f"another process has registered as the instance {m.instance}: {newest[m.instance].consumer_id};"
        " stop one of the two, or give it another name"
        for m in members
        if m.instance is not None and newest[m.instance] is not m
    }


def _newest(members: Iterable[Member]) -> dict[str, Member]:
    """Instance -> the member that registered last with it."""
    named = sorted((m for m in members if m.instance is not None), key=lambda m: (m.czxid, m.consumer_id))
    return {m.instance: m for m in named if m.instance is not None}


def remembered(view: GroupView, members: Iterable[Member]) -> dict[TopicPartition, str]:
    """The free partitions that count as owned by these members: the share of their instance, and those of members that
    they replace."""
    found: dict[TopicPartition, str] = {}
    heirs: dict[str, Member] = {}
    for member in members:
        known = view.instances.get(member.instance) if member.instance is not None else None
        for partition, number in known.share.items() if known is not None else ():
            if member.threads.get(partition.topic, 0) > number:
                found.setdefault(partition, thread_id(member.consumer_id, number))
        if member.replaces is not None and member.replaces in view.members:
            heirs[member.replaces] = member
    for partition, (thread, _) in view.owners.items() if heirs else ():
        heir = heirs.get(consumer_of(thread))
        if heir is not None and heir.threads.get(partition.topic, 0) > number_of(thread):
            found[partition] = thread_id(heir.consumer_id, number_of(thread))
    return found


def stable_name(thread: str, static: Mapping[str, str]) -> str:
    """The name of a thread in the target's digest. A static member's name contains its instance, so its return is no
    change.

    >>> stable_name("g_a-1-ff-0", {"g_a-1-ff": "a"}), stable_name("g_b-1-ff-0", {})
    ('@a-0', 'g_b-1-ff-0')
    """
    instance = static.get(consumer_of(thread))
    return thread if instance is None else f"@{instance}-{number_of(thread)}"


def assignor_of(view: GroupView) -> str | None:
    """The assignor that gave the static members their shares. None: there is none, or a rebalance is requested.

    The group keeps it while all members can use it, whoever is away or returns as the youngest member. So a rolling
    restart moves nothing. A requested rebalance ends that, as it ends the holds.
    """
    if rebalancing(view):
        return None
    present = {m.instance for m in view.members.values()}
    names = [(i not in present, i, known.assignor) for i, known in view.instances.items() if known.assignor]
    return min(names)[2] if names else None


def to_remember(answer: Mapping[TopicPartition, str], members: Iterable[Member], assignor: str) -> dict[str, Instance]:
    """Instance -> what the state must remember of it once this answer is the target."""
    shares: dict[str, dict[TopicPartition, int]] = {m.consumer_id: {} for m in members if is_static(m)}
    if not shares:
        return {}
    for partition, thread in answer.items():
        share = shares.get(consumer_of(thread))
        if share is not None:
            share[partition] = number_of(thread)
    made = {
        m.instance: Instance(
            last_id=m.consumer_id,
            hold_ms=m.hold_ms,
            threads=dict(m.threads),
            share=shares[m.consumer_id],
            rack=m.rack,
            capacity=m.capacity,
            assignor=assignor,
        )
        for m in sorted(members, key=lambda m: m.consumer_id)
        if m.instance is not None and m.consumer_id in shares
    }
    return {i: instance for i, instance in made.items() if state_bytes(instance) <= REMEMBERED_BYTES_MAX}


def state_bytes(instance: Instance) -> int:
    """The most bytes that an instance takes in the state: its texts, and its share as ranges."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for partition, thread in instance.share.items():
        numbers.setdefault((partition.topic, thread), []).append(partition.partition)
    size = 300 + json_bytes(instance.last_id) + json_bytes(instance.rack or "")
    size += sum(json_bytes(topic) + 9 for topic in instance.threads)
    for (topic, _), ids in numbers.items():
        ids.sort()
        runs = 1 + sum(after - before > 1 for before, after in pairwise(ids))
        size += json_bytes(topic) + 15 + runs * (2 * len(str(ids[-1])) + 2)
    return size


def is_static(member: Member) -> bool:
    """True when the member's share must wait for its return."""
    return member.instance is not None and member.hold_ms > 0
