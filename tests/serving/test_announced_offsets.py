"""The moments at which a coordinator reads the offset of a partition for which a dead consumer has announced a
range."""

from __future__ import annotations

from zkcoord.core.model import TopicPartition
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.whole_view import Environment

P0 = TopicPartition("t", 0)
CHANNEL, OWNER, OFFSET = DRAFT.channel("g", "dead"), DRAFT.owner("g", P0), DRAFT.offset("g", P0)


def status(start: int) -> Node:
    """The dead consumer's status, with the range that it announced."""
    return Node(CHANNEL, Kind.DATA, Stat(0, 5, 0), b'{"version":1,"batch":{"t-0":["%d","%d",7]}}' % (start, start + 10))


def owner(version: int) -> Node:
    """The owner node at this version. It names a dead consumer."""
    return Node(OWNER, Kind.DATA, Stat(version, 6, 0), b"dead-0")


class Group:
    """A group in which a dead consumer has announced a range."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.watch = GroupWatch.begin("g", DRAFT, self.tracker)
        self.read(Node(DRAFT.channels_of("g"), Kind.CHILDREN, Stat(0, 1, 0), b"", ("dead",)))
        self.read(Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0), b"", ()), status(0), owner(3))

    def read(self, *nodes: Node) -> None:
        """These nodes are read; all further reads that follow are taken as done."""
        self.watch.read([(address, node) for node in nodes if (address := DRAFT.parse(node.path)) is not None])
        self._asked()

    def _asked(self) -> list[str]:
        reads = self.tracker.take(1)
        self.tracker.answered(1, [Node(*read[:2], None) for read in reads])
        assert not any(read.watch for read in reads if read.path == OFFSET)  # the group has no old members
        return [read.path for read in reads]

    def complete(self) -> list[str]:
        """The view is complete. Returns the paths that are read again."""
        self.watch.complete(Environment(topics=KnownTopics(DRAFT), racks={}, root_czxid=1, protocols=(1, 1)), 0)
        return self._asked()

    def committed(self, offset: int, version: int) -> int | None:
        """The committed offset of the view after this node was read."""
        self.read(Node(OFFSET, Kind.DATA, Stat(version, 7, 0), b"%d" % offset))
        assert self.complete() == []
        return self.watch.nodes.view.committed[P0]


def test_an_offset_under_an_announced_range_is_read_once_while_nothing_changes() -> None:
    group = Group()
    assert group.complete() == [OFFSET]
    assert group.committed(0, 0) == 0
    assert group.complete() == []


def test_an_offset_is_read_again_when_the_owner_changed_twice_between_two_complete_views() -> None:
    """The partition was granted and read, and its owner died, before the coordinator looked."""
    group = Group()
    group.complete()
    group.committed(0, 0)
    group.read(owner(5))
    assert group.complete() == [OFFSET]
    assert group.committed(10, 1) == 10


def test_an_unowned_partitions_offset_is_read_again_for_another_announced_range() -> None:
    group = Group()
    group.complete()
    group.committed(0, 0)
    group.read(status(10))
    assert group.complete() == [OFFSET]


def test_an_offset_is_not_followed_once_no_announced_range_is_left() -> None:
    group = Group()
    group.complete()
    group.committed(0, 0)
    view = group.watch.nodes.view
    group.complete()
    assert group.watch.nodes.view is view
    group.read(Node(CHANNEL, Kind.DATA, Stat(1, 5, 0), b'{"version":1}'))
    assert (group.complete(), group.watch.nodes.view.committed) == ([], {})
    group.tracker.touch(OFFSET)
    assert group.complete() == []
