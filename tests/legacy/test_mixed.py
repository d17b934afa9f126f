"""A real old consumer and one of zkcoord share an adopted group, join, leave and die beside each other."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.integration.processes import READER, Child, now_ms
from tests.legacy.lab import EACH_AT_LENGTH, RETRIES, SESSION_MS, Lab, OldConsumer
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]

TOPIC, SIZE = "t", 6
LATE_MS = 250
"""An old member deletes the nodes of a topic one by one, then forgets it, and tells that at its next look."""

PATIENCE_S = 60.0
BACKOFF_MS = 1_000  # half of the old default: the last of four tries is 3 s after the first


class Mixed:
    """An adopted group: old members are the lab's, ours are processes that read made-up records without end."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab, self._stack = lab, stack
        self.ours: list[Child] = []
        lab.topic(TOPIC, SIZE)
        with Tree(lab.hosts) as tree:
            upgrade(tree, run_id="test", layout="legacy")
        adoption = Adoption(offsets="zookeeper", strategy="range", kafka="1.1", retries=RETRIES, backoff_ms=BACKOFF_MS)
        record = encode_record(replace(DEFAULT_RECORD, adoption=adoption))
        lab.zk.create(LEGACY.record("g"), record, makepath=True)

    def coordinate(self) -> None:
        """A coordinator serves from now on."""
        coordinator = Coordinator(self.lab.hosts, layout="legacy")
        coordinator.start()
        self._stack.callback(coordinator.stop)

    def join(self, name: str, version: str) -> OldConsumer:
        """One more old member; returns when its first rebalance has succeeded."""
        member = self.lab.start(name, version, rebalance_backoff_ms=BACKOFF_MS)
        wait_until(lambda: member.events("started") or member.events("gave_up"), f"{name} starts", PATIENCE_S)
        assert not member.events("gave_up"), (member.child.tail(), self.lab.history[-20:])
        return member

    def start_ours(self) -> Child:
        """One more consumer of zkcoord; returns when it reads."""
        child = Child(READER, self.lab.hosts, SESSION_MS)
        self._stack.callback(child.close)
        self.ours.append(child)
        child.wait("fetched")
        return child

    def await_shares(self, *shares: int) -> None:
        """Wait until everything is owned in shares of these sizes, and read by each of ours that is there."""

        def shared() -> bool:
            owners = self.lab.owners()
            by = Counter(thread.rpartition("-")[0] for thread in owners.values())
            mine = {p for p, thread in owners.items() if "-z" in thread}
            reading = {p for child in self.ours if child.process.poll() is None for p in child.reads()}
            return sorted(by.values()) == sorted(shares) and sum(by.values()) == SIZE and reading == mine

        wait_until(shared, f"shares of {shares}", PATIENCE_S)

    def overlaps(self) -> list[str]:
        """What one of ours read while an old member held it to be its own. An old member that was killed has no end."""
        offset_ms = time.time_ns() // 1_000_000 - now_ms()  # from the clock of the logs to the wall clock
        found = []
        for member in self.lab.consumers:
            owns = member.events("owns")
            ends = [event["at_ms"] for event in owns[1:]]
            for event, end_ms in zip(owns, ends, strict=False):
                held = {f"{topic}-{n}" for topic, numbers in event["partitions"].items() for n in numbers}
                for child in self.ours:
                    for read in child.of("fetched"):
                        at_ms = read["mono_ms"] + offset_ms
                        if read["partition"] in held and event["at_ms"] < at_ms < end_ms - LATE_MS:
                            found.append(f"{read['partition']} read at {at_ms}, {member.name}'s until {end_ms}")
        return found


@pytest.fixture
def mixed(lab: Lab) -> Iterator[Mixed]:
    with ExitStack() as stack:
        yield Mixed(lab, stack)


def gave_up(*members: OldConsumer) -> list[str]:
    """Those that could not rebalance."""
    return [member.name for member in members if member.events("gave_up")]


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_old_members_and_ours_share_a_group_without_a_coordinator_through_joins_leaves_and_kills(
    mixed: Mixed, version: str
) -> None:
    a = mixed.join("a", version)
    mixed.await_shares(6)
    first = mixed.start_ours()
    mixed.await_shares(3, 3)
    b = mixed.join("b", version)
    mixed.await_shares(2, 2, 2)
    first.signal(signal.SIGKILL)
    mixed.await_shares(3, 3)
    mixed.start_ours()
    mixed.await_shares(2, 2, 2)
    b.child.kill()
    mixed.await_shares(3, 3)
    mixed.lab.topic(TOPIC, SIZE)  # the same again: the old one releases and claims all of its share
    mixed.await_shares(3, 3)
    assert gave_up(a, b) == []
    assert mixed.overlaps() == []


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_coordinated_group_gives_an_old_member_its_share_at_once_and_takes_it_back_when_it_leaves(
    mixed: Mixed, version: str
) -> None:
    mixed.coordinate()
    mixed.start_ours()
    mixed.start_ours()
    mixed.await_shares(3, 3)
    a = mixed.join("a", version)
    mixed.await_shares(2, 2, 2)
    a.leave()
    mixed.await_shares(3, 3)
    assert gave_up(a) == []
    assert mixed.overlaps() == []


def zkcoord(hosts: str, *words: str) -> dict[str, Any]:
    """What a command prints for programs."""
    ran = CliRunner().invoke(cli, ["--zookeeper", hosts, "--output", "json", *words], prog_name="zkcoord")
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_f95_what_a_member_gave_up_is_told_by_the_tools_and_claimed_again_after_a_poke(
    mixed: Mixed, version: str
) -> None:
    mixed.coordinate()
    lab = mixed.lab
    stranger = lab.claim(TOPIC, 0, "g_x-0")  # somebody does not give it up in time
    a = lab.start("a", version)
    a.await_event("gave_up")
    lab.zk.delete(stranger)
    wait_until(lambda: zkcoord(lab.hosts, "group", "describe", "g")["problem"], "the problem is told", PATIENCE_S)
    told = zkcoord(lab.hosts, "group", "describe", "g")
    assert (told["mode"], told["old_members"], lab.owners()) == ("mixed", [a.id], {})
    assert "zkcoord group poke g" in told["problem"]
    assert zkcoord(lab.hosts, "group", "poke", "g")["state"] == "done"
    mixed.await_shares(SIZE)
    wait_until(lambda: zkcoord(lab.hosts, "group", "describe", "g")["problem"] is None, "it is over")
    assert zkcoord(lab.hosts, "group", "describe", "g")["settled"]
