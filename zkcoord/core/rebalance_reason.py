"""Says why the target has changed: members joined or left, or topics changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import some

Topics = Mapping[str, tuple[int, ...]]
Racks = Mapping[TopicPartition, frozenset[str]]

NAMES_MAX = 3
"""Number of names of each kind in the reason. The rest is only counted, so that the log line stays short."""


@dataclass(frozen=True, slots=True)
class RebalanceReason:
    """A group at the assignor's last answer, which made the present generation. The differences between it and the
    present group are the reason for the next generation. A new coordinator does not know earlier answers."""

    assignor: str | None = None
    members: frozenset[str] = frozenset()
    topics: Topics = field(default_factory=dict)
    racks: Racks = field(default_factory=dict)

    def told(self, assignor: str, members: Iterable[str], topics: Topics, racks: Racks) -> str:
        """The differences from the last answer, in one line."""
        another = "the target is another one"
        if self.assignor is None:
            return another
        now = frozenset(members)
        changed = {topic for topic in topics if self.topics.get(topic, ()) != topics[topic]}
        words = [
            _named(now - self.members, "can be given work"),
            _named(self.members - now, "cannot be given work any more"),
            _named(changed, "has other partitions"),
            _named(self.topics.keys() - topics.keys(), "is wanted no more, or gone"),
            _named(_moved(self.racks, racks), "has replicas in other racks"),
            f"the assignor is {assignor}" if assignor != self.assignor else "",
        ]
        known = "; ".join(word for word in words if word)
        return f"{another}: {known}" if known else another


def _moved(before: Racks, now: Racks) -> set[str]:
    """The topics whose known racks have changed."""
    if before == now or not before:
        return set()
    return {p.topic for p in before.keys() & now.keys() if before[p] != now[p]}


def _named(names: Iterable[str], what: str) -> str:
    """
    >>> _named({"b", "a"}, "left"), _named([str(n) for n in range(9)], "left"), _named([], "left")
    ('a, b left', '0, 1, 2 and 6 more left', '')
    """
    return f"{some(sorted(names), NAMES_MAX)} {what}" if names else ""
