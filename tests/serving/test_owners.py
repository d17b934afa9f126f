"""The nodes that a coordinator reads again where owners are claims: lists of claims, and offsets of evicted consumers'
claims."""

from __future__ import annotations

from dataclasses import replace

from tests.core.groups import channel, group, member
from zkcoord.core.adoption import Adoption
from zkcoord.core.command import Command, Option
from zkcoord.core.decisions import DeleteClaims
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.view import OffsetSeen, Owner
from zkcoord.legacy.modes import GRACE_MS
from zkcoord.serving.channels import Channels
from zkcoord.serving.group_wants import GroupWants
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.owners import ClaimWatch
from zkcoord.serving.topics import TopicTable
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.command import encode_command
from zkcoord.tree.known_topics import KnownTopics
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.reading import of_topic
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Kind, Node, Stat, Want
from zkcoord.tree.view import GroupNodes, fold, unread
from zkcoord.tree.whole_view import Environment

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
CHANNEL = LEGACY.channel("g", "c")
START = encode_command(Command(option=Option.START_FETCHER, ownership={P0: "c-0"}, generation=2, epoch=1))


def asked(tracker: Tracker) -> list[str]:
    """The paths that must be read now. The reads are taken as done."""
    reads = tracker.take(1)
    tracker.answered(1, [Node(*read[:2], None) for read in reads])
    return sorted(read.path for read in reads)


AROUND = Environment(topics=KnownTopics(LEGACY), racks={}, root_czxid=1, protocols=(1, 1))


def evicted(*claims: TopicPartition, **versions: int) -> GroupNodes:
    """b was evicted, and these claims of it still exist. `versions` are those of the offsets that were read."""
    view = fast_replace(group([member("a")], {}, claims=True), owners={p: Owner("b-0", 1) for p in claims})
    view = fast_replace(view, channels={**view.channels, "b": channel("b", evicted_ms=6_000)})
    seen = {TopicPartition("t", int(name[1:])): OffsetSeen("7", version) for name, version in versions.items()}
    return fast_replace(unread("g", LEGACY), view=view, claims=view.owners, offsets=seen)


def test_only_its_event_has_a_list_of_claims_read_again() -> None:
    """The event came before either was read: a server notifies a session in the order of changes."""
    tracker, claims = Tracker(), LEGACY.topic_owners("g", "t")
    wants = GroupWants("g", tracker)
    channels = Channels("g", LEGACY, tracker, wants, ClaimWatch(tracker))
    wants.follow("t", of_topic("g", "t", LEGACY)[-1:])
    listed = Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, 1), b"", ("0000000000",))
    command = Node(f"{CHANNEL}/0000000000", Kind.DATA, Stat(0, 0, 0), START)
    status = Node(CHANNEL, Kind.DATA, Stat(0, 5, 0))
    claim = Node(LEGACY.owner("g", P1), Kind.DATA, Stat(1, 4, 9), b"c-0")
    before = fold(unread("g", LEGACY), [status, listed, command, claim], LEGACY)
    assert asked(tracker) == [claims]
    obeyed = Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, 2), b"", ())
    tracker.want(CHANNEL, scope="g")
    asked(tracker)
    channels.follow_channel(before, fold(before, [obeyed], LEGACY), "c", obeyed)
    assert asked(tracker) == [CHANNEL]
    channels.follow_end(before, {"c"})
    assert asked(tracker) == [CHANNEL]
    tracker.fired(claims, data=False, children=True)
    assert asked(tracker) == [claims]


def watched() -> GroupWatch:
    """A group under watch, of which everything was read."""
    watch = GroupWatch.begin("g", LEGACY, Tracker())
    asked(watch.tracker)
    return watch


def completed(watch: GroupWatch, nodes: GroupNodes) -> None:
    """These nodes of the group were read, and its view is completed."""
    watch.nodes = nodes
    watch.complete(AROUND, 1_000)


def test_an_evicted_consumers_claimed_offset_is_told_once_read_after_the_claim() -> None:
    watch = watched()
    completed(watch, evicted(P0, p0=3))
    assert asked(watch.tracker) == [LEGACY.offset("g", P0)]
    completed(watch, evicted(P0, p0=4))
    assert (watch.nodes.view.claim_offsets, asked(watch.tracker)) == ({P0: 4}, [])


def test_an_offset_that_is_followed_for_another_reason_stays_followed_when_the_claim_is_gone() -> None:
    watch, offsets = watched(), [LEGACY.offset("g", p) for p in (P0, P1)]
    completed(watch, evicted(P0, P1))
    assert asked(watch.tracker) == offsets
    watch.wants.also("another reason", [Want(offsets[0])])
    completed(watch, evicted())
    for path in offsets:
        watch.tracker.touch(path)
    assert asked(watch.tracker) == offsets[:1]


def test_a_claimed_offset_is_read_again_though_it_was_read_for_another_reason() -> None:
    watch, path = watched(), LEGACY.offset("g", P0)
    watch.wants.also("another reason", [Want(path)])
    assert asked(watch.tracker) == [path]
    completed(watch, evicted(P0, p0=3))
    assert asked(watch.tracker) == [path]


def test_the_versions_of_claimed_offsets_follow_the_offsets_and_the_claims() -> None:
    watch = watched()
    completed(watch, evicted(P0, p0=3))
    completed(watch, replace(watch.nodes, offsets={P0: OffsetSeen("7", 4)}))
    assert watch.nodes.view.claim_offsets == {P0: 4}
    watch.sending([])
    completed(watch, watch.nodes)
    assert watch.nodes.view.claim_offsets == {P0: 4}
    completed(watch, replace(watch.nodes, claims={}))
    assert watch.nodes.view.claim_offsets == {}


def test_behind_a_deletion_of_claims_their_offsets_are_read_again() -> None:
    """The deletion is refused if somebody has set one of the offsets meanwhile. Then it is decided again."""
    watch = GroupWatch.begin("g", LEGACY, Tracker())
    asked(watch.tracker)
    watch.sent(DeleteClaims(consumer_id="b", partitions={P0: 3}, why="its grace is over"))
    assert asked(watch.tracker) == [LEGACY.offset("g", P0)]


def test_a_channel_list_that_hides_changes_has_the_status_read_without_a_stop() -> None:
    """Beside old members a consumer releases partitions by the plan, without a command (F325)."""
    tracker = Tracker()
    channels = Channels("g", LEGACY, tracker, GroupWants("g", tracker), ClaimWatch(tracker))
    empty, released = (Node(CHANNEL, Kind.CHILDREN, Stat(0, 5, 0, 0, changes), b"", ()) for changes in (0, 2))
    nodes = fold(unread("g", LEGACY), [Node(CHANNEL, Kind.DATA, Stat(0, 5, 0)), empty], LEGACY)
    tracker.want(CHANNEL, scope="g")
    asked(tracker)
    channels.follow_channel(nodes, nodes, "c", empty)
    assert asked(tracker) == []
    channels.follow_channel(nodes, nodes, "c", released)
    assert asked(tracker) == [CHANNEL]


IDS, RECORD = LEGACY.ids("g"), LEGACY.record("g")
OURS, OLD = "g_h-1416335000123-z1a2b3c4", "g_old-1416335000123-1a2b3c4d"


class Adopted:
    """An adopted group that a coordinator follows."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.begin()

    def begin(self) -> None:
        """Follow the group from now on."""
        self.watch = GroupWatch.begin("g", LEGACY, self.tracker)
        adoption = Adoption(offsets="zookeeper", strategy="range", kafka="0.8.2.2")
        record = encode_record(replace(DEFAULT_RECORD, adoption=adoption))
        self._read(Node(RECORD, Kind.DATA, Stat(0, 1, 0), record))
        self.watch.read_when_adopted()

    def registered(self, *names: str, now_ms: int = 1_000, unreadable: bool = False) -> None:
        """These members are registered now. `unreadable`: nobody can parse the old member's registration."""
        plain = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'
        marked = plain[:-1] + b',"coordination":"zkcoord/1"}'
        self._read(Node(IDS, Kind.CHILDREN, Stat(0, 1, 0), children=names))
        data = {OURS: marked, OLD: b"?" if unreadable else plain}
        self._read(*(Node(f"{IDS}/{name}", Kind.DATA, Stat(0, 2, 0), data[name]) for name in names))
        table = TopicTable(self.tracker, LEGACY, lambda path, problem: None, lambda path: False)
        self.watch.complete(replace(AROUND, topics=table), now_ms)
        self.mode = self.watch.nodes.view.mode

    def _read(self, *nodes: Node) -> None:
        self.watch.read([(address, node) for node in nodes if (address := LEGACY.parse(node.path)) is not None])

    def asks_at_once(self) -> bool:
        """True if a change of the group is read without waiting for another read."""
        for ms in (1_000, 1_000 + PATIENCE_MS):
            self.tracker.resume(ms)
            while asked(self.tracker):
                pass
        self.tracker.fired(IDS, data=False, children=True)
        self.tracker.resume(2_000)
        return self.tracker.asks


def test_a_group_is_read_patiently_while_old_members_are_in_it() -> None:
    """Each of them changes the list of claims once for every partition."""
    adopted = Adopted()
    adopted.registered(OURS)
    assert adopted.asks_at_once()
    adopted.registered(OURS, OLD)
    assert not adopted.asks_at_once()
    adopted.registered(OURS)
    assert adopted.asks_at_once()


def test_a_group_that_is_followed_anew_is_read_at_once_though_it_had_old_members() -> None:
    adopted = Adopted()
    adopted.registered(OURS, OLD)
    adopted.watch.end()
    adopted.begin()
    assert adopted.asks_at_once()


def test_a_group_is_read_patiently_also_while_it_is_observed_or_waits_for_a_registration() -> None:
    adopted = Adopted()
    adopted.registered(OURS, OLD, unreadable=True)
    assert (adopted.mode.mode, adopted.mode.plan) == (Mode.MIXED, None)
    assert not adopted.asks_at_once()
    adopted.registered(OURS, OLD, unreadable=True, now_ms=1_000 + GRACE_MS)
    assert adopted.mode.mode is Mode.OBSERVE
    assert not adopted.asks_at_once()
