"""The ranges that other consumers of a group announced, read from their statuses when a member has claimed by itself.

A coordinator hands announced ranges on with its starts. In a mixed group nobody sends starts. So the claimer looks for
ranges of earlier owners: in the channels of dead members, and of living members that released a partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.member.view import STATUSES, Holder
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.errors import CorruptError
from zkcoord.member.member_watch import LOOK_UP
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.status import Status, decode_status, held_partitions

SCOPE = f"{LOOK_UP}{STATUSES}"


class Statuses:
    """The announced ranges that the last look-up found, and the consumers that may announce further ones. Nothing is
    watched."""

    def __init__(self, paths: MemberPaths, tracker: Tracker) -> None:
        self._own, self._tracker = paths.channel, tracker
        self._above = paths.layout.channels_of(paths.group)
        self.found: Mapping[TopicPartition, tuple[Announced, ...]] = {}
        self.holders: Mapping[str, Holder] = {}

    def look_up(self) -> None:
        """Read all statuses again."""
        self._tracker.unwant_scope(SCOPE)
        self.found, self.holders = {}, {}
        self._tracker.want(self._above, Kind.CHILDREN, scope=SCOPE)

    def take(self, node: Node) -> bool:
        """Take in a node that was read. Returns True if it is about another consumer."""
        if node.path == self._above and node.kind is Kind.CHILDREN:
            for name in node.children:
                path = f"{self._above}/{name}"
                if path != self._own:
                    self._tracker.want(path, scope=SCOPE)
            self._tracker.unwant(self._above, Kind.CHILDREN)
            return True
        above, _, name = node.path.rpartition("/")
        if above != self._above or not name or node.path == self._own:
            return False
        self._tracker.unwant(node.path)
        try:
            status = decode_status(node.data)
        except CorruptError:
            return True  # a coordinator reports it
        announced = status.batch
        if announced:
            self.found = {**self.found, **{p: (*self.found.get(p, ()), r) for p, r in announced.items()}}
        if node.stat is not None and (status.held or status.held_cut):
            self.holders = {**self.holders, name: Holder(node.stat.version, _held(status))}
        return True


def _held(status: Status) -> frozenset[TopicPartition] | None:
    try:
        return None if status.held_cut else held_partitions(status)
    except CorruptError:
        return None
