"""The difference between owners and target: partitions to stop, partitions to grant, and the threads that own wanted
partitions.

Most steps change neither, so the answer is kept together with its two mappings. When only some owners have changed, the
new answer is made from the former one and these owners, since a group may have 100,000 others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import is_, is_not
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner

_NOBODY = Owner("", -1)

Pairs = tuple[tuple[TopicPartition, str], ...]


class Difference(NamedTuple):
    """The difference between the owners and the target's assignment."""

    misplaced: Pairs = ()  # owned by another thread than the wanted one -> the thread that owns it
    lacking: Pairs = ()  # not owned by the wanted thread -> the wanted thread
    owning: frozenset[str] = frozenset()  # threads that own wanted partitions; "" if a wanted partition has no owner


def difference(owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> Difference:
    """Compute the difference, in the order of the two mappings.

    >>> t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> difference({t0: Owner("a-0", 7)}, {t0: "b-0", t1: "b-0"}).lacking
    ((TopicPartition(topic='t', partition=0), 'b-0'), (TopicPartition(topic='t', partition=1), 'b-0'))
    """
    return KeptDifference().between(owners, wanted).value


@dataclass(frozen=True, slots=True)
class KeptDifference:
    """Keeps the last answer. Invariant: it is the difference of `_owners` and `_wanted`, which nobody modifies."""

    _owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    _wanted: Mapping[TopicPartition, str] = field(default_factory=dict)
    value: Difference = Difference()
    _holders: Mapping[str, int] = field(default_factory=dict)  # thread -> number of wanted partitions that it owns

    def are_of(self, owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> bool:
        """True when the answer was computed from these two objects."""
        return owners is self._owners and wanted is self._wanted

    def between(self, owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> KeptDifference:
        """Return the difference of these two. It is computed from nothing when the assignment or the set of owner nodes
        has changed."""
        if self.are_of(owners, wanted):
            return self
        changed = changed_owners(self._owners, owners) if wanted is self._wanted else None
        if changed is None:
            return _whole(owners, wanted)
        return self._after(owners, changed) if changed else KeptDifference(owners, wanted, self.value, self._holders)

    def _after(self, owners: Mapping[TopicPartition, Owner], changed: Collection[TopicPartition]) -> KeptDifference:
        """Return the difference for these owners. Only `changed` differ from the former owners."""
        wanted, holders = self._wanted, Counter(self._holders)
        misplaced: dict[TopicPartition, str] = {}
        lacking: dict[TopicPartition, str] = {}
        for partition in changed:
            meant, thread = wanted.get(partition), owners[partition].thread
            if thread and meant != thread:
                misplaced[partition] = thread
            if meant is not None:
                holders[self._owners[partition].thread] -= 1
                holders[thread] += 1
                if meant != thread:
                    lacking[partition] = meant
        holders = +holders
        answer = Difference(
            _merged(self.value.misplaced, changed, misplaced, owners),
            _merged(self.value.lacking, changed, lacking, wanted),
            frozenset(holders),
        )
        return KeptDifference(owners, wanted, answer, holders)


def _whole(owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> KeptDifference:
    misplaced = [(p, thread) for p, (thread, _) in owners.items() if thread and wanted.get(p) != thread]
    held = [thread for thread, _ in map(owners.get, wanted, repeat(_NOBODY))]
    lacking = [pair for pair, holder in zip(wanted.items(), held, strict=True) if pair[1] != holder]
    holders = Counter(held)
    return KeptDifference(owners, wanted, Difference(tuple(misplaced), tuple(lacking), frozenset(holders)), holders)


def changed_owners(
    before: Mapping[TopicPartition, Owner], after: Mapping[TopicPartition, Owner]
) -> list[TopicPartition] | None:
    """The partitions whose owner object changed. None: the partitions or their order have changed.

    A reading copies the map and replaces only what was read. So the comparison is by identity, without a call for each
    entry.
    """
    if len(before) != len(after) or not all(map(is_, before, after)):
        return None
    return list(compress(after, map(is_not, before.values(), after.values())))


def _merged(
    former: Pairs,
    changed: Iterable[TopicPartition],
    now: dict[TopicPartition, str],
    order: Iterable[TopicPartition],
) -> Pairs:
    """The former pairs, in the order of `order`. For the partitions of `changed` they are replaced by those in
    `now`."""
    if not former and not now:
        return ()
    gone = set(changed)
    merged = {p: now[p] if p in gone else thread for p, thread in former if p not in gone or p in now}
    if now.keys() <= merged.keys():
        return tuple(merged.items())
    merged |= now
    return tuple((p, merged[p]) for p in order if p in merged)
