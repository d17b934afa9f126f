"""A real coordinator's journal tells the hand-overs that its endpoint tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Run
from tests.metrics.test_endpoint import free_address, make_topic
from tests.obedient import obedient
from tests.waiting import wait_until
from zkcoord import Coordinator, UsageError
from zkcoord.errors import UnavailableError
from zkcoord.operating.handovers import fetch_handovers, row

APART_MS = 5_000
"""The journal's lines have the wall clock of the end of a step, which a slow machine makes long."""


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


def in_order(handovers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(handovers, key=lambda each: (each["generation"], each["partition"]))


def stages(handovers: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """What their rows have but the time of day."""
    return [row(each)[1:] for each in in_order(handovers)]
