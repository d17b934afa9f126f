"""Owners that nobody watches are read again slowly."""

from __future__ import annotations

from dataclasses import replace

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import GroupView, Owner
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
