"""The racks of Kafka's brokers, read only while some group has a member with a rack.

The list of brokers is watched. Whenever the list changes, each broker in it is read again, without a watch: a broker
that was gone and has returned may be in another rack. A broker's last known rack counts until the broker names another
one.
"""

from __future__ import annotations

from collections.abc import Callable

from zkcoord.errors import CorruptError
from zkcoord.serving.shared_wants import SharedWants
from zkcoord.serving.topics import Problem
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.broker import broker_id, decode_broker
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Kind, Node


class BrokerTable:
    """The brokers of one session."""

    def __init__(self, tracker: Tracker, layout: Layout, problem: Problem, shared: Callable[[str], bool]) -> None:
        """`problem` takes a broker's path, and what is wrong with it or None. `shared` is as for `SharedWants`."""
        self._tracker, self._above, self._problem = tracker, layout.brokers, problem
        self._wants = SharedWants(tracker, shared)
        self.racks: dict[int, str | None] = {}  # racks as they were read last, also of brokers that are away
        self.changes = 0  # number of changes of racks so far
        self._groups: set[str] = set()  # groups that need the racks
        self._listed: frozenset[str] | None = None
        # brokers in the list; None: not read. Invariant: the data of these is wanted
        self._unread: set[str] = set()  # listed brokers that were not read yet

    def use(self, group: str, wanted: bool) -> None:
        """Note whether the group needs the racks. While no group does, nothing is followed."""
        before = bool(self._groups)
        (self._groups.add if wanted else self._groups.discard)(group)
        if self._groups and not before:
            self._wants.want(self._above, Kind.CHILDREN, watch=True, scope=self._above)
        elif before and not self._groups:
            self._wants.unwant(self._above, Kind.CHILDREN)
            self._list(frozenset())
            self._listed = None

    def about(self, node: Node) -> bool:
        """True if the node is the list of brokers or a broker, while some group needs the racks."""
        if not self._groups:
            return False
        return node.path.startswith(f"{self._above}/") or (node.path == self._above and node.kind is Kind.CHILDREN)

    def read_again(self) -> None:
        """If any group needs the racks, read the list again, and with it each broker."""
        self._tracker.touch(self._above, Kind.CHILDREN)

    def read(self, node: Node) -> set[str]:
        """Take in a node that was read. Returns the groups that it may concern."""
        if node.path == self._above:
            self._list(frozenset(name for name in node.children if broker_id(name) is not None))
        else:
            self._read_broker(node)
        return set(self._groups)

    def known(self) -> bool:
        """True when each broker was read once, or cannot be read. The assignor works without a rack."""
        if self._listed is None:
            return self._tracker.put_aside(self._above, Kind.CHILDREN)
        return all(self._tracker.put_aside(f"{self._above}/{name}") for name in self._unread)

    def _list(self, names: frozenset[str]) -> None:
        before, self._listed = self._listed or frozenset(), names
        for name in sorted(before - names):
            self._wants.unwant(f"{self._above}/{name}")
            self._problem(f"{self._above}/{name}", None)
        paths = {name: f"{self._above}/{name}" for name in sorted(names)}
        for name, path in paths.items():
            if name in before:
                self._tracker.touch(path)
            else:
                self._wants.want(path, scope=path)
        self._unread = {name for name in names if name in self._unread or broker_id(name) not in self.racks}

    def _read_broker(self, node: Node) -> None:
        name = node.path[len(self._above) + 1 :]
        self._unread.discard(name)
        number, problem = broker_id(name), None
        if number is None or node.stat is None:
            return
        try:
            rack = decode_broker(node.data).rack
            if number not in self.racks or self.racks[number] != rack:
                self.racks[number] = rack
                self.changes += 1
        except CorruptError as error:
            problem = f"{error}: the broker or an operator must mend it; the rack that was known still holds"
        self._tracker.watch(node.path, Kind.DATA, problem is not None)
        self._problem(node.path, problem)
