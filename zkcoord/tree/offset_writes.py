"""How a group's offsets are kept in znodes: the writes that go with an acknowledgement, a commit and a release.

Every multi of a member that concerns a partition's offset takes its writes from here, in every offset store: where
offsets are in Kafka, too, these writes begin and end tenures there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkcoord.tree.offset import encode_offset
from zkcoord.tree.writes import CreateNode, SetNode, Write


class OffsetWrites(Protocol):
    """The writes to offset nodes. `path` is the node's path, `version` its version as read (None: there is no node)."""

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Return the writes that give a partition its first offset, in the acknowledgement of its start."""

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Return the writes that commit an offset."""

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Return the writes of the final offset, in the multi that gives the partition back.

        `committed`: the node already holds that offset.
        """


class ZooKeeperOffsets:
    """The offset node holds the offset as decimal text, and is set by its version.

    >>> ZooKeeperOffsets().release("/offsets/t/0", 7, 3, committed=False)
    [SetNode(path='/offsets/t/0', data=b'7', version=3)]
    >>> ZooKeeperOffsets().release("/offsets/t/0", 7, 3, committed=True)
    []
    """

    def begin(self, path: str, offset: int, version: int | None) -> Sequence[Write]:
        """Create the node, or set the present one, which holds no offset."""
        data = encode_offset(offset)
        return [CreateNode(path, data) if version is None else SetNode(path, data, version)]

    def commit(self, path: str, offset: int, version: int) -> Sequence[Write]:
        """Set the node."""
        return [SetNode(path, encode_offset(offset), version)]

    def release(self, path: str, offset: int, version: int, *, committed: bool) -> Sequence[Write]:
        """Set the node, unless it already holds the offset."""
        return [] if committed else self.commit(path, offset, version)


ZOOKEEPER_OFFSETS: OffsetWrites = ZooKeeperOffsets()
