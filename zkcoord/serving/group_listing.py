"""Lists the nodes that exist of a group, on request. A coordinator does not follow offsets, nor nodes that others
created.

At first it lists only the group's offsets; when the group is to be removed, it lists everything. It leaves out members
and channels, which are followed anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkcoord.serving.group_wants import GroupWants
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.snapshot import Kind, Node, Want

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
"""Place -> the kind of reading that the group's view uses. Only this listing uses the other kind."""


@dataclass(slots=True)
class GroupListing:
    """The listing of one group. `take` must be given every answer about the group."""

    group: str
    layout: Layout
    tracker: Tracker
    wants: GroupWants
    everything: bool = False  # False: only the lists of offsets
    versions: dict[str, int] = field(default_factory=dict)  # path -> version, of nodes that exist
    _children: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def begin(cls, group: str, layout: Layout, tracker: Tracker, wants: GroupWants) -> GroupListing:
        """Begin to list the offsets."""
        listing = cls(group, layout, tracker, wants)
        listing._want(layout.offsets(group), Kind.CHILDREN)
        return listing

    def list_everything(self) -> None:
        """Begin to list the whole group."""
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
        """The number of offsets. It is right when no node of the group is still to be read."""
        above = self.layout.offsets(self.group)
        return sum(len(children) for path, children in self._children.items() if path.startswith(f"{above}/"))

    def take(self, node: Node) -> None:
        """Take in a node that was read, and want the nodes that it names."""
        if node.kind is Kind.DATA:
            if not self.everything or any(node.path.startswith(f"{known}/") for known in self._known_otherwise()):
                return  # it may go unseen, or it belongs to a member or a channel
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
        """True for a node that is listed here: not a member's nor a channel's, and only offsets until everything is
        listed."""
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
        """Want the node, also if another part follows it now: this listing must see it go. Read it again if this
        listing does not know it yet."""
        self.wants.also("listing", [Want(path, kind)])
        known = path in self.versions if kind is Kind.DATA else path in self._children
        if not known:
            self.tracker.touch(path, kind)
