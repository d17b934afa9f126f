"""Owners that nobody watches are read again slowly."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.core.model import TopicPartition
from zkcoord.core.timing import Timing
from zkcoord.core.view import Channel, GroupView, Owner
from zkcoord.serving.group_watch import GroupWatch
from zkcoord.serving.owner_rounds import OWNERS_MAX, PAUSE_MS, ROUND_MS, OwnerRounds
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind


def test_a_round_reads_all_owners_once_and_no_more_than_its_share_in_a_second() -> None:
    owners = {TopicPartition("t", number): Owner("a-0", 1) for number in range(OWNERS_MAX + 7)}
    groups = {}
    tracker, read = Tracker(), list[str]()
    tracker.touch = lambda path, kind=Kind.DATA: read.append(path)  # type: ignore[method-assign]
    for name in ("b", "a"):
        groups[name] = GroupWatch.begin(name, DRAFT, Tracker())
        groups[name].nodes = replace(groups[name].nodes, view=GroupView(group=name, owners=owners))
    rounds, now_ms, steps = OwnerRounds(), 5, list[tuple[int, int]]()
    for _ in range(6):
        before, asked_ms = len(read), now_ms
        now_ms = rounds.advance(groups, tracker, now_ms)
        assert rounds.advance(groups, tracker, now_ms - 1) == now_ms
        steps.append((len(read) - before, now_ms - asked_ms))
    whole = (OWNERS_MAX, PAUSE_MS)
    assert steps == [(0, ROUND_MS), whole, whole, (14, ROUND_MS), whole, whole]
    assert read[: 2 * OWNERS_MAX + 14] == [DRAFT.owner(name, p) for name in ("a", "b") for p in owners]


def test_a_status_is_read_again_after_a_start_and_twice_without_a_first_record() -> None:
    path = DRAFT.channel("g", "c")
    seen = Timing("0000000001", False, 0, (("t", ((0, 0),)),), seen_ms=9)
    both = (seen, seen._replace(seen_ms=None, first_record_ms=2))
    for timing, expected in (((), []), ((seen,), [10_100, 60_100]), (both, [10_100])):
        tracker, read = Tracker(), list[tuple[int, str]]()
        now_ms = 100
        tracker.touch = lambda path, kind=Kind.DATA: read.append((now_ms, path))  # type: ignore[method-assign]  # noqa: B023
        watch = GroupWatch.begin("g", DRAFT, Tracker())
        channel = Channel(consumer_id="c", version=3, timing=timing)
        watch.nodes = replace(watch.nodes, view=GroupView(group="g", channels={"c": channel}))
        watch.channels.started.add("c")
        rounds = OwnerRounds()
        rounds.started(watch, now_ms)
        while now_ms < ROUND_MS:
            now_ms = rounds.advance({"g": watch}, tracker, now_ms)
        assert read == [(at_ms, path) for at_ms in expected]
