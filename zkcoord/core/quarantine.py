"""Members that must not be given a partition, and partitions that no member is given for a while (F45).

A member that cannot start a partition says so in its status. The partition goes to another member, and the first one is
not asked again while that entry exists and another member can have it. A *strike* against a partition is a living
member that refused it, or an eviction of its owner. At strikes by STRIKES_MAX different consumers the partition is
quarantined and shown, since it would break one after the other. A member that joined after all of those is given one
try, since it may be mended. A requested rebalance forgives all strikes; the state remembers this as long as a status
contains a forgiven refusal. A broker that is away, or does not know a new partition yet, makes no strike. Nor does an
unreadable offset, nor a registration that just ends: else a flapping ensemble would quarantine everything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.decisions import Decision, SetState, StateEvent, written
from zkcoord.core.model import TopicPartition, consumer_of, json_bytes
from zkcoord.core.requests import rebalancing
from zkcoord.core.state import Quarantine
from zkcoord.core.view import TAKEN, GroupView, Member, Refusal

BROKER, UNREADABLE_OFFSET = "broker", "unreadable offset"
"""The first words of refusals that are no strike. The first: Kafka could not be reached, or does not know the partition
yet. The second: the committed offset is unreadable until an operator mends it. (A partition that another session has
claimed is no strike, either.)"""

STRIKES_MAX = 3
"""Number of different consumers with a strike: one may be ill, and a second with it, but hardly a third."""

WHY_CHARS_MAX = 600
"""Characters of a quarantined partition's reason, which holds the ids of its consumers and the last one's reason."""

QUARANTINED_BYTES_MAX = 256 * 1024
"""Bytes of all quarantined partitions in a group's state, which is one node. Partitions beyond it are tried again and
again."""

FORGIVEN_BYTES_MAX = 64 * 1024
"""Bytes of the forgiven refusals in the state, about 700 members. Refusals beyond it count again after the request."""

_Strikes = Mapping[
    TopicPartition, Mapping[str, int]
]  # partition -> consumer with a strike -> czxid; members with a higher czxid are newer


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Pairs of partition and consumer that do not fit, and partitions that are given to nobody.

    `newer`: for partitions that only newer members are given, the czxid that those members must exceed.
    """

    pairs: frozenset[tuple[TopicPartition, str]] = frozenset()
    newer: Mapping[TopicPartition, int] = field(default_factory=dict)
    quarantined: Mapping[TopicPartition, Quarantine] = field(default_factory=dict)
    forgiven: Mapping[str, str] = field(default_factory=dict)  # as `GroupView.forgiven`

    def excludes(self, partition: TopicPartition, consumer_id: str, joined: Mapping[str, int]) -> bool:
        """True when the consumer must not be given the partition. `joined` maps members to czxids; for a missing one
        only pairs count."""
        if (partition, consumer_id) in self.pairs:
            return True
        newest = self.newer.get(partition)
        return newest is not None and consumer_id in joined and joined[consumer_id] <= newest


@dataclass(frozen=True, slots=True)
class Quarantines:
    """One group's strikes. `seen` must be called with every view before any other method."""

    _evictions: _Strikes = field(default_factory=dict)
    _counted: frozenset[str] = frozenset()  # evicted consumers whose partitions were struck
    pardoned: frozenset[TopicPartition] = frozenset()  # partitions whose strikes an open request has forgiven

    def seen(self, view: GroupView) -> Quarantines:
        """Return a copy with new evictions, each counted once, and without those that a request has forgiven."""
        channels = view.channels.items()
        marked = frozenset(c for c, channel in channels if channel.evicted_ms is not None and c not in view.members)
        evictions, new = self._evictions, marked - self._counted
        if new:
            evictions, newest = dict(evictions), max((m.czxid for m in view.members.values()), default=0)
            for partition, (thread, _) in view.owners.items():
                if consumer_of(thread) in new:
                    evictions[partition] = {**evictions.get(partition, {}), _who(consumer_of(thread)): newest}
        if not rebalancing(view):
            return Quarantines(evictions, marked)
        refused = (partition for _, partition, _ in _refusals(view))
        return Quarantines({}, marked, self.pardoned.union(view.state.quarantined, evictions, refused))

    def pending(
        self,
        view: GroupView,
        target: Container[TopicPartition],
        timeouts: AckTimeouts,
        decisions: Sequence[Decision],
        now_ms: int,
    ) -> bool:
        """True while a partition that a request forgave cannot be granted yet: an eager group stops, or a grace goes
        on.

        Without the request the next coordinator would not forgive it. A group that is given up is not waited for.
        """
        pardoned = [partition for partition in self.pardoned if partition in target]
        if any(isinstance(d, SetState) and d.event is StateEvent.REBALANCE_FAILED for d in decisions):
            return False
        stopping = written(view.state, decisions).stopping
        owners = {consumer_of(view.owners[partition].thread) for partition in pardoned if partition in view.owners}
        return bool(pardoned) and (stopping or any(timeouts.in_grace(view, owner, now_ms) for owner in owners))

    def exclusions(self, view: GroupView, eligible: Sequence[Member]) -> Exclusions:
        """The exclusions for this view."""
        if not self._evictions and not view.state.quarantined and not any(c.refusals for c in view.channels.values()):
            return Exclusions()
        forgiven, requested = _forgiven(view), rebalancing(view)
        pairs: set[tuple[TopicPartition, str]] = set()
        strikes: dict[TopicPartition, dict[str, int]] = {}
        reasons: dict[TopicPartition, str] = {}
        for consumer_id, partition, refusal in _refusals(view):
            if not (requested or _covered(refusal, forgiven.get(consumer_id, ""))):
                pairs.add((partition, consumer_id))
                struck = strikes.setdefault(partition, dict(self._evictions.get(partition, {})))
                struck[consumer_id] = view.members[consumer_id].czxid
                reasons[partition] = refusal.reason
        broken = {p: by for p, by in {**self._evictions, **strikes}.items() if len(by) >= STRIKES_MAX}
        newest_reader, newer = _newest_reader(eligible), dict[TopicPartition, int]()
        newest = max((m.czxid for m in view.members.values()), default=0)
        quarantined = _standing(view, newest_reader)
        room = QUARANTINED_BYTES_MAX - sum(state_bytes(p, entry) for p, entry in quarantined.items())
        for partition, by in sorted(broken.items()):
            if partition in quarantined:
                continue
            owner, last = _owner(view, partition), max(by.values())
            if owner is not None and owner.czxid <= last:
                continue  # the eviction was forgiven
            if owner is None and newest_reader(partition.topic) <= last:
                why = f"broke {', '.join(sorted(by))}: {reasons.get(partition, 'evicted')}"
                entry = Quarantine(why[:WHY_CHARS_MAX], newest)
                room -= state_bytes(partition, entry)
                if room >= 0:
                    quarantined[partition] = entry
                    continue
            # also for a member in its try: else the partition would go to another, be free on the way, and return, for
            # ever
            newer[partition] = last
        return Exclusions(pairs=frozenset(pairs), newer=newer, quarantined=quarantined, forgiven=forgiven)


def state_bytes(partition: TopicPartition, entry: Quarantine) -> int:
    """The most bytes of an entry in the state."""
    return len(f"{partition.topic}{partition.partition}{entry.czxid}") + json_bytes(entry.why) + 30


def _who(consumer_id: str) -> str:
    """The id without its time and random part. So a program that is evicted again and again counts once.

    >>> _who("g_etl-1-1795229172529-931c1cca")
    'g_etl-1'
    """
    return consumer_id.rsplit("-", 2)[0]


def _refusals(view: GroupView) -> list[tuple[str, TopicPartition, Refusal]]:
    """Starts that living members refused, through a fault of the member or of the partition; sorted."""
    return [
        (c, partition, refusal)
        for c in sorted(view.channels.keys() & view.members.keys())
        for partition, refusal in sorted(view.channels[c].refusals.items())
        if not refusal.reason.startswith((BROKER, UNREADABLE_OFFSET, TAKEN))
    ]


def _covered(refusal: Refusal, last: str) -> bool:
    return "" < refusal.sequence <= last


def _forgiven(view: GroupView) -> dict[str, str]:
    """The forgiven refusals for the state. With a request all present ones; later those of them that are still in a
    status."""
    requested, found, room = rebalancing(view), dict[str, str](), FORGIVEN_BYTES_MAX
    for consumer_id, _, refusal in _refusals(view) if requested or view.state.forgiven else ():
        known = view.state.forgiven.get(consumer_id, "")
        if requested:
            found[consumer_id] = max(known, found.get(consumer_id, ""), refusal.sequence)
        elif _covered(refusal, known):
            found[consumer_id] = known
    for consumer_id, sequence in sorted(found.items()):
        room -= len(consumer_id) + len(sequence) + 6
        if not sequence or room < 0:
            del found[consumer_id]
    return found


def _owner(view: GroupView, partition: TopicPartition) -> Member | None:
    """The living member that reads a partition or is to start it. (A member that refuses a partition releases it in the
    same multi.)

    So a grant also stands for a coordinator that sees only the refusals.
    """
    owner = view.owners.get(partition)
    return None if owner is None else view.members.get(consumer_of(owner.thread))


def _newest_reader(eligible: Iterable[Member]) -> Callable[[str], int]:
    """Return a function from topic to the czxid of the newest member that may be given the topic; 0 when there is
    none."""
    newest_first = sorted(eligible, key=lambda m: -m.czxid)
    return cache(lambda topic: next((m.czxid for m in newest_first if m.threads.get(topic)), 0))


def _standing(view: GroupView, newest_reader: Callable[[str], int]) -> dict[TopicPartition, Quarantine]:
    """The quarantines of the state that have not ended: there is no newer member and no request."""
    if rebalancing(view):
        return {}
    return {
        partition: entry
        for partition, entry in view.state.quarantined.items()
        if _exists(view, partition) and newest_reader(partition.topic) <= entry.czxid
    }


def _exists(view: GroupView, partition: TopicPartition) -> bool:
    numbers = view.topics.get(partition.topic, ())
    place = bisect_left(numbers, partition.partition)
    return numbers[place : place + 1] == (partition.partition,)
