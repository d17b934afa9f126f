"""A real old consumer and one of zkcoord share an adopted group, join, leave and die beside each other."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner

from tests.integration.processes import READER, Child, now_ms
from tests.old_consumers.lab import EACH_AT_LENGTH, RETRIES, SESSION_MS, V011, V08, V11, Lab, OldConsumer
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.cli.main import cli
from zkcoord.core.adoption import Adoption
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS
from zkcoord.migrate import upgrade
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]

TOPIC, SIZE = "t", 6
LATE_MS = 250
"""An old member deletes the nodes of a topic one by one, then forgets it, and tells that at its next look."""

TURN_MS = 100
"""One of ours reads each of its partitions more often. Less than that after its last read nobody gives it back."""

PATIENCE_S = 60.0
OLD = '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1416335000123"}'
BACKOFF_MS = 1_000  # half of the old default: the last of four tries is 3 s after the first
BY_WILDCARD = READER.replace('["t"]', 'include="t.*"')
SLOW = READER.replace("def stop(partitions):", "def stop(partitions):\n    threading.Event().wait()")


class Mixed:
    """An adopted group: old members are the lab's, ours are processes that read made-up records without end."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab, self._stack = lab, stack
        self.ours: list[Child] = []
        lab.topic(TOPIC, SIZE)
        with Tree(lab.hosts) as tree:
            upgrade(tree, run_id="test", layout="legacy")
        lab.zk.ensure_path(LEGACY.record("g"))
        self.adopt(BACKOFF_MS)

    def adopt(self, backoff_ms: int, *, strategy: str = "range", kafka: str = V11) -> None:
        """It is told how the old members share partitions, and how long they wait between their tries."""
        told = Adoption(offsets="zookeeper", strategy=strategy, kafka=kafka, retries=RETRIES, backoff_ms=backoff_ms)
        self.lab.zk.set(LEGACY.record("g"), encode_record(replace(DEFAULT_RECORD, adoption=told)))

    def coordinate(self) -> None:
        """A coordinator serves from now on."""
        serving = threading.Event()
        coordinator = Coordinator(self.lab.hosts, layout="legacy", on_serving=lambda *_: serving.set())
        coordinator.start()
        self._stack.callback(coordinator.stop)
        wait_until(serving.is_set, "it serves")

    def join(self, name: str, version: str) -> OldConsumer:
        """One more old member; returns when its first rebalance has succeeded."""
        return self.started(self.lab.start(name, version, rebalance_backoff_ms=BACKOFF_MS))

    def started(self, member: OldConsumer) -> OldConsumer:
        """Its first rebalance has succeeded."""
        name = member.name
        wait_until(lambda: member.events("started") or member.events("gave_up"), f"{name} starts", PATIENCE_S)
        assert not member.events("gave_up"), (member.child.tail(), self.lab.history[-20:])
        return member

    def start_ours(self, program: str = READER) -> Child:
        """One more consumer of zkcoord; returns when it reads."""
        child = self.run_ours(program)
        child.wait("fetched")
        return child

    def run_ours(self, program: str = READER) -> Child:
        """One more consumer of zkcoord; returns at once."""
        child = Child(program, self.lab.hosts, SESSION_MS)
        self._stack.callback(child.close)
        self.ours.append(child)
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
        """What one of ours read while an old member held it to be its own, or while another of ours read it. The last
        window of an old member that was killed has no end that anybody knows, so it is left out."""
        offset_ms = time.time_ns() // 1_000_000 - now_ms()  # from the clock of the logs to the wall clock
        found = self._overlaps_of_ours()
        for member in self.lab.consumers:
            owns = member.events("owns")
            ends = [event["at_ms"] for event in owns[1:]]
            if member.child.running:
                ends.append(time.time_ns() // 1_000_000)
            for event, told_ms in zip(owns, ends, strict=False):
                held = [f"{topic}-{n}" for topic, numbers in event["partitions"].items() for n in numbers]
                until = {p: self.lab.held_until(p, {member.id}, event["at_ms"], told_ms - LATE_MS) for p in held}
                for child in self.ours:
                    for read in child.of("fetched"):
                        at_ms = read["mono_ms"] + offset_ms
                        if event["at_ms"] < at_ms < until.get(read["partition"], 0):
                            found.append(f"{read['partition']} read at {at_ms}, {member.name}'s until {told_ms}")
        return found

    def _overlaps_of_ours(self) -> list[str]:
        """What one of ours read between two reads of another that are less than TURN_MS apart."""
        reads: dict[str, list[tuple[int, int]]] = {}
        for number, child in enumerate(self.ours):
            for read in child.of("fetched"):
                reads.setdefault(read["partition"], []).append((read["mono_ms"], number))
        found = []
        for partition, turns in reads.items():
            last: dict[int, int] = {}  # reader -> when it read last
            for (before_ms, before), (at_ms, number) in pairwise(sorted(turns)):
                last[before] = before_ms
                if number != before and at_ms - last.get(number, -TURN_MS) < TURN_MS:
                    found.append(f"{partition} read at {at_ms} by two")
        return found


@pytest.fixture
def mixed(lab: Lab) -> Iterator[Mixed]:
    with ExitStack() as stack:
        yield Mixed(lab, stack)


def gave_up(*members: OldConsumer) -> list[str]:
    """Those that could not rebalance."""
    return [member.name for member in members if member.events("gave_up")]


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_old_members_and_ours_share_a_group_through_joins_leaves_and_kills(mixed: Mixed, version: str) -> None:
    a = mixed.join("a", version)
    mixed.await_shares(6)
    first = mixed.start_ours()
    mixed.await_shares(3, 3)
    b = mixed.join("b", version)
    mixed.await_shares(2, 2, 2)
    first.signal(signal.SIGKILL)
    mixed.await_shares(3, 3)
    second = mixed.start_ours()
    mixed.await_shares(2, 2, 2)
    b.child.kill()
    mixed.await_shares(3, 3)
    mixed.lab.topic(TOPIC, SIZE)  # the same again: the old one releases and claims all of its share
    mixed.await_shares(3, 3)
    mixed.start_ours(BY_WILDCARD)
    mixed.await_shares(2, 2, 2)
    second.signal(signal.SIGTERM)
    mixed.await_shares(3, 3)
    mixed.lab.topic("u", SIZE)  # nobody takes it
    c = mixed.started(mixed.lab.start("c", version, "blacklist=u:1", rebalance_backoff_ms=BACKOFF_MS))
    mixed.await_shares(2, 2, 2)
    a.leave()
    mixed.await_shares(3, 3)
    assert gave_up(a, b, c) == []
    assert mixed.overlaps() == []


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_round_robin_deals_two_topics_to_two_threads_of_each_old_member_and_of_each_of_ours(
    mixed: Mixed, version: str
) -> None:
    """Each kind computes the shares by itself; if they computed different ones, neither would ever have its own."""
    mixed.lab.topic("u", 4)
    mixed.adopt(BACKOFF_MS, strategy="roundrobin", kafka=version)
    everything = {f"{TOPIC}-{n}" for n in range(SIZE)} | {f"u-{n}" for n in range(4)}

    def join(name: str) -> OldConsumer:
        topics, strategy = f"topics={TOPIC}:2,u:2", "roundrobin"
        member = mixed.lab.start(
            name, version, topics, partition_assignment_strategy=strategy, rebalance_backoff_ms=BACKOFF_MS
        )
        return mixed.started(member)

    def dealt(*members: OldConsumer, threads: list[int]) -> None:
        """Wait until so many partitions are each thread's, and each member reads its own."""

        def holds() -> bool:
            owners = mixed.lab.owners()
            by = sorted(Counter(owners.values()).values())
            olds = {member.id: member.owned() for member in members}
            theirs = {p: thread for p, thread in owners.items() if "-z" not in thread}
            shares = {name: {p for p, thread in theirs.items() if thread.startswith(f"{name}-")} for name in olds}
            reading = {p for child in mixed.ours if child.process.poll() is None for p in child.reads()}
            return (set(owners), by, olds) == (everything, threads, shares) and reading == everything - theirs.keys()

        wait_until(holds, f"shares of {threads}: {mixed.lab.owners()}", PATIENCE_S)

    a = join("a")
    dealt(a, threads=[5, 5])
    ours = mixed.start_ours(READER.replace('["t"]', '["t", "u"], threads=2'))
    dealt(a, threads=[2, 2, 3, 3])
    b = join("b")
    dealt(a, b, threads=[1, 1, 2, 2, 2, 2])
    ours.signal(signal.SIGKILL)
    dealt(a, b, threads=[2, 2, 3, 3])
    assert gave_up(a, b) == []
    assert mixed.overlaps() == []


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_a_coordinated_group_gives_an_old_member_its_share_and_takes_it_back(mixed: Mixed, version: str) -> None:
    mixed.coordinate()
    mixed.start_ours()
    mixed.start_ours()
    mixed.await_shares(3, 3)
    a = mixed.join("a", version)
    mixed.await_shares(2, 2, 2)
    assert a.tries(RETRIES - 1) == 0  # its share came before its last try
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "theirs", "taken"),
    [
        *((version, "whitelist=t.*", 'include="t.*"') for version in OLD_KAFKA_VERSIONS),
        (V011, "blacklist=u.*", 'exclude="u.*"'),
        (V08, r"whitelist=t\d*", r'include=r"t\d*"'),
    ],
)
def test_wildcards_of_old_members_and_ours_take_topics_as_they_come_and_as_they_grow(
    mixed: Mixed, version: str, theirs: str, taken: str
) -> None:
    lab = mixed.lab
    a = mixed.started(lab.start("a", version, f"{theirs}:1", rebalance_backoff_ms=BACKOFF_MS))
    ours = mixed.start_ours(READER.replace('["t"]', taken))

    def halves(**sizes: int) -> bool:
        owners = lab.owners()
        mine = {p for p, thread in owners.items() if "-z" in thread}
        everything = {f"{topic}-{n}" for topic, size in sizes.items() for n in range(size)}
        shares = Counter(p.rpartition("-")[0] for p in mine)
        half = {topic: size // 2 for topic, size in sizes.items()}
        return (
            owners.keys() == everything and shares == half and ours.reads() == mine and a.owned() == everything - mine
        )

    wait_until(lambda: halves(t=SIZE), "halves", PATIENCE_S)
    lab.topic("t2", 4)
    lab.topic("u", 4)  # which neither takes
    wait_until(lambda: halves(t=SIZE, t2=4), "halves of the new topic, too", PATIENCE_S)
    lab.topic("t2", 6)
    wait_until(lambda: halves(t=SIZE, t2=6), "halves of the grown topic", PATIENCE_S)
    assert gave_up(a) == []
    assert mixed.overlaps() == []


@pytest.mark.long
def test_a_backslash_that_1_1_escapes_twice_matches_nothing_for_old_members_and_ours_alike(mixed: Mixed) -> None:
    """`b` reads its own regex so, too."""
    a = mixed.join("a", V11)
    b = mixed.lab.start("b", V11, r"whitelist=t\d*:1", rebalance_backoff_ms=BACKOFF_MS)
    wait_until(lambda: b.id in mixed.lab.members(), "it is registered", PATIENCE_S)
    mixed.await_shares(6)
    ours = mixed.start_ours(READER.replace('["t"]', r'include=r"t\d*"'))
    mixed.await_shares(3, 3)
    assert b.owned() == set()
    a.leave()
    mixed.await_shares(6)
    assert len(ours.reads()) == SIZE
    assert gave_up(a, b) == []
    assert mixed.overlaps() == []


@pytest.mark.long
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_f100_a_later_join_gives_a_slow_program_no_more_time_than_the_first_joiner_has(
    mixed: Mixed, version: str
) -> None:
    backoff_ms = 2 * BACKOFF_MS  # the old default
    mixed.adopt(backoff_ms)
    mixed.coordinate()
    ours = mixed.start_ours(SLOW)
    mixed.await_shares(6)
    b = mixed.lab.start("b", version, rebalance_backoff_ms=backoff_ms)
    wait_until(lambda: b.tries(1), "its first try has failed", PATIENCE_S)
    later = mixed.lab.register("a", OLD)  # it would have t-0 and t-1, and t-3 moves to b only now
    mixed.started(b)
    wait_until(lambda: b.owned() == {"t-2", "t-3"}, f"its share: {mixed.lab.owners()}", PATIENCE_S)
    assert ours.reads() >= {"t-4", "t-5"}  # what does not move is read on
    assert [event for event in ours.of("fetch_started") if {"t-4", "t-5"} & event["offsets"].keys()][1:] == []
    mixed.lab.zk.delete(later)
    wait_until(lambda: b.owned() == {"t-0", "t-1", "t-2"}, "its half", PATIENCE_S)
    assert mixed.overlaps() == []


@pytest.mark.parametrize("version", EACH_AT_LENGTH)
def test_f95_the_tools_tell_given_up_partitions_and_a_poke_has_them_claimed(mixed: Mixed, version: str) -> None:
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

    def over() -> bool:
        told = zkcoord(lab.hosts, "group", "describe", "g")
        return told["problem"] is None and told["settled"]

    wait_until(over, "it is over")
