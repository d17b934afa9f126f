"""Follows groups in the tree for `watch` and `top`. It reads changed groups again, and opens a new session after a
session has ended.

Watches tell which groups have changed, and only those are read again. Now and then all groups are read, because some
changes fire no watch: owners of dead members, and topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from zkcoord.clock import mono_ms
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.group_report import GroupReport, TreeReport, group_names, read_group, read_tree
from zkcoord.operating.happenings import Sight
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import EPOCH
from zkcoord.tree.snapshot import Kind, Read

OpenTree = Callable[[Callable[[str | None], None]], Tree]
"""Opens a session, which reports each watch that fires: see `Tree`."""


class Follower:
    """The groups as they were last read. `only`: these groups; empty: all. It is a context manager."""

    def __init__(self, address: str, open_tree: OpenTree, only: Sequence[str] = (), *, whole_every_ms: int) -> None:
        self._address, self._open_tree = address, open_tree
        self._only, self._whole_every_ms = tuple(only), whole_every_ms
        self._tree: Tree | None = None
        self._above: TreeReport | None = None
        self._reports: dict[str, GroupReport] = {}
        self._whole_ms: int | None = None  # when everything was last read in this session
        self._found = False  # all of `only` existed once
        self._lock = threading.Lock()
        self._dirty: set[str | None] = set()  # paths that have changed; None: everything
        self.changed = threading.Event()  # set if something in `_dirty` is to be read

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def tree(self) -> Tree:
        """The session, for further reads."""
        if self._tree is None:
            self._tree = self._open_tree(self._note)
        return self._tree

    def read(self) -> Sight:
        """Read what has changed, and return all that is known now.

        After UnavailableError, call it again: it then opens a new session. UsageError: a group in `only` does not
        exist.
        """
        try:
            return self._read()
        except UnavailableError:
            self._close()
            raise

    def _read(self) -> Sight:
        tree = self.tree
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            self.changed.clear()
        late = self._whole_ms is None or mono_ms() - self._whole_ms >= self._whole_every_ms
        groups = self._groups_of(dirty)
        above = self._above
        if late or groups is None or above is None:
            above = self._whole(tree)
        else:
            for group in groups:
                self._one(tree, above, group)
        return Sight(above=above, groups=dict(self._reports))

    def _whole(self, tree: Tree) -> TreeReport:
        above = read_tree(tree, self._address)
        lists = [Read(path, Kind.CHILDREN, True) for path in above.layout.group_lists]
        tree.read([*lists, Read(above.layout.coordinator, watch=True), Read(EPOCH, watch=True)])
        above = read_tree(tree, self._address)  # read after its watches were set
        names = self._only or group_names(tree, above.layout)
        self._above, self._reports = above, {n: r for n, r in self._reports.items() if n in names}
        for name in names:
            self._one(tree, above, name)
        self._found, self._whole_ms = True, mono_ms()
        return above

    def _one(self, tree: Tree, above: TreeReport, group: str) -> None:
        try:
            report = read_group(tree, above.layout, group, watch=True)
        except UsageError:  # the group was removed meanwhile
            self._reports.pop(group, None)
            if group in self._only and not self._found:
                raise
            return
        if report.deleted and group not in self._only:
            self._reports.pop(group, None)
        else:
            self._reports[group] = report

    def _groups_of(self, dirty: set[str | None]) -> list[str] | None:
        """Return the groups of these paths; None: one path belongs to no known group, so everything must be read."""
        found = set()
        for path in dirty:
            address = self._above.layout.parse(path) if path is not None and self._above is not None else None
            if address is None or not address.group or address.group not in self._reports:
                return None
            found.add(address.group)
        return sorted(found)

    def _close(self) -> None:
        tree, self._tree, self._whole_ms = self._tree, None, None
        if tree is not None:
            tree.close()

    # on the session's thread

    def _note(self, path: str | None) -> None:
        with self._lock:
            self._dirty.add(path)
            self.changed.set()
