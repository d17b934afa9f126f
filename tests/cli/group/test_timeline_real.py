"""A real coordinator's journal tells the hand-overs that its endpoint tells, which say what a stop's time went into."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from tests.metrics.test_endpoint import free_address, make_topic
from tests.obedient import obedient
from tests.waiting import wait_until
from zkcoord import Coordinator, TopicPartition, UsageError
from zkcoord.clock import mono_ms
from zkcoord.core.handovers import MOMENTS, PARTS
from zkcoord.errors import UnavailableError
from zkcoord.operating.handovers import fetch_handovers, row

APART_MS = 5_000
"""The journal's lines have the wall clock of the end of a step, which a slow machine makes long."""

ROUNDED_MS = 2
"""Each time is whole ms, of one of two clocks."""

PATIENCE_SECONDS = 60.0  # only what fails takes so long
HELD_MS = 500
"""So long an application is at work."""
PARTITIONS = (TopicPartition("clicks", 0), TopicPartition("clicks", 1))


@pytest.mark.zookeeper
def test_a_journal_and_the_endpoint_tell_the_same_handovers(chroot: str, tmp_path: Path, run: Run) -> None:
    make_topic(chroot, 4)
    address = free_address()
    coordinator = Coordinator(chroot, metrics=address, journal=tmp_path / "journal")
    coordinator.start()
    live: list[dict[str, Any]] = []

    def complete(number: int) -> bool:
        """So many hand-overs are complete."""
        with suppress(UsageError, UnavailableError):  # it does not know the group yet
            live[:] = fetch_handovers([address], "g", 100)
        return len(live) == number and all(each["acknowledged_ms"] for each in live)

    try:
        with obedient(chroot, "clicks"):
            wait_until(lambda: complete(4), "the first has all")
            with obedient(chroot, "clicks"):
                wait_until(lambda: complete(6), "the second has two")
    finally:
        coordinator.stop()

    printed = run("group", "timeline", "g", "--journal", str(tmp_path / "journal"), "--output", "json").stdout
    journaled = [json.loads(line) for line in printed.splitlines()][:6]  # what follows is of the members' ends
    assert stages(journaled) == stages(live)
    for one, other in zip(in_order(journaled), in_order(live), strict=True):
        assert abs(one["granted_ms"] - other["granted_ms"]) < APART_MS


@pytest.mark.zookeeper
def test_the_timeline_tells_a_slow_stop_from_a_stop_seen_late_and_a_slow_commit(
    chroot: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkcoord.serving.owner_rounds.STATUS_AFTER_MS", (500, 3_000))
    make_topic(chroot, 2)
    address, asked, may_stop, started = free_address(), threading.Event(), threading.Event(), list[TopicPartition]()
    coordinator = Coordinator(chroot, metrics=address, journal=tmp_path / "journal")
    coordinator.start()

    def stops_slowly(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        asked.set()
        may_stop.wait(PATIENCE_SECONDS)
        return {}

    def told() -> dict[str, Any]:
        """The hand-over with a stop."""
        moved = [each for each in fetch_handovers([address], "g", 100) if each["from"]]
        return moved[0] if moved else {}

    try:
        with obedient(chroot, "clicks", on_stop=stops_slowly) as first:
            wait_until(lambda: any(map(first.allowed, PARTITIONS)), "the first reads")
            joins_ms = mono_ms()
            with obedient(chroot, "clicks", on_start=started.extend) as second:
                wait_until(asked.is_set, "it is asked to stop")
                since_ms = mono_ms()
                wait_until(lambda: mono_ms() - since_ms > HELD_MS, "its application is at work")
                stops_ms = mono_ms()
                may_stop.set()
                wait_until(lambda: any(map(second.allowed, started)), "the second reads")
                reads_ms = mono_ms()
                second.reading(started)
                offsets = count(1)

                def first_record_known() -> bool:
                    """A commit that is made while the channel is being read does not tell it: the next one does."""
                    second.commit(dict.fromkeys(started, next(offsets)))
                    return told().get("first_record_ms") is not None

                wait_until(first_record_known, "its first record is known")
                live = told()
    finally:
        may_stop.set()
        coordinator.stop()

    moments = [live[name] for name in MOMENTS]
    assert moments == sorted(moments)
    took = {name: live[ended] - live[begun] for name, (begun, ended) in PARTS["stop"].items()}
    assert took["finish"] >= HELD_MS - 1
    assert took["send"] + took["see"] <= since_ms - joins_ms + ROUNDED_MS
    assert took["commit"] + took["release"] <= reads_ms - stops_ms + ROUNDED_MS
    printed = run("group", "timeline", "g", "--journal", str(tmp_path / "journal"), "--output", "json").stdout
    journaled = next(each for each in map(json.loads, printed.splitlines()) if each["from"])
    assert [journaled[name] - journaled["decided_ms"] for name in MOMENTS] == [at - moments[0] for at in moments]


def in_order(handovers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(handovers, key=lambda each: (each["generation"], each["partition"]))


def stages(handovers: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """What their rows have but the time of day."""
    return [row(each)[1:] for each in in_order(handovers)]
