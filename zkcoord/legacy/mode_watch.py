"""The mode of one group over time. Registrations are taken in as they are read; the mode is computed again only when
something that it depends on has changed. Coordinators, members and tools use it. No socket, no clock.
"""

from __future__ import annotations

from collections.abc import Collection

from zkcoord.core.adoption import Adoption
from zkcoord.core.mode import COORDINATED, GroupMode
from zkcoord.legacy.modes import Neighbours, Registered, member_of, mode_of
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import Address, Place
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic_filter import INTERNAL


class ModeWatch:
    """Invariant: `_nodes` are the registrations as last read; `_members` are the members among them; `_neighbours` is
    made of `_members`, or None if it must be made again."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._nodes: dict[str, Node] = {}
        self._members: dict[str, Registered] = {}
        self._new: set[str] = set()  # registrations whose data changed since `mode` was last called
        self._since_ms: dict[str, int] = {}  # other registrations -> when their present data were first seen
        self._neighbours: Neighbours | None = Neighbours()
        self._wanted: tuple[object, frozenset[str]] = (None, frozenset())
        self._made: object = None  # the values from which `_mode` was computed
        self._mode = COORDINATED

    def take(self, address: Address, node: Node) -> None:
        """Take in a node that was read, if it is a registration or their list."""
        if address.place is Place.IDS:
            for name in self._nodes.keys() - set(node.children):
                self._forget(name)
        elif address.place is Place.REGISTRATION:
            known = self._nodes.get(address.name)
            if node.stat is None:
                if known is not None:
                    self._forget(address.name)
            elif known is None or (known.data, known.stat) != (node.data, node.stat):
                self._nodes[address.name] = node
                self._new.add(address.name)
                self._members.pop(address.name, None)
                member = member_of(self._group, address.name, node)
                if member is not None:
                    self._members[address.name] = member
                self._neighbours = None

    def _forget(self, name: str) -> None:
        del self._nodes[name]
        self._members.pop(name, None)
        self._new.discard(name)
        self._since_ms.pop(name, None)
        self._neighbours = None

    @property
    def neighbours(self) -> Neighbours:
        """The members as last read."""
        if self._neighbours is None:
            self._neighbours = Neighbours.these(self._members)
        return self._neighbours

    def topics(self, adoption: Adoption | None, names: Collection[str]) -> frozenset[str]:
        """Return the topics that the plan depends on; none while all members are ours, and none without an adoption.
        `names`: all topics that exist."""
        neighbours = self.neighbours
        if adoption is None or not neighbours.old:
            return frozenset()
        key = (neighbours, adoption, names)
        made = self._wanted[0]
        if not (isinstance(made, tuple) and made[0] is neighbours and made[1:] == key[1:]):
            self._wanted = key, neighbours.topics(adoption, sorted(names))
        return self._wanted[1]

    def mode(self, adoption: Adoption | None, known: KnownTopics, now_ms: int, *, left: bool) -> GroupMode:
        """Return the mode now; the same object while nothing changes. `known` must have all topics that `topics`
        named. `left`: the group was handed over to consumers of Kafka's own protocol."""
        for name in self._new:
            self._since_ms[name] = now_ms
        self._new.clear()
        neighbours, ends_ms = self.neighbours, self._mode.grace_ends_ms
        key = (neighbours, adoption, left, known.changes if neighbours.old else 0)
        same = isinstance(self._made, tuple) and self._made[0] is neighbours and self._made[1:] == key[1:]
        if same and (ends_ms is None or now_ms < ends_ms):
            return self._mode
        wanted = self.topics(adoption, known.listed or frozenset())
        topics = {**dict.fromkeys(sorted(wanted & INTERNAL), ()), **known.partitions(wanted)}
        mode = mode_of(neighbours, topics, adoption, self._since_ms, now_ms, left=left)
        self._made = key
        if mode != self._mode:
            self._mode = mode
        return self._mode
