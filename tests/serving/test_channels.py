"""The nodes that a coordinator reads again when a channel's list says that more has happened than the list shows."""

from __future__ import annotations

import pytest

from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import OFFSET_STORE, PING
from zkcoord.serving.channels import Channels
from zkcoord.serving.group_wants import GroupWants
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.owners import owner_watch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT, REFUSED_MARK, Place
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.view import GroupNodes, fold, unread

P0 = TopicPartition("t", 0)
CHANNEL = DRAFT.channel("g", "c")
OWNER = DRAFT.owner("g", P0)
STOP = encode_command(Command(option=Option.STOP_FETCHER, ownership={P0: ""}, generation=2, epoch=1))
START = encode_command(Command(option=Option.START_FETCHER, ownership={P0: "c-0"}, generation=2, epoch=1))


def listed(changes: int, *others: str) -> Node:
    """The channel's list after this many changes, with one command (and others)."""
    return Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, changes), b"", ("0000000000", *others))


class Followed:
    """A channel with one command (None: without one). All of it was read, and everything is clean."""

    def __init__(self, command: bytes | None) -> None:
        self.tracker = Tracker()
        wants = GroupWants("g", self.tracker)
        self._channels = Channels("g", DRAFT, self.tracker, wants, owner_watch("g", DRAFT, self.tracker, wants))
        for path, kind in ((CHANNEL, Kind.CHILDREN), (CHANNEL, Kind.DATA), (OWNER, Kind.DATA)):
            self.tracker.want(path, kind)
        status = Node(CHANNEL, Kind.DATA, Stat(0, 5, 0))
        self._nodes: GroupNodes = unread("g", DRAFT)
        if command is None:
            self.read(status, Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0)))
        else:  # by the reply to the coordinator's own multi
            self.read(status, listed(1), Node(f"{CHANNEL}/0000000000", Kind.DATA, Stat(0, 0, 0), command))
        self.tracker.answered(1, [Node(*read[:2], None) for read in self.tracker.take(1)])

    def read(self, *nodes: Node) -> list[Read]:
        """These nodes are read in one batch. Returns the reads that follow."""
        before, self._nodes = self._nodes, fold(self._nodes, nodes, DRAFT)
        addresses = [(address, node) for node in nodes if (address := DRAFT.parse(node.path)) is not None]
        self._channels.begin(addresses)
        for place, (address, node) in enumerate(addresses):
            self._channels.at(place)
            if node.kind is Kind.CHILDREN:
                self._channels.follow_channel(before, self._nodes, "c", node)
            elif address.place is Place.COMMAND:
                self._channels.follow_command(self._nodes, address, node)
        self._channels.end()
        return self._to_read() if before.view.channels else []

    def sent(self, *partitions: TopicPartition) -> list[Read]:
        """The coordinator has sent a command about these partitions, and everything is clean. Returns the reads that
        follow."""
        self._channels.sent("c", partitions)
        return self._look_again()

    def sent_control(self, option: str) -> list[Read]:
        """The same, for a command without partitions."""
        self._channels.sent_control("c", option)
        return self._look_again()

    def _look_again(self) -> list[Read]:
        self._channels.look_again(self._nodes)
        return self._to_read()

    def _to_read(self) -> list[Read]:
        reads = self.tracker.take(2)
        self.tracker.answered(2, [Node(*read[:2], None) for read in reads])
        return reads


def test_a_list_that_hides_changes_has_a_stops_owners_and_the_status_read() -> None:
    assert Followed(STOP).read(listed(3)) == [Read(CHANNEL), Read(OWNER)]


def test_nodes_read_behind_the_list_are_not_read_again() -> None:
    behind = [Node(CHANNEL, Kind.DATA, Stat(0, 5, 0)), Node(OWNER, Kind.DATA, Stat(1, 6, 0))]
    assert Followed(STOP).read(listed(3), *behind) == []


@pytest.mark.parametrize(("command", "changes"), [(STOP, 1), (START, 3)])
def test_nothing_is_read_where_nothing_can_have_been_released(command: bytes, changes: int) -> None:
    assert Followed(command).read(listed(changes)) == []


def test_behind_a_stop_that_another_has_sent_its_owners_are_read() -> None:
    found = Node(f"{CHANNEL}/0000000000", Kind.DATA, Stat(0, 7, 0), STOP)
    assert Followed(STOP).read(found) == [Read(CHANNEL), Read(OWNER)]


def test_nodes_of_an_already_obeyed_command_are_read_once() -> None:
    followed = Followed(START)
    assert followed.sent(P0) == []  # the command exists, so its end will be told
    followed.read(Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, 2), b"", ()))
    assert followed.sent(P0) == [Read(OWNER), Read(CHANNEL)]
    for option in (PING, OFFSET_STORE):
        assert followed.sent_control(option) == [Read(CHANNEL)]  # its result is in the status


def test_behind_a_command_that_went_before_it_was_read_all_that_its_consumer_has_is_read() -> None:
    followed = Followed(START)
    followed.read(Node(OWNER, Kind.DATA, Stat(1, 6, 0), b"c-0"))
    gone = Node(f"{CHANNEL}/0000000001", Kind.DATA, None)
    assert followed.read(gone) == [Read(CHANNEL), Read(OWNER)]


LIST = DRAFT.channels_of("g")
MADE_AGAIN = Node(CHANNEL, Kind.CHILDREN, Stat(0, 9, 0), b"", ())
GONE = Node(CHANNEL, Kind.DATA, None)


def channels(*names: str) -> Node:
    """The list of channels."""
    return Node(LIST, Kind.CHILDREN, Stat(0, 1, 0), b"", names)


class Group:
    """A group with one channel. All of it was read, and everything is clean."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.watch = GroupWatch.begin("g", DRAFT, self.tracker)
        self.read(channels("c"))
        self.read(Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0), b"", ()), Node(CHANNEL, Kind.DATA, Stat(0, 5, 0)))

    def read(self, *nodes: Node) -> list[Read]:
        """These nodes are read in one batch. Returns the reads of the channel that follow; they are taken as done."""
        self.watch.read([(address, node) for node in nodes if (address := DRAFT.parse(node.path)) is not None])
        reads = self.tracker.take(1)
        self.tracker.answered(1, [Node(*read[:2], None) for read in reads])
        return [read for read in reads if read.path == CHANNEL]


@pytest.mark.parametrize("first", [GONE, Node(CHANNEL, Kind.CHILDREN, None)])
def test_a_channel_that_is_purged_and_made_again_while_the_list_is_read_is_read_anew(first: Node) -> None:
    group = Group()
    group.read(first)
    group.read(MADE_AGAIN, channels(), GONE)  # a missing node is read twice: it is later than the others
    assert group.read(channels("c")) == [Read(CHANNEL, Kind.CHILDREN, True), Read(CHANNEL)]


def test_a_command_that_is_taken_in_with_the_end_of_its_channel_is_not_followed() -> None:
    group = Group()
    command = Node(f"{CHANNEL}/0000000000", Kind.DATA, Stat(0, 7, 0), STOP)
    group.read(listed(1))
    group.read(channels(), command)
    assert command.path not in group.watch.wants


def test_a_channel_that_is_made_again_behind_its_data_stands_and_its_data_is_read_again() -> None:
    group = Group()
    assert group.read(MADE_AGAIN, GONE) == [Read(CHANNEL)]
    assert group.watch.nodes.view.channels["c"].czxid == 9


def test_stops_read_together_have_all_owners_read_except_those_read_last() -> None:
    p1 = TopicPartition("t", 1)
    other = encode_command(Command(option=Option.STOP_FETCHER, ownership={p1: ""}, generation=2, epoch=1))
    followed = Followed(STOP)
    followed.tracker.want(DRAFT.owner("g", p1))
    followed.tracker.answered(3, [Node(*read[:2], None) for read in followed.tracker.take(3)])
    found = [
        Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, 2), b"", ("0000000000", "0000000001")),
        Node(f"{CHANNEL}/0000000000", Kind.DATA, Stat(0, 7, 0), STOP),
        Node(OWNER, Kind.DATA, Stat(1, 6, 0)),
        Node(f"{CHANNEL}/0000000001", Kind.DATA, Stat(0, 8, 0), other),
        Node(DRAFT.owner("g", p1), Kind.DATA, Stat(1, 6, 0)),
    ]
    read = followed.read(*found)
    assert [asked for asked in read if not asked.path.endswith("0000000001")] == [Read(CHANNEL), Read(OWNER)]


def test_f87_a_command_that_was_refused_before_its_own_reply_was_taken_in_is_read_again() -> None:
    """The reply has the command as it was written. The list that came with it has the mark of the refusal."""
    followed = Followed(None)
    path = f"{CHANNEL}/0000000000"
    followed.tracker.want(path, Kind.DATA, by_writes=True)
    followed.tracker.answered(1, [Node(*read[:2], None) for read in followed.tracker.take(1)])
    told = Node(path, Kind.DATA, Stat(0, 0, 0), START)
    assert Read(path) in followed.read(listed(3, REFUSED_MARK), told)


class Ending:
    """A group whose member c owns p0 and p1. All of it was read, and everything is clean."""

    IDS, P1 = DRAFT.ids("g"), TopicPartition("t", 1)

    def __init__(self) -> None:
        self.tracker = Tracker()
        self._watch = GroupWatch.begin("g", DRAFT, self.tracker)
        self._watch.owners.want("t", [0, 1])
        self.read(
            Node(self.IDS, Kind.CHILDREN, Stat(0, 1, 0), b"", ("c",)),
            Node(DRAFT.registration("g", "c"), Kind.DATA, Stat(0, 4, 0), b"{}"),
            *(Node(DRAFT.owner("g", p), Kind.DATA, Stat(3, 6, 0), b"c-0") for p in (P0, self.P1)),
            channels("c"),
        )
        self.read(Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0), b"", ()), Node(CHANNEL, Kind.DATA, Stat(0, 5, 0)))

    def read(self, *nodes: Node) -> list[str]:
        """These nodes are read in one batch. Returns the paths that are read after that; they are taken as done."""
        self._watch.read([(address, node) for node in nodes if (address := DRAFT.parse(node.path)) is not None])
        reads = self.tracker.take(1)
        self.tracker.answered(1, [Node(*read[:2], None) for read in reads])
        return sorted(read.path for read in reads)

    def clean(self) -> None:
        """Everything was read."""
        self._watch.channels.look_again(self._watch.nodes)


ENDED = Node(Ending.IDS, Kind.CHILDREN, Stat(0, 1, 0), b"", ())
AS_GRANTED = Node(OWNER, Kind.DATA, Stat(3, 6, 0), b"c-0")
RELEASED = Node(OWNER, Kind.DATA, Stat(4, 6, 0), b"")


def test_a_gone_members_status_and_one_owner_are_read_and_the_rest_if_it_has_left() -> None:
    for found, more in ((AS_GRANTED, []), (RELEASED, [DRAFT.owner("g", Ending.P1)])):
        group = Ending()
        assert group.read(ENDED) == [CHANNEL, OWNER]
        assert group.read(found) == more


def test_an_owner_that_changes_later_tells_nothing_of_a_member_that_is_gone() -> None:
    group = Ending()
    group.read(ENDED)
    group.clean()
    assert group.read(RELEASED) == []
