"""How a group's offsets are kept in znodes: what goes along with an acknowledgement, a commit and a release.

Every multi of a member that says where a partition stands takes its writes from here. Here offsets stand in ZooKeeper
alone. A store that keeps them elsewhere too brings another `OffsetStore`: what it writes here fences what stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkcoord.tree.offset import encode_offset
from zkcoord.tree.writes import CreateNode, SetNode, Write


class OffsetStore(Protocol):
    """One store. `path` is that of the partition's offset node, `version` the node's as read (None: there is none)."""

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Return the writes by which a partition without an offset starts at one, in its start's acknowledgement."""

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Return the writes that commit an offset."""

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Return the writes of the final offset, in the multi that gives the partition back.

        `committed`: the node holds that offset already.
        """


class ZooKeeperOffsets:
    """The offset node is the offset: decimal text, set by its version.

    >>> ZooKeeperOffsets().release("/offsets/t/0", 7, 3, committed=False)
    [SetNode(path='/offsets/t/0', data=b'7', version=3)]
    >>> ZooKeeperOffsets().release("/offsets/t/0", 7, 3, committed=True)
    []
    """

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Create the node, or set the one that holds no offset."""
        data = encode_offset(offset)
        return [CreateNode(path, data) if version is None else SetNode(path, data, version)]

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Set the node."""
        return [SetNode(path, encode_offset(offset), version)]

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Set the node, unless it says so already."""
        return [] if committed else self.commit(path, offset, version)


ZOOKEEPER_OFFSETS: OffsetStore = ZooKeeperOffsets()
