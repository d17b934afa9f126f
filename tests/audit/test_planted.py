"""Faults that are planted by hand in a real tree: the audit finds each, and nothing else."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pytest

from tests.cli.group_tree import P0, P1, A, B, World
from tests.cli.program import Run, Spawn
from zkcoord.audit.audit import Audit
from zkcoord.audit.auditor import Auditor, no_logs
from zkcoord.audit.checks import DROPPED_WITHIN_MS
from zkcoord.audit.seen import read_seen
from zkcoord.cli.audit import FOUND
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Failure, GroupState, Quarantine
from zkcoord.metrics import names
from zkcoord.offsets.verdict import Log
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.evicted import encode_evicted
from zkcoord.tree.paths import DRAFT, EVICTED_MARK
from zkcoord.tree.state import digest, encode_state
from zkcoord.tree.status import Status, encode_status

pytestmark = pytest.mark.zookeeper
PATIENCE_MS = 60_000
ENDS = {P0: Log(0, 200), P1: Log(0, 50)}
GONE, BEYOND = TopicPartition("gone", 0), TopicPartition("clicks", 7)
"""Of a topic that is not there, and of one that has two partitions."""


class Healthy(World):
    """A owns and reads all of clicks, a coordinator is elected, and offsets move."""

    ends: Mapping[TopicPartition, Log] = ENDS
    offsets: Sequence[int] = range(100, 120)
    """Committed for clicks-0 at one reading after the other."""
    lasts_ms = PATIENCE_MS  # how long it is looked at
    grows = 0  # by so much the log of clicks-0 grows between two readings

    def begin(self) -> None:
        self.settle()
        self.put(DRAFT.coordinator, b"1")
        self.says(A, "0-1")
        self.put(DRAFT.offset("g", P1), b"50")

    def says(self, consumer: str, held: str) -> None:
        """The member's status names these partitions of clicks."""
        document = Status(held={7: {"clicks": held}} if held else {}, store_name="zookeeper")
        self.put(DRAFT.channel("g", consumer), encode_status(document))

    def logs(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Log]:
        return {p: log for p, log in self.ends.items() if p in partitions}


@pytest.fixture
def world(chroot: str) -> Iterator[Healthy]:
    with Tree(chroot) as tree:
        made = Healthy(tree, chroot)
        made.begin()
        yield made


def audited(world: Healthy) -> list[tuple[str, str]]:
    """Check and subject of what is found after readings that cover patience and window."""
    auditor = Auditor(world.tree, world.address, Audit(PATIENCE_MS, PATIENCE_MS), logs=world.logs)
    for n, at_ms in enumerate(range(0, world.lasts_ms + 1, 20_000)):
        if world.offsets:
            world.put(DRAFT.offset("g", P0), str(world.offsets[n]).encode())
        world.ends = {**world.ends, P0: Log(0, ENDS[P0].end + n * world.grows)}
        auditor.read(lambda at_ms=at_ms: at_ms)  # type: ignore[misc]
        if at_ms == 0:
            assert [f for f in auditor.audit.findings if f.check != "offset-outside"] == []
    return [(each.check, each.subject) for each in auditor.audit.findings]


def no_coordinator(world: Healthy) -> None:
    world.remove(DRAFT.coordinator)


def no_owner(world: Healthy) -> None:
    world.put(DRAFT.owner("g", P1), b"")
    world.says(A, "0")


def dead_owner(world: Healthy) -> None:
    world.put(DRAFT.owner("g", P1), f"{B}-0".encode())
    world.says(A, "0")


def two_readers(world: Healthy) -> None:
    world.member(B, "etl-2")
    world.says(B, "1")


def owned_unread(world: Healthy) -> None:
    world.says(A, "0")


def reads_unowned(world: Healthy) -> None:
    world.member(B, "etl-2")
    world.put(DRAFT.owner("g", P1), f"{B}-0".encode())
    world.says(B, "1")


def old_command(world: Healthy) -> None:
    world.start_for_a()


def orphaned_channel(world: Healthy) -> None:
    world.put(DRAFT.channel("g", B), b'{"version":1}')


def unknown_node(world: Healthy) -> None:
    world.put(f"{DRAFT.group('g')}/somebodys-own")


def unreadable_offset(world: Healthy) -> None:
    world.put(DRAFT.offset("g", P1), b"much")


def beyond_the_log(world: Healthy) -> None:
    world.ends = {**ENDS, P1: Log(0, 49)}


def before_the_log(world: Healthy) -> None:
    world.ends = {**ENDS, P1: Log(51, 60)}


def does_not_commit(world: Healthy) -> None:
    world.offsets = ()


def commits_the_same_offset(world: Healthy) -> None:
    world.offsets = (100,) * 20


def falls_behind(world: Healthy) -> None:
    world.grows = 10


def owner_of_a_topic_that_is_gone(world: Healthy) -> None:
    """A coordinator would have dropped it after a minute."""
    world.put(DRAFT.owner("g", GONE))
    world.lasts_ms = PATIENCE_MS + DROPPED_WITHIN_MS


def offset_of_a_topic_that_is_gone(world: Healthy) -> None:
    world.put(DRAFT.offset("g", GONE), b"7")


def owner_of_a_partition_that_is_gone(world: Healthy) -> None:
    world.put(DRAFT.owner("g", BEYOND))


def offset_of_a_partition_that_is_gone(world: Healthy) -> None:
    world.put(DRAFT.offset("g", BEYOND), b"7")


def failed(world: Healthy) -> None:
    failure = Failure(error="ConsumerRebalanceFailed", since_generation=7)
    state = GroupState(generation=7, target=digest({P0: f"{A}-0", P1: f"{A}-0"}), failed=failure)
    world.put(DRAFT.state("g"), encode_state(state))


def quarantined(world: Healthy) -> None:
    state = GroupState(generation=7, target=digest({P0: f"{A}-0"}), quarantined={P1: Quarantine("it fell", 1)})
    world.put(DRAFT.state("g"), encode_state(state))
    world.put(DRAFT.owner("g", P1))
    world.says(A, "0")


PLANTED: dict[Callable[[Healthy], None], list[tuple[str, str]]] = {
    no_coordinator: [("no-coordinator", "")],
    no_owner: [("no-owner", "clicks-1")],
    dead_owner: [("dead-owner", "clicks-1")],
    two_readers: [("reads-unowned", f"clicks-1 {B}"), ("two-readers", "clicks-1")],
    owned_unread: [("owned-unread", "clicks-1")],
    reads_unowned: [("reads-unowned", f"clicks-1 {A}"), ("two-readers", "clicks-1")],
    old_command: [("old-command", f"{A}/0000000003")],
    orphaned_channel: [("orphan", DRAFT.channel("g", B))],
    unknown_node: [("orphan", f"{DRAFT.group('g')}/somebodys-own")],
    unreadable_offset: [("unreadable", DRAFT.offset("g", P1))],
    beyond_the_log: [("offset-outside", "clicks-1")],
    before_the_log: [("offset-outside", "clicks-1")],
    does_not_commit: [("lag-stop", "clicks-0")],
    commits_the_same_offset: [("lag-stall", "clicks-0")],
    falls_behind: [("lag-warn", "clicks-0")],
    owner_of_a_topic_that_is_gone: [("orphan", DRAFT.topic_owners("g", GONE.topic))],
    offset_of_a_topic_that_is_gone: [("orphan", DRAFT.topic_offsets("g", GONE.topic))],
    owner_of_a_partition_that_is_gone: [("orphan", DRAFT.owner("g", BEYOND))],
    offset_of_a_partition_that_is_gone: [("orphan", DRAFT.offset("g", BEYOND))],
    failed: [("failed", "")],
    quarantined: [("quarantined", "clicks-1")],
}


def test_nothing_is_found_in_a_healthy_group(world: Healthy) -> None:
    assert audited(world) == []


def test_of_a_member_that_knows_only_the_draft_nobody_can_say_what_it_reads(world: Healthy) -> None:
    world.remove(DRAFT.registration("g", A))
    world.member(A, coordination=None, assignors=())
    world.put(DRAFT.channel("g", A))

    assert audited(world) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_and_nothing_else(world: Healthy, plant: Callable[[Healthy], None]) -> None:
    plant(world)

    assert audited(world) == PLANTED[plant]


def test_a_just_deleted_topics_rest_is_left_to_the_coordinator(world: Healthy) -> None:
    owner_of_a_topic_that_is_gone(world)
    world.lasts_ms -= 20_000

    assert audited(world) == []


def test_two_readers_are_found_by_the_second_reading(world: Healthy) -> None:
    """No hand-over has two: nobody waits for it to be over."""
    two_readers(world)
    auditor = Auditor(world.tree, world.address, Audit(PATIENCE_MS, PATIENCE_MS))
    for at_ms in (0, 1):
        auditor.read(lambda at_ms=at_ms: at_ms)  # type: ignore[misc]
    assert [each.check for each in auditor.audit.findings] == ["two-readers"]


def test_the_channel_of_an_evicted_member_is_no_orphan(world: Healthy) -> None:
    """Its coordinator removes it."""
    world.member(B, "etl-2")
    world.put(f"{DRAFT.channel('g', B)}/{EVICTED_MARK}", encode_evicted(6_000, None))
    world.remove(DRAFT.registration("g", B))
    assert read_seen(world.tree, DRAFT, "g", served=True, tree_id="", logs=no_logs, commits={}).strays == {}


def test_the_command_tells_what_is_wrong_with_its_remedy_and_a_code_of_its_own(world: Healthy, run: Run) -> None:
    short = ("--zookeeper", world.address, "--once", "--interval-ms", "100", "--patience-ms", "300")
    healthy = run("audit", *short)
    assert (healthy.exit_code, healthy.stdout) == (0, "")
    assert healthy.stderr == "notice: nothing is wrong; Kafka was not asked\n"

    dead_owner(world)
    people = run("audit", *short)
    told = f"ERR dead-owner g clicks-1: it is owned by {B}-0, who is not there; see the NOTEs of"
    assert (people.exit_code, people.stdout[: len(told)]) == (FOUND, told)
    assert re.match(r"notice: \d+ not decided yet: reads on for some 60000 ms ", people.stderr)
    programs = run("audit", *short, "--output", "json", "--group", "g")
    (finding,) = [json.loads(line) for line in programs.stdout.splitlines()]
    assert (finding["severity"], finding["check"], finding["group"], finding["subject"], finding["over"]) == (
        "ERR",
        "dead-owner",
        "g",
        "clicks-1",
        False,
    )
    assert run("audit", *short, "--group", "other").exit_code == 2


def test_an_audit_that_goes_on_tells_when_a_finding_begins_and_when_it_is_over(world: Healthy, spawn: Spawn) -> None:
    dead_owner(world)
    short = ("--interval-ms", "100", "--patience-ms", "300")
    program = spawn("audit", "--zookeeper", world.address, *short)

    assert program.line().startswith("ERR dead-owner g clicks-1: ")
    world.put(DRAFT.owner("g", P1), f"{A}-0".encode())
    world.says(A, "0-1")
    assert program.line() == "over dead-owner g clicks-1"
    program.process.send_signal(signal.SIGTERM)
    assert (program.end(), program.rest()) == (0, [])


def test_findings_verdicts_and_lag_are_metrics(world: Healthy) -> None:
    dead_owner(world)
    auditor = Auditor(world.tree, world.address, Audit(PATIENCE_MS, PATIENCE_MS), logs=world.logs)
    for at_ms in (0, PATIENCE_MS):
        auditor.read(lambda at_ms=at_ms: at_ms)  # type: ignore[misc]

    assert set(auditor.samples(PATIENCE_MS + 500)) == {
        (names.FINDINGS, ("g", "dead-owner", "ERR"), 1),
        (names.FINDINGS, ("g", "lag-stop", "ERR"), 1),
        (names.VERDICTS, ("g", "STOP"), 1),
        (names.AUDIT_LAG, ("g",), 100),
        (names.READINGS, ("ok",), 2),
        (names.READINGS, ("failed",), 0),
        (names.READING_AGE, (), 0.5),
    }
