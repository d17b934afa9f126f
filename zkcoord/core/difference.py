"""What owners and target do not agree on: what is to be stopped, what is to be granted, and who owns what is wanted.

Most steps change neither, so the answer is kept for the pair that it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner

_NOBODY = Owner("", -1)

Pairs = tuple[tuple[TopicPartition, str], ...]


class Difference(NamedTuple):
    """Between the owners and the assignment that is wanted."""

    misplaced: Pairs = ()  # owned, and not where it is wanted: the thread that owns it
    lacking: Pairs = ()  # wanted, and not there: the thread that is to own it
    owning: frozenset[str] = frozenset()  # threads that own what is wanted; "" when nobody owns some of it


def difference(owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> Difference:
    """In the order of the two mappings.

    >>> t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> difference({t0: Owner("a-0", 7)}, {t0: "b-0", t1: "b-0"}).lacking
    ((TopicPartition(topic='t', partition=0), 'b-0'), (TopicPartition(topic='t', partition=1), 'b-0'))
    """
    misplaced = [(p, thread) for p, (thread, _) in owners.items() if thread and wanted.get(p) != thread]
    holders = [thread for thread, _ in map(owners.get, wanted, repeat(_NOBODY))]
    lacking = [pair for pair, holder in zip(wanted.items(), holders, strict=True) if pair[1] != holder]
    return Difference(tuple(misplaced), tuple(lacking), frozenset(holders))


@dataclass(frozen=True, slots=True)
class Differences:
    """The last answer. Invariant: it is that of `_owners` and `_wanted`, which nobody changes."""

    _owners: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    _wanted: Mapping[TopicPartition, str] = field(default_factory=dict)
    answer: Difference = Difference()  # noqa: RUF009 - a frozen value

    def are_of(self, owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> bool:
        """True when the answer is that of these two, known by identity."""
        return owners is self._owners and wanted is self._wanted

    def between(self, owners: Mapping[TopicPartition, Owner], wanted: Mapping[TopicPartition, str]) -> Differences:
        """With `difference` as its answer, made anew when one of the two is another one."""
        if self.are_of(owners, wanted):
            return self
        return Differences(owners, wanted, difference(owners, wanted))
