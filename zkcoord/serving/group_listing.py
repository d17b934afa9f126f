"""Lists the nodes that a group has left, on request: a coordinator does not know offsets, nor nodes that others made.

It lists only the group's offsets first, and everything when the group is to be removed. Members and channels are known
without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.snapshot import Kind, Node

USUAL = {
    Place.IDS: Kind.CHILDREN,
    Place.REGISTRATION: Kind.DATA,
    Place.OWNER: Kind.DATA,
    Place.CLAIMS: Kind.CHILDREN,
    Place.OFFSET: Kind.DATA,
    Place.INSTANCES: Kind.CHILDREN,
    Place.INSTANCE: Kind.DATA,
    Place.CHANNELS: Kind.CHILDREN,
    Place.COMMAND: Kind.DATA,
    Place.EVICTED: Kind.DATA,
    Place.RECORD: Kind.DATA,
    Place.STATE: Kind.DATA,
}
"""Place -> the part of a node that the group's view is made of; the other part is listed here alone."""


@dataclass(slots=True)
class GroupListing:
    """The listing of one group. `take` is given every answer about the group."""

    group: str
    layout: Layout
    tracker: Tracker
    everything: bool = False  # not the offsets' lists only
    versions: dict[str, int] = field(default_factory=dict)  # nodes that stand
    _children: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def begin(cls, group: str, layout: Layout, tracker: Tracker) -> GroupListing:
        """List the offsets from now on."""
        listing = cls(group, layout, tracker)
        listing._want(layout.offsets(group), Kind.CHILDREN)
        return listing

    def list_everything(self) -> None:
        """List the whole group from now on."""
        if self.everything:
            return
        self.everything = True
        for path in (self.layout.group(self.group), self.layout.state(self.group)):
            self._want(path, Kind.DATA)
            self._want(path, Kind.CHILDREN)
        for path, children in list(self._children.items()):
            self._want(path, Kind.DATA)
            self._descend(path, children)

    def offsets(self) -> int:
        """How many offsets there are; right when nothing of the group is to be read."""
        above = self.layout.offsets(self.group)
        return sum(len(children) for path, children in self._children.items() if path.startswith(f"{above}/"))

    def take(self, node: Node) -> None:
        """Take an answer in, and want the nodes that it names."""
        if node.kind is Kind.DATA:
            if any(node.path.startswith(f"{known}/") for known in self._known_otherwise()):
                return  # a member's, or a channel's
            if node.stat is not None:
                self.versions[node.path] = node.stat.version
            else:
                self.versions.pop(node.path, None)
            return
        if self._is_mine(node.path):
            gone = set(self._children.get(node.path, ())) - set(node.children)
            for name in gone:
                self._children.pop(f"{node.path}/{name}", None)
            self._children[node.path] = node.children
            self._descend(node.path, node.children)

    def _is_mine(self, path: str) -> bool:
        """True of a node that is listed here: no member, no channel; until everything is asked for, only offsets."""
        above = self.layout.offsets(self.group)
        if path == above or (path.startswith(f"{above}/") and path.count("/") == above.count("/") + 1):
            return True
        return self.everything and not any(f"{path}/".startswith(f"{known}/") for known in self._known_otherwise())

    def _known_otherwise(self) -> tuple[str, str]:
        return self.layout.ids(self.group), self.layout.channels_of(self.group)

    def _descend(self, path: str, children: tuple[str, ...]) -> None:
        for name in children:
            below = f"{path}/{name}"
            if self.everything:
                self._want(below, Kind.DATA)
                if below not in self._known_otherwise():
                    self._want(below, Kind.CHILDREN)
            elif path == self.layout.offsets(self.group):
                self._want(below, Kind.CHILDREN)

    def _want(self, path: str, kind: Kind) -> None:
        """Read it, also when it is known for another reason: here nothing is known of it yet."""
        known = path in self.versions if kind is Kind.DATA else path in self._children
        if not known:
            self.tracker.want(path, kind, scope=self.group)
            self.tracker.touch(path, kind)
