"""`group members`, `group commands`, `group list --state`, `topic`: what an operator looks up about who reads what."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cli.group_tree import P0, P1, A, B, World
from tests.cli.program import Run
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import GroupRecord
from zkcoord.core.tenure import KafkaCommit
from zkcoord.group_report import read_group
from zkcoord.operating.kafka_side import KafkaSide
from zkcoord.operating.members import command_document, outstanding
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    with Tree(chroot) as tree:
        yield World(tree, chroot)


def lines(run: Run, world: World, *words: str) -> list[str]:
    """What people see."""
    result = run(*words, "--zookeeper", world.address)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def objects(run: Run, world: World, *words: str) -> list[dict[str, Any]]:
    """What programs see."""
    return [json.loads(line) for line in lines(run, world, *words, "--output", "json")]


def with_ends(monkeypatch: pytest.MonkeyPatch, ends: Mapping[TopicPartition, int]) -> None:
    monkeypatch.setattr(KafkaSide, "ends", lambda *_: ends)


def test_members_are_shown_with_the_lag_of_what_they_own(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.member(B)
    world.put(DRAFT.offset("g", P1), b"50")
    with_ends(monkeypatch, {P0: 103, P1: 75})

    assert [line.split() for line in lines(run, world, "group", "members", "g")] == [
        ["CONSUMER-ID", "INSTANCE", "#PARTITIONS", "#COMMANDS", "LAG", "TOPICS", "NOTE"],
        [A, "etl-1", "2", "0", "28", "clicks:1", "-"],
        [B, "-", "0", "0", "-", "clicks:1", "-"],
    ]
    (first, _) = objects(run, world, "group", "members", "g")
    assert first == {
        "consumer": A,
        "instance": "etl-1",
        "topics": {"clicks": 1},
        "partitions": ["clicks-0", "clicks-1"],
        "commands": [],
        "note": None,
        "lag": 28,
        "away": False,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "hold_ms": 0,
        "assignors": ["sticky"],
        "rack": None,
        "capacity": None,
    }


def test_outstanding_commands_come_oldest_first_with_their_age(world: World, run: Run) -> None:
    world.settle()
    world.member(B)
    world.start_for_a()
    world.put(f"{DRAFT.channel('g', B)}/0000000009", b'{"version":1,"option":"stop-fetcher"}')

    rows = [line.split() for line in lines(run, world, "group", "commands")]
    found = objects(run, world, "group", "commands", "g")
    report = read_group(world.tree, DRAFT, "g")
    (oldest, newest) = outstanding(world.tree, DRAFT, [report])
    (node,) = world.tree.read([Read(f"{DRAFT.channel('g', A)}/0000000003")])

    assert [[row[0], *row[2:]] for row in rows[1:]] == [
        ["g", A, "0000000003", "start-fetcher", "1", "7", "-"],
        ["g", B, "0000000009", "stop-fetcher", "all", "0", "-"],
    ]
    assert node.stat is not None
    assert command_document(oldest, node.stat.mtime_ms + 1_500) == {
        "group": "g",
        "consumer": A,
        "sequence": "0000000003",
        "option": "start-fetcher",
        "partitions": ["clicks-1"],
        "generation": 7,
        "written_ms": node.stat.mtime_ms,
        "age_ms": 1_500,
        "refused": None,
    }
    assert command_document(newest, 0)["age_ms"] == 0, "clocks differ: no age is negative"
    assert [each["consumer"] for each in found] == [A, B]
    of_one = lines(run, world, "group", "commands", "g")
    assert [line.split()[1:] for line in of_one] == [row[2:] for row in rows], "one group needs no column for its name"


def test_a_group_that_obeyed_all_has_no_outstanding_commands(world: World, run: Run) -> None:
    world.settle()

    result = run("group", "commands", "g", "--zookeeper", world.address)

    assert (result.stdout, result.stderr) == ("", "notice: group g has no outstanding commands\n")
    assert (
        run("group", "commands", "--zookeeper", world.address).stderr == "notice: no group has outstanding commands\n"
    )


def test_groups_are_listed_with_their_lag_the_largest_first(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.put(DRAFT.offset("behind", P1), b"5")
    with_ends(monkeypatch, {P0: 103, P1: 75})

    by_name = lines(run, world, "group", "list", "--state")
    by_lag = lines(run, world, "group", "list", "--state", "--sort", "lag")

    column = by_name[0].split().index("LAG")
    assert [line.split()[0] for line in by_name[1:]] == ["behind", "g"]
    assert [(line.split()[0], line.replace("NONE ELECTED", "-").split()[column]) for line in by_lag[1:]] == [
        ("behind", "70"),
        ("g", "3"),
    ]
    assert [each["lag"] for each in objects(run, world, "group", "list")] == [70, 3]


def test_topics_are_listed_with_the_groups_that_read_them(world: World, run: Run) -> None:
    world.settle()
    world.topic("views", 3)
    world.put(DRAFT.offset("other", P1), b"5")

    assert objects(run, world, "topic", "list") == [
        {"topic": "clicks", "partitions": 2, "groups": ["g", "other"]},
        {"topic": "views", "partitions": 3, "groups": []},
    ]
    assert [line.split() for line in lines(run, world, "topic", "list")] == [
        ["TOPIC", "#PARTITIONS", "#GROUPS", "GROUPS"],
        ["clicks", "2", "2", "g,", "other"],
        ["views", "3", "0", "-"],
    ]


def test_a_topic_shows_how_far_each_group_has_read_each_partition(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.put(DRAFT.offset("other", P0), b"5")
    with_ends(monkeypatch, {P0: 103, P1: 75})

    assert lines(run, world, "topic", "describe", "clicks") == [
        "Topic clicks: 2 partitions, read by 2 groups",
        "",
        "PARTITION  REPLICAS  GROUP  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID",
        "        0  1         g                 100             103    3  g_h-1-aaaaaaaa-0",
        "        0  1         other               5             103   98  -",
        "        1  1         g                   -              75    -  g_h-1-aaaaaaaa-0",
    ]
    (document,) = objects(run, world, "topic", "describe", "clicks")
    assert [partition["replicas"] for partition in document["partitions"]] == [[1], [1]]


def test_a_topic_that_nobody_reads_shows_its_partitions(world: World, run: Run) -> None:
    world.topic("views", 1)

    assert [line.split() for line in lines(run, world, "topic", "describe", "views")][3:] == [["0", "1", *"-----"]]


@pytest.mark.parametrize("name", ["nothing", "a/b"])
def test_a_topic_that_is_not_there_is_refused(world: World, run: Run, name: str) -> None:
    result = run("topic", "describe", name, "--zookeeper", world.address)

    why = f"error: there is no topic {name!r}; `zkcoord topic list` shows them\n"
    assert (result.exit_code, result.stderr) == (2, why)


def test_a_topic_that_nobody_can_parse_is_named(world: World, run: Run) -> None:
    world.put("/brokers/topics/clicks", b"{")

    listed = run("topic", "list", "--zookeeper", world.address)

    assert listed.stderr.startswith("warning: /brokers/topics/clicks: ")
    assert [line.split() for line in listed.stdout.splitlines()[1:]] == [["clicks", "-", "0", "-"]]
    assert run("topic", "describe", "clicks", "--zookeeper", world.address).exit_code == 6


def test_f180_of_a_group_with_offsets_in_kafka_those_that_count_are_shown_and_no_old_ones(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    world.put(DRAFT.record("g"), encode_record(GroupRecord(store_name="kafka", store_step=2)))

    unasked = run("group", "describe", "g", "--output", "json", "--zookeeper", world.address)
    asked: list[list[str]] = []

    def commits(_side: KafkaSide, groups: list[str]) -> dict[str, dict[TopicPartition, KafkaCommit]]:
        asked.append(groups)
        return {"g": {P1: KafkaCommit(offset=70)}}

    monkeypatch.setattr(KafkaSide, "_commits", commits)
    with_ends(monkeypatch, {P0: 103, P1: 75})
    (known,) = objects(run, world, "group", "describe", "g")

    assert [row["current_offset"] for row in json.loads(unasked.stdout)["partitions"]] == [None, None]
    assert unasked.stderr == "warning: group g keeps its offsets in Kafka: give --bootstrap-servers to see them\n"
    assert [(row["current_offset"], row["lag"]) for row in known["partitions"]] == [(100, 3), (70, 5)]
    assert asked == [["g"]]
