"""The nodes of a group that a coordinator follows, when answers come one by one, and while others change the tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zkcoord.core.adoption import Adoption
from zkcoord.core.command import Command, Option
from zkcoord.core.decisions import GrantPartitions, LookUpTopic
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.topics import TopicTable
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.command import encode_command
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Kind, Node, Read, Stat
from zkcoord.tree.topic import Mark, encode_mark
from zkcoord.tree.whole_view import Environment

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MARK = encode_mark(Mark(incarnation=1, topic_id=None, czxid=7, root_czxid=1))


class Group:
    """A group that a coordinator follows. Its tree is given by the data of its nodes."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.tracker = layout, Tracker()
        self.tree: dict[str, bytes] = {}
        self._token = 0
        self._created: dict[str, int] = {}  # path -> czxid
        self.table = TopicTable(self.tracker, layout, lambda path, problem: None, lambda path: False)
        self.watch = GroupWatch.begin("g", layout, self.tracker)

    def set(self, *paths: str, data: bytes = b"") -> None:
        """Create or set these nodes. Events of lists that are watched are not told."""
        for path in paths:
            self._created.setdefault(path, len(self._created) + 1)
            self.tree[path] = data

    def remove(self, *paths: str) -> None:
        """Remove these nodes, with all that is below them."""
        gone = [path for path in self.tree if any(f"{path}/".startswith(f"{each}/") for each in paths)]
        for path in gone:
            del self.tree[path], self._created[path]

    def _answer(self, read: Read) -> Node:
        stat = Stat(0, self._created[read.path], 0) if read.path in self.tree else None
        if read.kind is Kind.DATA:
            return Node(read.path, read.kind, stat, self.tree.get(read.path, b""))
        names = {path[len(read.path) + 1 :].split("/")[0] for path in self.tree if path.startswith(f"{read.path}/")}
        return Node(read.path, read.kind, stat, b"", tuple(sorted(names)))

    def read(self, together: int = 1_000) -> list[str]:
        """Read until all is clean, and complete the view; so many answers are taken in together. Returns what was
        read."""
        found: list[str] = []
        while True:
            self._token += 1
            if reads := self.tracker.take(self._token):
                found += [read.path for read in reads]
                for at in range(0, len(reads), together):
                    self.take_in(*self.tracker.answered(self._token, map(self._answer, reads[at : at + together])))
                continue
            self.watch.read_when_adopted()
            self.watch.subscribe(self.table)
            around = Environment(topics=self.table, racks={}, root_czxid=1, protocols=(1, 1))
            self.watch.complete(around, 1_000)
            if self.tracker.clean("g"):
                return found
            for now_ms in (1_000, 2_000):  # beside old members reads may wait
                self.tracker.resume(now_ms)

    def topic(self, data: bytes) -> None:
        """The topic t has these data from now on."""
        self.table.take(Node(self.layout.topic("t"), Kind.DATA, Stat(0, 7, 0), data))
        self.table.changes += 1

    def take_in(self, *nodes: Node) -> None:
        """These nodes were read together."""
        parsed = [(self.layout.parse(node.path), node) for node in nodes]
        self.watch.read([(address, node) for address, node in parsed if address is not None])

    def follows(self, path: str, kind: Kind = Kind.DATA) -> bool:
        """True if the node is read when something makes it dirty."""
        self.tracker.touch(path, kind)
        return path in self.read()


OURS, OLD = "g_h-1416335000123-z1a2b3c4", "g_old-1416335000123-1a2b3c4d"
MEMBER = (
    b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123","coordination":"zkcoord/1"}'
)


class Adopted(Group):
    """An adopted group. c is dead, and has announced a range of p0. Our member claims p0."""

    STATUS = LEGACY.channel("g", OURS)

    def __init__(self) -> None:
        super().__init__(LEGACY)
        adoption = Adoption(offsets="zookeeper", strategy="range", kafka="0.8.2.2")
        self.set(LEGACY.record("g"), data=encode_record(replace(DEFAULT_RECORD, adoption=adoption)))
        self.set(LEGACY.owners("g"), LEGACY.marks("g"))

    def begin(self, *others: str) -> None:
        """Our member and these others are registered."""
        self.set(LEGACY.ids("g"), LEGACY.registration("g", OURS), data=MEMBER)
        for other in others:
            self.set(LEGACY.registration("g", other), data=MEMBER.replace(b"coordination", b"other"))
        self.set(LEGACY.mark("g", "t"), data=MARK)
        self.set(LEGACY.topic_owners("g", "t"), LEGACY.owner("g", P0), data=f"{OURS}-0".encode())
        self.set(LEGACY.offset("g", P0), data=b"5")
        self.set(LEGACY.channels_of("g"), LEGACY.channel("g", "c"), data=b'{"version":1,"batch":{"t-0":["5","9",7]}}')
        self.set(self.STATUS)
        self.read()


def test_a_claimers_status_is_watched_until_it_tells_that_it_has_taken_the_announced_range_over() -> None:
    group = Adopted()
    group.begin()
    assert group.tracker.watches(group.STATUS)
    assert not group.tracker.watches(LEGACY.offset("g", P0))  # nobody commits it before
    group.set(group.STATUS, data=b'{"version":1,"held":{"7":{"t":"0"}}}')
    for _ in range(2):  # the second answer sets no watch any more
        group.tracker.touch(group.STATUS)
        group.read()
    assert not group.tracker.watches(group.STATUS)
    assert group.watch.nodes.view.committed == {}


def test_beside_old_members_the_offset_of_an_announced_range_is_watched_while_its_partition_is_claimed() -> None:
    group = Adopted()
    group.begin(OLD)
    assert not group.watch.nodes.view.mode.coordinated
    assert group.tracker.watches(LEGACY.offset("g", P0))
    assert not group.tracker.watches(group.STATUS)


def test_a_topic_that_left_the_list_is_followed_until_its_mark_was_seen_to_be_gone() -> None:
    """Nobody removes it from the view but the answer about the mark."""
    group = Group(DRAFT)
    group.set(DRAFT.owners("g"), DRAFT.owner("g", P0))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.read()
    assert group.watch.nodes.view.marked == {"t"}
    group.remove(DRAFT.mark("g", "t"))
    group.tracker.touch_all()
    group.read(together=1)
    assert (group.watch.nodes.view.marked, group.watch.nodes.view.owners) == (frozenset(), {})
    assert not group.follows(DRAFT.mark("g", "t"))
    assert not group.follows(DRAFT.mark("g", "t"), Kind.CHILDREN)
    assert not group.follows(DRAFT.owner("g", P0))


def test_a_mark_that_went_before_it_was_read_is_not_followed() -> None:
    group = Group(DRAFT)
    group.set(DRAFT.owners("g"))
    group.read()
    group.take_in(Node(DRAFT.owners("g"), Kind.CHILDREN, Stat(0, 1, 0), children=("t",)))
    assert DRAFT.mark("g", "t") in group.read()
    assert not group.follows(DRAFT.mark("g", "t"))


def test_a_topic_that_is_marked_again_has_its_owners_read() -> None:
    group = Group(DRAFT)
    group.set(DRAFT.owners("g"), DRAFT.owner("g", P0))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.read()
    group.remove(DRAFT.mark("g", "t"))
    group.tracker.touch(DRAFT.mark("g", "t"))
    group.read()
    group.set(DRAFT.owner("g", P0))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.tracker.touch(DRAFT.owners("g"), Kind.CHILDREN)
    group.read()
    assert set(group.watch.nodes.view.owners) == {P0}


def test_an_owner_that_was_made_together_with_its_topics_mark_is_read() -> None:
    """Its node was wanted before, for a grant, and was not there."""
    group = Group(DRAFT)
    group.set(DRAFT.ids("g"), DRAFT.owners("g"), DRAFT.registration("g", "c"), data=MEMBER)
    group.read()
    group.watch.sending([GrantPartitions(consumer_id="c", partitions={P0: "c-0"}, why="it is free")])
    assert group.read() == [DRAFT.owner("g", P0)]
    group.set(DRAFT.owner("g", P0))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.tracker.touch(DRAFT.mark("g", "t"))
    group.read()
    assert set(group.watch.nodes.view.owners) == {P0}
    group.remove(DRAFT.mark("g", "t"))
    group.tracker.touch(DRAFT.mark("g", "t"))
    group.read()
    assert group.watch.nodes.view.marked == frozenset()
    assert group.follows(DRAFT.mark("g", "t"))  # a member subscribes to the topic


def test_the_owner_of_a_partition_that_a_topic_has_grown_by_is_followed_and_own_multis_tell_it() -> None:
    group = Group(DRAFT)
    group.set(DRAFT.ids("g"), DRAFT.owners("g"), DRAFT.registration("g", "c"), data=MEMBER)
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.topic(b'{"version":1,"partitions":{"0":[1]}}')
    group.read()
    assert [group.follows(DRAFT.owner("g", p)) for p in (P0, P1)] == [True, False]
    group.topic(b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
    group.read()
    owners = [DRAFT.owner("g", p) for p in (P0, P1)]
    assert all(map(group.follows, owners))
    assert group.tracker.written(1_000, owners) == (owners, True)


def test_a_claim_that_was_stolen_between_two_looks_at_its_list_is_read_again() -> None:
    group = Adopted()
    group.begin()
    group.set(LEGACY.owner("g", P0), data=f"{OLD}-0".encode())
    group.take_in(Node(LEGACY.topic_owners("g", "t"), Kind.CHILDREN, Stat(0, 1, 0, 0, 2), children=("0",)))
    assert LEGACY.owner("g", P0) in group.read()
    assert group.watch.nodes.view.owners[P0].thread == f"{OLD}-0"


def test_a_member_that_registers_again_under_its_name_is_read_anew() -> None:
    """Its registration was read while there was none."""
    group = Group(DRAFT)
    group.set(DRAFT.ids("g"), DRAFT.registration("g", "c"), data=MEMBER)
    group.read()
    group.take_in(Node(DRAFT.registration("g", "c"), Kind.DATA, None))
    assert group.watch.nodes.view.members == {}
    group.tracker.touch(DRAFT.ids("g"), Kind.CHILDREN)
    group.read()
    assert set(group.watch.nodes.view.members) == {"c"}


def test_a_channel_that_is_made_again_under_its_name_is_read_anew() -> None:
    """Its list was read while there was none."""
    group, channel = Group(DRAFT), DRAFT.channel("g", "c")
    group.set(DRAFT.channels_of("g"), channel)
    group.read()
    group.take_in(Node(channel, Kind.CHILDREN, None))
    assert group.watch.nodes.view.channels == {}
    group.tracker.touch(DRAFT.channels_of("g"), Kind.CHILDREN)
    group.read()
    assert set(group.watch.nodes.view.channels) == {"c"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1,)])
def test_of_a_channel_that_is_gone_nothing_is_kept(order: tuple[int, ...]) -> None:
    group, channel = Group(DRAFT), DRAFT.channel("g", "c")
    group.set(DRAFT.channels_of("g"), channel)
    group.read()
    gone = [Node(channel, Kind.CHILDREN, None), Node(DRAFT.channels_of("g"), Kind.CHILDREN, Stat(0, 1, 0))]
    group.take_in(*(gone[at] for at in order))
    assert group.watch.channels._lists == {}
    assert not group.follows(channel)
    assert not group.follows(channel, Kind.CHILDREN)


def test_an_own_command_is_not_followed_once_its_channels_list_lacks_it() -> None:
    """It was known by the reply to the multi that created it, and was obeyed before the list was read."""
    group, channel = Group(DRAFT), DRAFT.channel("g", "c")
    group.set(DRAFT.channels_of("g"), channel)
    group.read()
    command = f"{channel}/0000000000"
    start = encode_command(Command(option=Option.START_FETCHER, ownership={P0: "c-0"}, generation=2, epoch=1))
    group.take_in(*group.tracker.told(1_000, [Node(command, Kind.DATA, Stat(0, 0, 0), start)], [command]))
    assert len(group.watch.nodes.view.channels["c"].commands) == 1
    assert group.follows(command)
    group.take_in(Node(channel, Kind.CHILDREN, Stat(0, 2, 0)))
    assert not group.follows(command)


def test_claims_are_followed_though_nobody_wants_their_topic_any_more() -> None:
    """They stay when a topic is dropped, and go with their sessions."""
    group, above = Adopted(), LEGACY.topic_owners("g", "t")
    group.read()
    member = LEGACY.registration("g", OURS)
    group.set(member, data=MEMBER)
    group.set(LEGACY.mark("g", "t"), data=MARK)
    group.set(above, LEGACY.owner("g", P0), data=f"{OURS}-0".encode())
    group.tracker.touch(LEGACY.ids("g"), Kind.CHILDREN)
    group.read()
    assert set(group.watch.nodes.view.owners) == {P0}
    group.remove(member, LEGACY.mark("g", "t"))
    group.tracker.touch(LEGACY.ids("g"), Kind.CHILDREN)
    group.read()
    group.tracker.touch(LEGACY.mark("g", "t"))
    group.read()
    group.remove(LEGACY.owner("g", P0))
    group.tracker.fired(above, data=False, children=True)
    group.read()
    assert group.watch.nodes.view.owners == {}


def test_a_listing_sees_nodes_go_that_were_followed_before_it_began() -> None:
    """A removal that names a node which is gone is refused, again and again."""
    group = Group(DRAFT)
    group.set(DRAFT.ids("g"), DRAFT.owners("g"), DRAFT.owner("g", P0), DRAFT.offset("g", P0), DRAFT.record("g"))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.set(DRAFT.offsets("g"), DRAFT.topic_offsets("g", "t"))
    group.read()
    group.watch.sending([LookUpTopic(topic="t", why="it was deleted")])
    group.watch.list_offsets()
    group.tracker.touch(DRAFT.owner("g", P0))  # a round of owners
    group.read()
    assert (group.watch.nodes.view.offsets, group.watch.nodes.leftover_versions) == (1, None)
    group.watch.sending([])
    group.watch.list_everything()
    group.read()
    assert set(group.watch.nodes.leftover_versions or ()) > {DRAFT.owner("g", P0), DRAFT.offset("g", P0)}
    group.remove(DRAFT.mark("g", "t"), DRAFT.topic_offsets("g", "t"))
    group.tracker.touch(DRAFT.mark("g", "t"))
    group.read()
    for path in (DRAFT.owner("g", P0), DRAFT.topic_offsets("g", "t"), DRAFT.offset("g", P0)):
        group.tracker.refused(1_000, path)
    group.read()
    assert group.watch.nodes.view.offsets == 0
    assert not {path for path in group.watch.nodes.leftover_versions or () if path.startswith(DRAFT.mark("g", "t"))}


def test_commands_of_a_channel_that_left_the_list_are_not_followed() -> None:
    """The channel was purged and made again between the two answers."""
    group, channel = Group(DRAFT), DRAFT.channel("g", "c")
    group.set(DRAFT.channels_of("g"), channel)
    group.read()
    left = Node(DRAFT.channels_of("g"), Kind.CHILDREN, Stat(0, 1, 0))
    again = Node(channel, Kind.CHILDREN, Stat(0, 9, 0), children=("0000000000",))
    group.take_in(left, again)
    group.read()
    group.take_in(left)
    assert not group.follows(f"{channel}/0000000000")


def test_offsets_that_are_followed_are_not_forgotten_with_a_topic_that_was_looked_up() -> None:
    group, channel = Group(DRAFT), DRAFT.channel("g", "dead")
    group.set(DRAFT.channels_of("g"), DRAFT.owner("g", P0))
    group.set(channel, data=b'{"version":1,"batch":{"t-0":["5","9",7]}}')
    group.set(DRAFT.offset("g", P0), DRAFT.offset("g", P1), data=b"5")
    group.read()
    group.watch.sending([LookUpTopic(topic="t", why="it was deleted")])
    group.read()
    assert set(group.watch.nodes.view.leftovers["t"].offsets) == {P0, P1}
    group.watch.sending([])
    assert (group.watch.nodes.lists, group.watch.nodes.view.leftovers) == ({}, {})
    group.read()
    assert (set(group.watch.nodes.offsets), group.watch.nodes.view.committed) == ({P0}, {P0: 5})
    assert [group.follows(DRAFT.offset("g", p)) for p in (P0, P1)] == [True, False]


def test_nodes_that_went_while_only_offsets_were_listed_are_not_removed_with_the_group() -> None:
    group = Group(DRAFT)
    group.set(DRAFT.offsets("g"), DRAFT.offset("g", P0), DRAFT.topic_offsets("g", "t"))
    group.set(DRAFT.owners("g"), DRAFT.owner("g", P0))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.read()
    group.watch.list_offsets()
    assert DRAFT.offset("g", P0) not in group.read()  # the list has their number
    group.tracker.touch(DRAFT.owner("g", P0))  # a round of owners
    group.read()
    group.remove(DRAFT.mark("g", "t"))
    group.tracker.touch(DRAFT.mark("g", "t"))
    group.read()
    group.watch.list_everything()
    group.read()
    assert DRAFT.owner("g", P0) not in (group.watch.nodes.leftover_versions or {})


def test_offsets_below_a_topic_that_left_the_list_do_not_count() -> None:
    group = Group(DRAFT)
    group.set(DRAFT.offsets("g"), DRAFT.topic_offsets("g", "t"), DRAFT.offset("g", P0))
    group.watch.list_offsets()
    group.read()
    assert group.watch.nodes.view.offsets == 1
    group.remove(DRAFT.topic_offsets("g", "t"))
    group.tracker.touch(DRAFT.offsets("g"), Kind.CHILDREN)
    group.read()
    assert group.watch.nodes.view.offsets == 0


def test_a_topic_that_is_looked_up_is_read_though_it_was_read_before_and_is_kept_until_it_is_not_asked_for() -> None:
    group, looking = Group(DRAFT), [LookUpTopic(topic="t", why="it was deleted")]
    strange = f"{DRAFT.mark('g', 't')}/note"
    group.set(DRAFT.offsets("g"), DRAFT.topic_offsets("g", "t"), DRAFT.offset("g", P0), data=b"5")
    group.set(DRAFT.owners("g"))
    group.set(DRAFT.mark("g", "t"), data=MARK)
    group.read()
    group.set(strange)
    for _ in range(2):
        group.watch.sending(looking)
        group.read()
        left = group.watch.nodes.view.leftovers["t"]
        assert (set(left.offsets), left.strange) == ({P0}, (strange,))
    group.remove(strange)  # by an operator, who was asked to do so
    group.tracker.fired(DRAFT.mark("g", "t"), data=False, children=True)
    group.read()
    assert group.watch.nodes.view.leftovers["t"].strange == ()
