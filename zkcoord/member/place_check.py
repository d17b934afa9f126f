"""Tells a consumer's user that the group is read in another place: in another tree, or by Kafka's own consumers.

Members that stay here are given nothing, and would wait in silence.
"""

from __future__ import annotations

from zkcoord.core.moved import MoveState
from zkcoord.core.record import GroupRecord
from zkcoord.errors import CorruptError
from zkcoord.shell.role import Events
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import record_in
from zkcoord.tree.snapshot import Node

SCOPE = "place"

IDLE_MS = 5_000
"""ms that a member must have held nothing before it looks at the group's record. A member that reads need not look, and
most members that have just joined are told to start sooner."""

LEAVING = (
    "the group is being moved to {address}, and nobody reads it until that ends; if it broke off, whoever moves it runs"
    " `zkcoord migrate move` again, or gives it up (--give-up)"
)
GONE = (
    "the group was moved to {address}, and nothing is read here any more: stop this consumer, and start it with that"
    " address of ZooKeeper"
)
ARRIVING = (
    "the group is arriving from {address}, and nobody reads it until that ends; if it broke off, whoever moves it runs"
    " `zkcoord migrate move` there again, or gives it up (--give-up)"
)
MOVED = {MoveState.LEAVING: LEAVING, MoveState.GONE: GONE, MoveState.ARRIVING: ARRIVING}
HANDED_OVER = (
    "the group is handed over to consumers of Kafka's own protocol, and nothing is read here: stop this consumer; or to"
    " have the group back, stop those, and run `zkcoord group take-back {group}`"
)


def elsewhere(record: GroupRecord | None, group: str) -> str | None:
    """Return where the group is read, and who must act; None: it is read here."""
    if record is None:
        return None
    if record.moved is not None:
        return MOVED[record.moved.state].format(address=record.moved.address)
    return HANDED_OVER.format(group=group) if record.handed_over else None


class PlaceCheck:
    """Watches the group's record, but only for a member that holds nothing. Where groups are adopted, another part
    follows the record anyway, also before the consumer is a member: there this check only takes in what was read."""

    def __init__(self, group: str, events: Events) -> None:
        self._group, self._events = group, events
        self._told: str | None = None  # where the group is read, as the user was told last
        self._wanted = ""  # path of the record while this check watches it, else empty
        self._path = ""  # path of the record, once the layout is known
        self._idle_since_ms: int | None = None
        self.where: str | None = None  # where the group is read, by the record that was read last

    def begin(self) -> None:
        """A session begins: nothing is known, and nothing watched."""
        self._wanted, self._idle_since_ms, self.where = "", None, None

    def join(self, layout: Layout) -> None:
        """The consumer is about to register in a tree of this layout."""
        self._path = layout.record(self._group)

    def member(self, tracker: Tracker, layout: Layout, now_ms: int, *, idle: bool) -> bool:
        """Look at the record if the member holds nothing (`idle`). Returns True once the user was told that the group
        is read elsewhere."""
        if not idle:
            if self._wanted:
                tracker.unwant(self._wanted)
                self._wanted, self.where = "", None
            self._idle_since_ms = None
            self._tell(None)
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        elif now_ms >= self._idle_since_ms + IDLE_MS:
            if not layout.adopts and not self._wanted:
                self._wanted = self._path
                tracker.want(self._path, watch=True, scope=SCOPE)
            else:
                self._tell(self.where)
        return self._told is not None

    def take(self, node: Node) -> None:
        """Take in a node that was read, if it is the record. A record that cannot be parsed changes nothing: a
        coordinator reports it."""
        if node.path != self._path:
            return
        try:
            self.where = elsewhere(record_in(node), self._group)
        except CorruptError:
            return

    def _tell(self, where: str | None) -> None:
        if where is not None and where != self._told:
            self._events("group_elsewhere", {"group": self._group, "why": where, "level": "warning"})
        elif where is None and self._told is not None:
            self._events("group_here", {"group": self._group, "level": "notice"})
        self._told = where
