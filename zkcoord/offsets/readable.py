"""Reads around nodes that a tool may not read, so that it can name all of them, and can continue where that is
right."""

from __future__ import annotations

from collections.abc import Sequence

from zkcoord.core.words import count, some
from zkcoord.errors import UsageError
from zkcoord.offsets.writing import NAMED_MAX
from zkcoord.shell.ports import UnreadableError
from zkcoord.tree.bulk import Reading
from zkcoord.tree.paths import Layout
from zkcoord.tree.snapshot import Node, Read

GROUPS_MAX = 20
"""Number of groups that have a line of their own: a user without any right may read none of any number."""


class Readable:
    """The readable part of a tree. A node that may not be read is returned as a missing one: the caller must check
    `problem` or `refuse` before it uses that."""

    def __init__(self, read: Reading, layout: Layout) -> None:
        self._read, self._layout = read, layout
        self._refused: set[Read] = set()
        self._found: dict[str, dict[str, dict[str, None]]] = {}  # group ("" for none) -> reason -> paths

    def read(self, reads: Sequence[Read]) -> tuple[Node, ...]:
        """Do the same as a tree's `read`, except that a missing right is no error."""
        while True:
            asked = [each for each in reads if each not in self._refused]
            try:
                nodes = iter(self._read(asked) if asked else ())
            except UnreadableError as error:
                for refused in error.refused:
                    self._refused.add(Read(refused.path, refused.kind))
                    address = self._layout.parse(refused.path)
                    group = "" if address is None else address.group
                    self._found.setdefault(group, {}).setdefault(refused.why, {})[refused.path] = None
                continue
            gone = self._refused
            return tuple(Node(each.path, each.kind, None) if each in gone else next(nodes) for each in reads)

    def problem(self, group: str) -> UsageError | None:
        """Return which nodes of the group could not be read, and who must act. None: all could be read."""
        return UsageError(self._text(group)) if group in self._found else None

    def refuse(self, so: str) -> None:
        """If any node could not be read, raises UsageError that names groups, and some nodes of each. `so`: what
        follows from it."""
        if not self._found:
            return
        number = sum(len(paths) for whys in self._found.values() for paths in whys.values())
        named = sorted(self._found)[:GROUPS_MAX]
        lines = [f"group {group}: {self._text(group)}" if group else self._text(group) for group in named]
        more = len(self._found) - len(named)
        further = [f"the same is so of {count(more, 'further group')}"] if more else []
        raise UsageError("\n".join([f"{count(number, 'node')} could not be read, {so}:", *lines, *further]))

    def _text(self, group: str) -> str:
        return "; ".join(f"{some(paths, NAMED_MAX)}: {why}" for why, paths in sorted(self._found[group].items()))
