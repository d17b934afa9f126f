"""`zkcoord group reset-offsets` on a real ZooKeeper and a real broker, with real members and a coordinator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.cli.program import Run
from tests.integration.world import Member, World
from tests.kafka.commits import commit_as_stranger
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from tests.waiting import wait_until
from zkcoord.core.adoption import Adoption
from zkcoord.core.model import TopicPartition
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD, GroupRecord
from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.embedded import EmbeddedKafka
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.kafka.client import KafkaClient
from zkcoord.migrate import current, upgrade
from zkcoord.offsets.kafka_store import KafkaCommits
from zkcoord.offsets.targets import Targets, Where
from zkcoord.operating import resetting
from zkcoord.operating.resetting import Compute, Reset
from zkcoord.shell.ports import CommitDone
from zkcoord.tree.paths import DRAFT, LEGACY
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import Transaction

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka]

COUNTS = (10, 5)  # records of each partition
FIRST_MS = 1_700_000_000_000  # the time of each partition's first record; one a second


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    """A topic of two partitions with records."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    create_topic(admin, name, len(COUNTS))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    for partition, count in enumerate(COUNTS):
        for number in range(count):
            producer.produce(name, b"x", partition=partition, timestamp=FIRST_MS + 1_000 * number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return name


@pytest.fixture
def world(chroot: str, topic: str) -> Iterator[World]:
    with World(chroot) as world:
        upgrade(world.tree, run_id="test")
        world.topic(topic, len(COUNTS))
        yield world


@pytest.fixture
def reset(run: Run, world: World, kafka: EmbeddedKafka) -> Any:
    """Runs the command; exit code, objects, and what it said."""

    def carry_out(*words: str) -> tuple[int, list[tuple[int, int | None, int]], str]:
        servers = ("--zookeeper", world.zookeeper, "--bootstrap-servers", kafka.bootstrap_servers)
        result = run("group", "reset-offsets", "g", *words, "--output", "json", *servers)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        return result.exit_code, [(row["partition"], row["before"], row["after"]) for row in rows], result.stderr

    return carry_out


def path(topic: str, partition: int) -> str:
    return DRAFT.offset("g", TopicPartition(topic, partition))


def offsets(world: World, topic: str) -> list[bytes]:
    return [world.data(path(topic, partition)) for partition in range(len(COUNTS))]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), [b"0", b"0"]),
        (("--to-latest",), [b"10", b"5"]),
        (("--to-offset", "7"), [b"7", b"5"]),
        (("--shift-by", "-2"), [b"6", b"1"]),
        (("--shift-by", "1"), [b"9", b"4"]),
        (("--to-datetime", "2023-11-14T22:13:24"), [b"4", b"4"]),
        (("--to-datetime", "2023-11-14T23:13:27+01:00"), [b"7", b"5"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_group_without_members_is_moved(
    world: World, reset: Any, topic: str, words: Sequence[str], expected: list[bytes]
) -> None:
    world.put(path(topic, 0), b"8")
    world.put(path(topic, 1), b"3")
    code, planned, text = reset(*words, "--dry-run")
    assert (code, offsets(world, topic)) == (0, [b"8", b"3"])
    assert text.endswith("would change; nothing was written\n")
    code, changed, text = reset(*words)
    assert (code, offsets(world, topic)) == (0, expected), text
    assert (
        changed
        == planned
        == [(n, before, int(expected[n])) for n, before in enumerate((8, 3)) if before != int(expected[n])]
    )


def test_f244_a_reset_to_zookeepers_offsets_tells_how_far_it_sets_a_kafka_group_back(
    world: World, reset: Any, topic: str, kafka: EmbeddedKafka
) -> None:
    """It said that nothing would change, since the node, which is as of the last checkpoint, held that offset."""
    world.put(path(topic, 0), b"4")
    (node,) = world.tree.read([Read(path(topic, 0))])
    schema = current(world.tree)
    assert node.stat is not None
    assert schema is not None
    world.put(DRAFT.record("g"), encode_record(replace(DEFAULT_RECORD, store_name="kafka", store_step=2)))
    stamp = Stamp(tenure=Tenure(schema.tree_id, node.stat.mzxid))
    wanted = {TopicPartition(topic, 0): KafkaCommit(offset=9, stamp=stamp)}
    with KafkaClient(kafka.bootstrap_servers) as client:
        wait_until(lambda: KafkaCommits(client).commit("g", wanted).error() is None, "Kafka takes the commit")
    words = ("--to-offset", "4", "--topic", f"{topic}:0")
    assert reset(*words, "--dry-run")[1] == [(0, 9, 4)]
    assert reset(*words)[1] == [(0, 9, 4)]
    assert reset(*words)[1] == []


def test_only_the_topics_and_partitions_that_are_named_are_moved(
    world: World, reset: Any, topic: str, tmp_path: Path
) -> None:
    world.put(path(topic, 0), b"8")
    assert reset("--to-offset", "1", "--topic", f"{topic}:1")[:2] == (0, [(1, None, 1)])
    assert offsets(world, topic) == [b"8", b"1"]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,3\n{topic},1,99\n")
    code, changed, text = reset("--from-file", str(file))
    assert (code, changed) == (0, [(0, 8, 3), (1, 1, 5)])
    assert f"notice: 1 offset outside of the log, so its start or end is taken: {topic}-1 at 99 (0 to 5)\n" in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "choose one of --to-earliest, --to-latest"),
        (("--to-earliest", "--to-latest"), "choose one of"),
        (("--to-datetime", "yesterday"), "--to-datetime 'yesterday' is no time: write 2026-"),
        (
            ("--to-datetime", "1969-12-31T23:59:59.999"),
            "--to-datetime '1969-12-31T23:59:59.999' is no time: write 2026-",
        ),
        (("--to-datetime", "1795428000000000"), "--to-datetime '1795428000000000' is no time: write 2026-"),
        (("--to-earliest", "--topic", "nothing"), "--topic nothing: Kafka has no such topic"),
        (
            ("--to-earliest",),
            "group g has no offset of a topic that exists: name topics (--topic), or set offsets with `zkcoord offsets"
            " import`",
        ),
        (("--from-file", "/nowhere"), "--from-file /nowhere: No such file"),
        (("--from-file", "/dev/null"), "--from-file /dev/null: the file has no offset of group g"),
    ],
)
def test_a_wrong_call_says_what_to_do(world: World, reset: Any, words: Sequence[str], text: str) -> None:
    world.put(DRAFT.offsets("g"))
    code, _, said = reset(*words)
    assert (code, text in said) == (2, True), said


def test_a_group_that_is_not_there_is_told(world: World, reset: Any) -> None:
    code, _, said = reset("--to-earliest")
    assert (code, "there is no group 'g'" in said) == (2, True)
    assert said.endswith("; `zkcoord offsets import` sets the offsets of one that is yet to come\n")


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["reset", "dry-run"])
def test_a_file_with_topics_or_partitions_that_kafka_does_not_have_is_refused_with_their_names(
    world: World, reset: Any, topic: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    world.put(path(topic, 0), b"8")
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,3\n{topic},7,1\nabsent,0,1\nabsent,1,1\ngone,0,1\n")
    code, _, said = reset("--from-file", str(file), *more)
    assert (code, "--from-file names topics that Kafka does not have: absent, gone; check the names" in said) == (
        2,
        True,
    )
    assert offsets(world, topic) == [b"8", b""]
    assert reset("--from-file", str(file), "--topic", f"{topic}:0", *more)[:2] == (0, [(0, 8, 3)])
    code, _, said = reset("--from-file", str(file), "--topic", topic, *more)
    assert (code, f"--from-file names partitions that no topic has: {topic}-7; check the names" in said) == (2, True)


@pytest.mark.parametrize("more", [(), ("--stop-first",)])
@pytest.mark.parametrize("state", list(MoveState))
def test_f276_a_group_that_is_in_another_tree_or_on_its_way_is_reset_over_there_only(
    world: World, reset: Any, topic: str, state: MoveState, more: tuple[str, ...]
) -> None:
    """It was said to be done, and changed nothing for the group, which is read over there."""
    moved = Moved(state=state, tree="bb", address="zk2:2181/kafka", run="r1")
    world.put(DRAFT.record("g"), encode_record(GroupRecord(moved=moved)))
    world.put(path(topic, 0), b"8")
    code, _, said = reset("--to-earliest", *more)
    assert (code, offsets(world, topic)) == (2, [b"8", b""]), said
    assert f"group g {moved.where()}: nothing is changed here" in said


def begun(members: Sequence[Member]) -> dict[int, int]:
    return {
        p.partition: offset for member in members for p, offset in member.begun.items() if member.consumer.allowed(p)
    }


def running(world: World, topic: str) -> list[Member]:
    """A coordinator and two members, who hold a partition each."""
    world.put(path(topic, 0), b"8")
    world.put(path(topic, 1), b"3")
    world.coordinate()
    members = [world.join("g", topic) for _ in COUNTS]
    wait_until(lambda: [len(member.held()) for member in members] == [1, 1], "each holds one")
    return members


def stops_for_a_reset(world: World) -> int:
    """How many stops a reset has made. (The second member may have joined after the first had started both.)"""
    return sum(fields["why"] == "its offsets are to be reset" for fields in world.reports.of("stop_sent"))


def test_a_group_that_is_read_is_refused_and_moved_when_it_may_be_stopped(world: World, reset: Any, topic: str) -> None:
    members = running(world, topic)
    code, _, text = reset("--to-offset", "2")
    assert code == 2
    assert "stop these consumers, or run `zkcoord group pause g` first, or give --stop-first" in text
    assert "group g is read by g_" in text
    code, planned, text = reset("--to-offset", "2", "--dry-run")
    assert (code, planned) == (0, [(0, 8, 2), (1, 3, 2)])
    assert "notice: as it is now, this would be refused: group g is read by g_" in text
    assert "this would be refused" not in reset("--to-offset", "2", "--stop-first", "--dry-run")[2]
    assert offsets(world, topic) == [b"8", b"3"]

    code, changed, text = reset("--to-offset", "2", "--stop-first")
    assert (code, changed) == (0, [(0, 8, 2), (1, 3, 2)]), text
    wait_until(lambda: begun(members) == {0: 2, 1: 2}, "they go on from there")
    assert [len(world.reports.of(name)) for name in ("registered", "elected")] == [2, 1]


def test_a_call_with_a_wrong_topic_stops_nobody(world: World, reset: Any, topic: str) -> None:
    """Before, the group was stopped, and stayed so until somebody resumed it."""
    running(world, topic)
    code, _, text = reset("--to-offset", "2", "--stop-first", "--topic", f"{topic}:9")
    assert (code, "Kafka has no partition 9 of this topic" in text) == (2, True)
    assert (decode_record(world.data(DRAFT.record("g"))).requests, stops_for_a_reset(world)) == ({}, 0)


def test_offsets_that_cannot_be_computed_when_all_have_stopped_let_the_group_go_on(world: World, topic: str) -> None:
    members = running(world, topic)

    def away() -> Targets:
        raise UnavailableError("Kafka is gone")

    with pytest.raises(UnavailableError, match="Kafka is gone"):
        tool(world, away).stopped_first(60_000, lambda: "")
    assert decode_record(world.data(DRAFT.record("g"))).requests == {}
    assert stops_for_a_reset(world) == 2
    wait_until(lambda: begun(members) == {0: 8, 1: 3}, "they go on where they were")


def test_without_a_coordinator_a_group_cannot_be_stopped_and_the_request_is_taken_back(
    world: World, reset: Any, topic: str
) -> None:
    world.put(path(topic, 0), b"8")
    world.put(DRAFT.record("g"), b"")
    world.join("g", topic)
    wait_until(lambda: bool(world.children(DRAFT.ids("g"))), "it is registered")
    code, _, text = reset("--to-offset", "2", "--stop-first", "--timeout-ms", "300")
    assert code == 5
    assert "(no coordinator is elected): the request is taken back, and nothing is written" in text
    assert json.loads(world.data(DRAFT.record("g")))["wish"]["reset"] is None


class DiedError(Exception):
    """The tool is killed."""


class Dying:
    """A tree whose program dies right before, or right after, one of its writes."""

    def __init__(self, world: World, at: int, *, after: bool) -> None:
        self._tree, self._at, self._after = world.tree, at, after
        self.writes = 0
        self.read, self.sync = world.tree.read, world.tree.sync

    def commit(self, transaction: Transaction) -> CommitDone:
        self.writes += 1
        if self.writes == self._at and not self._after:
            raise DiedError
        done = self._tree.commit(transaction)
        if self.writes == self._at:
            raise DiedError
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])  # the request, the offsets, taking it back
def test_f105_a_reset_whose_tool_died_at_any_write_is_gone_on_with(
    world: World, reset: Any, topic: str, at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads from the tool's first offset on until it is run again, however far it came."""
    members = running(world, topic)
    tree = Dying(world, at, after=after)
    wanted = {TopicPartition(topic, number): 2 for number in range(len(COUNTS))}
    dying = Reset(
        tree=tree,
        layout=DRAFT,
        group="g",
        compute=lambda: Targets(wanted, []),
        to_kafka=lambda offsets: None,
        goal=Where.OFFSET,
    )
    monkeypatch.setattr(Reset, "_take_back", lambda self, run: None if at < 3 else _TAKE_BACK(self, run))
    with pytest.raises(DiedError):
        dying.stopped_first(20_000, lambda: "")
    monkeypatch.undo()
    if (at, after) in ((1, True), (2, False), (2, True), (3, False)):
        wait_until(lambda: begun(members) == {}, "everything is stopped")
        code, _, text = reset("--shift-by", "-1", "--stop-first")  # some may be shifted already
        assert (code, "an earlier reset of group g was broken off" in text) == (2, True)
    code, _, text = reset("--to-offset", "2", "--stop-first")
    assert code == 0, text
    wait_until(lambda: begun(members) == {0: 2, 1: 2}, "they go on from there")
    assert offsets(world, topic) == [b"2", b"2"]


_TAKE_BACK = Reset._take_back


def test_of_two_tools_that_reset_a_group_the_earlier_one_can_write_nothing(
    world: World, reset: Any, topic: str
) -> None:
    """Both wrote in the same run, each over the other's offsets."""
    members = running(world, topic)

    def stands_still() -> Targets:
        raise DiedError

    def overtaken() -> Targets:
        """The other tool comes when this one has everything stopped."""
        with pytest.raises(DiedError):
            tool(world, stands_still).stopped_first(20_000, lambda: "")
        return Targets({TopicPartition(topic, 0): 1}, [])

    with pytest.raises(UsageError, match="somebody changed its record"):
        tool(world, overtaken).stopped_first(20_000, lambda: "")
    assert (offsets(world, topic), begun(members)) == ([b"8", b"3"], {})
    assert reset("--to-offset", "2", "--stop-first")[0] == 0
    wait_until(lambda: begun(members) == {0: 2, 1: 2}, "they go on from there")


def tool(world: World, compute: Compute) -> Reset:
    return Reset(tree=world.tree, layout=DRAFT, group="g", compute=compute, to_kafka=lambda _: None, goal=Where.OFFSET)


@pytest.mark.parametrize(("adopted", "after"), [(False, [6, 1]), (True, [1, 1])])
def test_f149_old_consumers_that_read_both_stores_are_set_back_in_both(
    chroot: str, run: Run, topic: str, kafka: EmbeddedKafka, adopted: bool, after: list[int]
) -> None:
    """Also where consumers of ours, which share the group, go by ZooKeeper's offset."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    partitions = [TopicPartition(topic, number) for number in range(len(COUNTS))]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    commit_as_stranger(admin, group, topic, {0: 9})
    with World(chroot) as world, KafkaClient(kafka.bootstrap_servers) as client:
        world.topic(topic, len(COUNTS))
        for partition in partitions:
            world.put(LEGACY.offset(group, partition), b"4")
        if adopted:
            upgrade(world.tree, run_id="test", layout=LEGACY.name)
            told = Adoption(offsets="kafka", dual_commit=True, strategy="range", kafka="1.1")
            world.put(LEGACY.record(group), encode_record(replace(DEFAULT_RECORD, adoption=told, store_name="dual")))
        servers = ("--zookeeper", chroot, "--bootstrap-servers", kafka.bootstrap_servers)
        result = run("group", "reset-offsets", group, "--shift-by", "-3", *servers)
        assert result.exit_code == 0, result.stderr
        assert [int(world.data(LEGACY.offset(group, partition))) for partition in partitions] == after
        commits = KafkaCommits(client).read([group]).found[group]
        assert {p: commit.offset for p, commit in commits.items()} == {partitions[0]: after[0]}


def test_the_coordinator_waits_longer_than_the_tool_needs() -> None:
    assert resetting.EXPIRY_MS > 2 * resetting.WAIT_MS
