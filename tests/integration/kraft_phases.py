"""What is done and asked in each phase of a cluster's move to KRaft, under a producer and a group that reads on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from click.testing import CliRunner

from tests.integration.kraft_flow import Flow
from tests.integration.kraft_scene import KRaftMove
from tests.waiting import wait_until
from zkcoord.cli.main import cli
from zkcoord.coordinator import Coordinator

PATIENCE_SECONDS = 120.0  # of a whole phase, on a loaded machine


class Reads(Protocol):
    """A member of the group."""

    def offsets(self, number: int) -> list[int]:
        """What it has read of a partition, what was read twice as often."""

    def leave(self) -> None:
        """Leave cleanly."""


Readers = Sequence[Reads]


def called(*words: str) -> str:
    """Run a command of an operator's; what it complains of, "" if it succeeds."""
    result = CliRunner().invoke(cli, list(words), prog_name="zkcoord")
    return "" if result.exit_code == 0 else f"{words} ended with {result.exit_code}: {result.output}"


def run(*words: str) -> None:
    """Run one that must succeed."""
    complaint = called(*words)
    assert not complaint, complaint


def read(readers: Readers, number: int) -> list[int]:
    """What these have read of a partition."""
    return sorted(offset for reader in readers for offset in reader.offsets(number))


def follow(flow: Flow, readers: Readers, what: str) -> None:
    """Wait until what is written by now, and some more, is read."""
    goal = {number: count + 5 for number, count in flow.written.items()}

    def read_so_far() -> bool:
        flow.check()
        return all(len(read(readers, n)) >= count for n, count in goal.items())

    try:
        wait_until(read_so_far, what, PATIENCE_SECONDS)
    except AssertionError as error:
        has = {name: {n: len(read([reader], n)) for n in goal} for name, reader in enumerate(readers)}
        raise AssertionError(f"{error}: wanted {goal}, written {flow.written}, read {has}") from error


def end(flow: Flow, readers: Readers) -> None:
    """Nothing is written any more; each record was read once."""
    written = flow.end()
    wait_until(lambda: all(len(read(readers, n)) >= count for n, count in written.items()), "all is read")
    assert {n: read(readers, n) for n in written} == {n: list(range(count)) for n, count in written.items()}


def stopped(scene: KRaftMove) -> list[Any]:
    """The partitions that somebody had to stop, from the log."""
    return [fields["partitions"] for fields in scene.reports.of("fetch_stopped") if fields["partitions"]]


def switch_topics(scene: KRaftMove, coordinator: Coordinator, source: str = "kafka") -> Coordinator:
    """Topics come from there from now on, and another coordinator serves."""
    where = ("--zookeeper", scene.zookeeper, "--bootstrap-servers", scene.servers)
    run("migrate", "upgrade", *where)
    run("migrate", "topics", "--to", source, "--dry-run", *where)
    run("migrate", "topics", "--to", source, *where)
    coordinator.stop()
    return scene.coordinator(topics=source, bootstrap_servers=scene.servers)


def kill_in(scene: KRaftMove, flow: Flow, readers: Readers, partitions: int) -> None:
    """While one controller is dead, killed as it led, the topic has more partitions, which are written and read."""
    killed = scene.kill_leading_controller()
    grow(scene, flow, readers, partitions)
    killed.start()


def grow(scene: KRaftMove, flow: Flow, readers: Readers, partitions: int) -> None:
    """The topic has more partitions, which are written and read."""
    scene.grow(partitions)
    flow.grow(scene.admin, partitions)
    wait_until(lambda: set(flow.written) == set(range(partitions)), "new partitions are written")
    follow(flow, readers, "the new partitions are read")
    assert scene.reports.of("fetch_started")  # of the new partitions
