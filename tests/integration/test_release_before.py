"""The release before beside this one: coordinators and members of both share a tree, and take over from each other.

`tests/data/release_before.zip` holds the earlier release's `zkcoord` (what a coordinator and a member need) and
`migrations`; `tests/data/journal_before` some pages of a journal that its coordinator wrote.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.integration.processes import COORDINATOR, GROUP, PARTITIONS, READER, Scene, judge, share
from tests.metrics.test_endpoint import free_address
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.core.handovers import MOMENTS
from zkcoord.operating.handovers import fetch_handovers
from zkcoord.tree.paths import CANDIDATES, DRAFT

pytestmark = pytest.mark.zookeeper

ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "release_before.zip"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which the earlier release is imported."""
    folder = tmp_path_factory.mktemp("release_before")
    with ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    (folder / "migrations").rename(folder / "zkcoord_migrations")
    code = "import zkcoord, zkcoord_migrations; print(zkcoord.__file__, zkcoord_migrations.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    assert [path.startswith(str(folder)) for path in told.stdout.split()] == [True, True]
    return folder


@pytest.mark.parametrize("first", ["before", "now"])
def test_coordinators_and_members_of_both_releases_serve_each_other_in_either_order(
    first: str, chroot: str, before: Path
) -> None:
    earlier, later = (before, None) if first == "before" else (None, before)
    with Scene(chroot) as scene:
        serving = scene.child(COORDINATOR, package=earlier)
        assert serving.wait("elected")["epoch"] == 1
        readers = [scene.child(READER, package=package) for package in (earlier, later)]
        wait_until(share(readers), "a member of each release has its share, with the first coordinator")
        next_one = scene.child(COORDINATOR, package=later)
        wait_until(lambda: scene.names(CANDIDATES) == ["0", "1"], "the other release's coordinator stands by")
        serving.signal(signal.SIGTERM)
        assert next_one.wait("elected")["epoch"] == 2
        readers.append(scene.child(READER, package=earlier))
        wait_until(share(readers), "three members share, with the second coordinator")
        readers[1].close()  # hard: its session ends by its timeout
        wait_until(share([readers[0], readers[2]]), "the others take over what a dead one had")
        returned = scene.child(READER, package=later)
        wait_until(share([readers[0], readers[2], returned]), "a member of the second release has a share again")
        wait_until(scene.owners_are_members, "every owner is a member")
        wait_until(lambda: not _commands(scene), "no command is left")
        judge([*readers, returned])


@contextmanager
def serving(chroot: str, metrics: str) -> Iterator[None]:
    """A coordinator of this release in this process."""
    coordinator = Coordinator(chroot, metrics=metrics)
    coordinator.start()
    try:
        yield
    finally:
        coordinator.stop()


def test_a_member_of_the_earlier_release_has_the_moments_that_the_coordinator_sees_itself(
    chroot: str, before: Path
) -> None:
    address = free_address()
    with Scene(chroot) as scene, serving(chroot, address):
        earlier = scene.child(READER, package=before)
        wait_until(share([earlier]), "the earlier one has all")
        readers = [earlier, scene.child(READER)]
        wait_until(share(readers), "it has handed half of it over")

        def told() -> list[dict[str, Any]]:
            return [each for each in fetch_handovers([address], GROUP, 100) if each["acknowledged_ms"]]

        wait_until(lambda: len(told()) == PARTITIONS * 3 // 2, "all hand-overs are known")
        begun, moved = told()[:PARTITIONS], told()[PARTITIONS:]
        judge(readers)
    own = {"decided_ms", "sent_ms", "released_ms", "granted_ms", "acknowledged_ms"}
    assert [{name for name in MOMENTS if each[name] is not None} for each in begun] == (
        [{"released_ms", "granted_ms", "acknowledged_ms"}] * PARTITIONS
    )
    for each in moved:  # the taker tells when it saw the start
        known = {name for name in MOMENTS if each[name] is not None}
        assert known - {"sent_ms"} == own - {"sent_ms"} | {"start_seen_ms"}


def test_f209_the_release_before_plays_its_own_journal_again(before: Path) -> None:
    """So the pages with which `cli/test_replay.py` tries this release are sound."""
    command = [sys.executable, "-m", "zkcoord.cli.replay", str(ARCHIVE.parent / "journal_before")]
    environment = {**os.environ, "PYTHONPATH": str(before)}

    told = subprocess.run(command, cwd=before, env=environment, capture_output=True, text=True, check=True)

    lines = told.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith(": the same") for line in lines)


def _commands(scene: Scene) -> list[str]:
    channels = [DRAFT.channel(GROUP, consumer) for consumer in scene.names(DRAFT.channels_of(GROUP))]
    return [name for channel in channels for name in scene.names(channel)]
