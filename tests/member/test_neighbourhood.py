"""A member's knowledge of the other members of a group that old consumers may join, and of their join times."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from zkcoord.core.adoption import Adoption
from zkcoord.core.member.neighbours import Neighbours
from zkcoord.core.mode import Mode
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.core.state import GroupState
from zkcoord.member.neighbourhood import Neighbourhood
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.state import encode_state

OWN, OLD = "g_h-1416335000123-z1a2b3c4", "g_old-1416335000123-1a2b3c4d"
IDS, RECORD, TOPIC = LEGACY.ids("g"), LEGACY.record("g"), LEGACY.topic("t")
OWNERS = f"{LEGACY.owners('g')}/t"
REGISTRATION = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'


def answer(others: Neighbourhood, tracker: Tracker, token: int, now_ms: int, *names: str, gone: bool = False) -> None:
    """Answer the open reads: these members are registered (`gone`: were registered a moment ago), and no other node
    exists."""
    there = {IDS: Node(IDS, Kind.CHILDREN, Stat(0, 1, 0), children=names)}
    there |= {
        f"{IDS}/{name}": Node(f"{IDS}/{name}", Kind.DATA, Stat(0, 1, 0), REGISTRATION) for name in names if not gone
    }
    nodes = [there.get(read.path, Node(read.path, read.kind, None)) for read in tracker.take(token)]
    for node in tracker.answered(token, nodes):
        others.take(node, now_ms)


def test_an_old_member_counts_as_joined_when_its_event_may_have_come_not_when_it_was_read() -> None:
    tracker = Tracker()
    others = Neighbourhood(LEGACY, "g", tracker, ("zookeeper",))
    others.own = f"{IDS}/{OWN}"
    answer(others, tracker, 1, 1_000, OWN)
    assert others.now(OWN, 1_000) is not None
    others.begin()
    tracker.resume(1_000)
    tracker.resume(1_000 + PATIENCE_MS)
    answer(others, tracker, 2, 1_100, OWN)
    others.now(OWN, 1_100)

    tracker.fired(IDS, data=False, children=True)
    tracker.resume(5_000)
    assert not tracker.asks
    tracker.resume(5_000 + PATIENCE_MS)
    answer(others, tracker, 3, 5_000 + PATIENCE_MS, OWN, OLD, gone=True)
    answer(
        others, tracker, 4, 5_000 + PATIENCE_MS, OWN, OLD, gone=True
    )  # a registration with an old member's name is read at once

    known = others.now(OWN, 5_000 + PATIENCE_MS)
    assert known is not None
    assert known.joined_ms == {OWN: 1_000, OLD: 5_000}


def told_of_ids(*names: str, member: bool) -> bool:
    """True when a change of `ids` is read at once, by a member or by a consumer that is about to join."""
    tracker = Tracker()
    others = Neighbourhood(LEGACY, "g", tracker, ("zookeeper",))
    others.own = f"{IDS}/{OWN}"
    if member:
        others.begin()
    now_ms = 1_000
    for token in range(1, 5):
        tracker.resume(now_ms)
        now_ms += PATIENCE_MS
        tracker.resume(now_ms)
        answer(others, tracker, token, now_ms, OWN, *names)
        others.now(OWN, now_ms)
    assert not tracker.asks
    tracker.fired(IDS, data=False, children=True)
    tracker.resume(now_ms)
    return tracker.asks


def test_only_a_member_among_its_like_reads_who_joined_later() -> None:
    assert not told_of_ids(member=True)
    assert told_of_ids(member=False)
    assert told_of_ids(OLD, member=True)


def nodes_of_a_mixed_group() -> dict[str, Node]:
    """The nodes of a member of ours, an old member, and a topic whose partitions all have owners."""
    adoption = Adoption(offsets="zookeeper", strategy="range", kafka="0.8.2.2")
    return {
        IDS: Node(IDS, Kind.CHILDREN, Stat(0, 1, 0), children=(OWN, OLD)),
        **{f"{IDS}/{name}": Node(f"{IDS}/{name}", Kind.DATA, Stat(0, 1, 0), REGISTRATION) for name in (OWN, OLD)},
        RECORD: Node(RECORD, Kind.DATA, Stat(0, 1, 0), encode_record(replace(DEFAULT_RECORD, adoption=adoption))),
        LEGACY.topics: Node(LEGACY.topics, Kind.CHILDREN, Stat(0, 1, 0), children=("t",)),
        TOPIC: Node(TOPIC, Kind.DATA, Stat(0, 1, 0), b'{"version":1,"partitions":{"0":[1],"1":[1]}}'),
        OWNERS: Node(OWNERS, Kind.CHILDREN, Stat(0, 1, 0), children=("0", "1")),
    }


def asks_for_owners(*, awaits: bool) -> bool:
    """True when a change of the list of owners is read at once in a mixed group."""
    tracker = Tracker()
    others = Neighbourhood(LEGACY, "g", tracker, ("zookeeper",))
    others.own = f"{IDS}/{OWN}"
    others.begin()
    there = nodes_of_a_mixed_group()
    others.take(there[others.own], 1_000)
    for token in range(1, 9):
        tracker.resume(1_000)
        at_once = tracker.asks
        tracker.resume(1_000 + PATIENCE_MS)
        read = [there.get(read.path, Node(read.path, read.kind, None)) for read in tracker.take(token)]
        assert at_once or there[OWNERS] not in read  # without the list there is no plan
        for node in tracker.answered(token, read):
            others.take(node, 1_000)
        known = others.now(OWN, 1_000)
    assert known is not None
    assert known.share is not None
    assert not known.free
    held = frozenset() if awaits else known.share.keys()
    assert others.now(OWN, 1_000, held) is known

    there[OWNERS] = Node(OWNERS, Kind.CHILDREN, Stat(0, 1, 0), children=())
    tracker.fired(OWNERS, data=False, children=True)
    tracker.resume(1_000)
    asks = tracker.asks
    assert others.now(OWN, 1_000, held) is known
    tracker.resume(1_000 + PATIENCE_MS)
    read = [there[read.path] for read in tracker.take(9)]
    for node in tracker.answered(9, read):
        others.take(node, 1_000 + PATIENCE_MS)
    fresh = others.now(OWN, 1_000 + PATIENCE_MS, held)
    assert fresh is not None
    assert fresh.free == known.share.keys()
    return asks


def test_only_a_member_that_waits_for_partitions_reads_at_once_who_owns_them() -> None:
    assert asks_for_owners(awaits=True)
    assert not asks_for_owners(awaits=False)


def test_a_share_counts_once_its_list_of_owners_was_read_also_of_a_topic_that_had_left_it() -> None:
    """The list may be answered after the topic's mark. An older list, from before the topic left, does not count any
    more."""
    tracker = Tracker()
    others = Neighbourhood(LEGACY, "g", tracker, ("zookeeper",))
    others.own = f"{IDS}/{OWN}"
    others.begin()
    there = nodes_of_a_mixed_group()
    others.take(there[others.own], 1_000)

    def known_before_and_behind_the_list(first_token: int) -> list[Neighbours | None]:
        """The known neighbours before and after the answer of the list of owners."""
        found = list[Neighbours | None]()
        for token in range(first_token, first_token + 8):
            tracker.resume(1_000)
            tracker.resume(1_000 + PATIENCE_MS)
            read = [there.get(read.path, Node(read.path, read.kind, None)) for read in tracker.take(token)]
            later = [node for node in read if node.path == OWNERS]
            for nodes in ([node for node in read if node not in later], later):
                for node in tracker.answered(token, nodes):
                    others.take(node, 1_000)
                found += [others.now(OWN, 1_000)] if later else []
            others.now(OWN, 1_000)
        return found

    before, behind = known_before_and_behind_the_list(1)
    assert before is None
    assert behind is not None
    assert not behind.free
    topic = there.pop(TOPIC)
    tracker.fired(TOPIC, data=True, children=False)
    assert known_before_and_behind_the_list(11) == []
    there |= {TOPIC: topic, OWNERS: Node(OWNERS, Kind.CHILDREN, Stat(0, 2, 0), children=())}
    tracker.fired(TOPIC, data=True, children=False)
    before, behind = known_before_and_behind_the_list(21)
    assert before is None
    assert behind is not None
    assert behind.share is not None
    assert behind.free == behind.share.keys() == {TopicPartition("t", 0)}


MARKER = b',"coordination":"zkcoord/1"}'
STATE = LEGACY.state("g")
LATE_MS = 90_000
ADOPTED = encode_record(replace(DEFAULT_RECORD, adoption=Adoption(offsets="zookeeper", strategy="range", kafka="1.1")))
T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


class Joiner:
    """A consumer that joins a group whose topic t has three partitions: range gives two of them to the first name."""

    def __init__(self) -> None:
        self.tracker, self.tokens, self.now_ms = Tracker(), count(1), 1_000
        self.others = Neighbourhood(LEGACY, "g", self.tracker, ("zookeeper",))
        self.others.own = f"{IDS}/{OWN}"
        self.others.begin()
        self.data = {RECORD: ADOPTED, TOPIC: b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}'}
        self.names: tuple[str, ...] = ()
        self.changes = 0
        self.reads: list[str] = []

    def notes(self, *old: TopicPartition, as_of: int, mode: Mode = Mode.MIXED) -> None:
        """A coordinator has written this."""
        self.data[STATE] = encode_state(GroupState(old=frozenset(old), old_as_of=as_of, mode=mode))
        self.tracker.fired(STATE, data=True, children=False)

    def members(self, *names: str, changes: int) -> None:
        """These are registered; so many members have come and gone so far."""
        self.names, self.changes = names, changes
        self.others.take(self._node(self.others.own, Kind.DATA), self.now_ms)  # another object follows it
        self.tracker.fired(IDS, data=False, children=True)

    def late(self, at_ms: int | None = None) -> set[int]:
        """The partitions whose lower offsets count as late commits, once everything is read."""
        self.now_ms = self.now_ms if at_ms is None else at_ms
        self.others.now(OWN, self.now_ms)  # at its time, as each step of the program does
        known, self.reads = None, []
        while known is None or self.tracker.asks:
            for _ in range(2):
                self.now_ms += PATIENCE_MS
                self.tracker.resume(self.now_ms)
            token = next(self.tokens)
            nodes = [self._node(read.path, read.kind) for read in self.tracker.take(token)]
            self.reads += [node.path for node in nodes]
            for node in self.tracker.answered(token, nodes):
                self.others.take(node, self.now_ms)
            known = self.others.now(OWN, self.now_ms)
        return {p.partition for p in (T0, T1, T2) if known.former.may_commit(p, self.now_ms)}

    def _node(self, path: str, kind: Kind) -> Node:
        if path == IDS:
            return Node(path, kind, Stat(0, 1, 0, child_changes=self.changes), children=self.names)
        if path in self.data:
            return Node(path, kind, Stat(0, 1, 0), self.data[path])
        if path.removeprefix(f"{IDS}/") in self.names:
            ours = path.endswith(OWN)
            return Node(path, kind, Stat(0, 1, 0), REGISTRATION[:-1] + MARKER if ours else REGISTRATION)
        children = ("t",) if path == LEGACY.topics else ()
        return Node(path, kind, Stat(0, 1, 0) if children else None, children=children)


def test_by_a_record_that_nobody_can_read_the_last_adoption_still_counts() -> None:
    joiner = Joiner()
    joiner.members(OWN, OLD, changes=2)
    joiner.late()
    before = joiner.others.now(OWN, joiner.now_ms)
    assert before is not None
    assert before.mode.mode is Mode.MIXED
    joiner.data[RECORD] = b"{"
    joiner.tracker.fired(RECORD, data=True, children=False)
    joiner.late()
    assert RECORD in joiner.reads
    known = joiner.others.now(OWN, joiner.now_ms)
    assert known is not None
    assert (known.mode, known.store, known.patience_ms) == (before.mode, before.store, before.patience_ms)


def test_f326_among_its_like_a_member_reads_the_coordinator_s_notes_once() -> None:
    joiner = Joiner()
    joiner.notes(as_of=0, mode=Mode.COORDINATED)
    joiner.members(OWN, changes=1)
    assert joiner.late() == set()
    assert STATE in joiner.reads
    joiner.notes(T0, as_of=9)
    joiner.members(OWN, changes=3)
    assert joiner.late() == set()
    assert STATE not in joiner.reads


def test_f326_a_joiner_of_a_coordinated_group_knows_from_notes_what_old_members_had() -> None:
    joiner = Joiner()
    joiner.notes(T0, T1, as_of=3, mode=Mode.COORDINATED)
    joiner.members(OWN, changes=7)
    assert joiner.late() == {0, 1}
    joiner.notes(T1, as_of=3, mode=Mode.COORDINATED)
    assert joiner.late() == {1}
    joiner.notes(as_of=0, mode=Mode.COORDINATED)
    assert joiner.late() == set()
    joiner.notes(T2, as_of=9)
    joiner.late()
    assert STATE not in joiner.reads


def test_f326_a_joiner_of_a_mixed_group_believes_only_notes_that_cover_its_first_look() -> None:
    joiner = Joiner()
    joiner.notes(T2, as_of=5)
    joiner.members(OWN, OLD, changes=6)
    assert joiner.late() == {0, 1, 2}
    joiner.members(OWN, OLD, changes=8)
    joiner.notes(T0, T2, as_of=6)
    assert joiner.late() == {0, 2}
    joiner.notes(T2, as_of=8)
    assert joiner.late() == {2}


def test_f326_without_a_coordinator_every_lower_offset_may_be_a_late_commit() -> None:
    joiner = Joiner()
    joiner.members(OWN, OLD, changes=2)
    assert joiner.late() == {0, 1, 2}
    looked_ms = joiner.now_ms
    joiner.data[STATE] = b"damaged"
    joiner.tracker.fired(STATE, data=True, children=False)
    assert joiner.late(looked_ms + LATE_MS // 2) == {0, 1, 2}
    assert joiner.late(looked_ms + LATE_MS) == {2}


def test_f326_notes_from_before_the_group_was_shared_do_not_count() -> None:
    joiner = Joiner()
    joiner.notes(as_of=0, mode=Mode.COORDINATED)
    joiner.members(OWN, OLD, changes=2)
    assert joiner.late() == {0, 1, 2}
    joiner.members(OWN, changes=3)
    assert joiner.late() == {0, 1, 2}  # no coordinator has seen the old member
    joiner.notes(T1, T2, as_of=3, mode=Mode.COORDINATED)
    assert joiner.late() == {1, 2}
    joiner.notes(as_of=0, mode=Mode.COORDINATED)
    assert joiner.late() == {2}  # this it saw itself


def test_f326_notes_tell_a_member_what_it_missed_while_nobody_knew_what_old_members_have() -> None:
    joiner = Joiner()
    joiner.members(OWN, changes=1)
    joiner.late()
    joiner.data[f"{IDS}/{OLD}"] = b"no registration"
    joiner.members(OWN, OLD, changes=2)
    assert joiner.late() == set()
    joiner.notes(T1, as_of=0)
    joiner.members(OWN, changes=3)
    assert joiner.late() == {0, 1, 2}
    joiner.notes(T1, as_of=3, mode=Mode.COORDINATED)
    assert joiner.late() == {1}
