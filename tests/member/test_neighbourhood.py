"""What a member knows of the others where old consumers may come, and since when."""

from __future__ import annotations

from zkcoord.member.neighbourhood import Neighbourhood
from zkcoord.shell.fair_queue import PATIENCE_MS
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Kind, Node, Stat

OWN, OLD = "g_h-1416335000123-z1a2b3c4", "g_old-1416335000123-1a2b3c4d"
IDS = LEGACY.ids("g")
REGISTRATION = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'


def answer(others: Neighbourhood, tracker: Tracker, token: int, now_ms: int, *names: str, gone: bool = False) -> None:
    """Answer what is asked for: these are registered, or (`gone`) were, and nothing else is there."""
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
    )  # what is named as an old one's is read at once

    known = others.now(OWN, 5_000 + PATIENCE_MS)
    assert known is not None
    assert known.joined_ms == {OWN: 1_000, OLD: 5_000}


def told_of_ids(*names: str, member: bool) -> bool:
    """True when a change of `ids` is asked for at once, by a member or one who is about to be."""
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
