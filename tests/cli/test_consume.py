"""`zkcoord consume`: what it prints, what it commits, how it leaves."""

import base64
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.cli.program import PATIENCE_SECONDS, Program, Run, Spawn
from tests.kafka.helpers import Broker
from tests.waiting import wait_until
from zkcoord.cli.consume import Printing, json_line, keeping_offsets, text_line, wanted_words
from zkcoord.consumer import Consumer
from zkcoord.coordinator import Coordinator
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, Transaction


class Record:
    """A message as librdkafka hands it out."""

    def __init__(self, offset: int, key: bytes | None = None, value: bytes | None = b"v") -> None:
        self._offset, self._key, self._value = offset, key, value

    def topic(self) -> str:
        return "clicks"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_416_335_000_123


class Batches:
    """A consumer that hands these batches out, then nothing; notes the commits."""

    def __init__(self, *batches: list[Record]) -> None:
        self._batches = list(batches)
        self.asked_for: list[int] = []
        self.commits = 0
        self.refusal: Exception | None = None
        self.held: tuple[TopicPartition, ...] = (TopicPartition("clicks", 0),)
        self.consumer_id: str | None = "g_h-1-aaaaaaaa"
        self.away: UnavailableError | None = None
        self.unreachable: UnavailableError | None = None  # what Kafka answers when it is asked

    def ask_kafka(self) -> UnavailableError | None:
        return self.unreachable

    def assignment(self) -> tuple[TopicPartition, ...]:
        return self.held

    def poll_many(self, count: int, timeout: float) -> list[Record]:
        self.asked_for.append(count)
        return self._batches.pop(0) if self._batches else []

    def commit(self) -> None:
        self.commits += 1
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def now_ms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A clock that goes on by 300 ms whenever it is looked at."""
    seen = [0]

    def look() -> int:
        seen[0] += 300
        return seen[0]

    monkeypatch.setattr("zkcoord.cli.consume.mono_ms", look)
    yield seen


def printing(consumer: Any, **settings: Any) -> Printing:
    return Printing(consumer, text_line, **{"max_messages": None, "timeout_ms": 3_000, "commits": True, **settings})


def test_a_record_for_programs_has_text_or_base64() -> None:
    assert json.loads(json_line(Record(7, b"k", "wörd".encode()))) == {
        "topic": "clicks",
        "partition": 0,
        "offset": 7,
        "timestamp": 1_416_335_000_123,
        "key": "k",
        "value": "wörd",
    }
    foreign = json.loads(json_line(Record(7, None, b"\xff\x00")))
    assert (foreign["key"], base64.b64decode(foreign["value_base64"])) == (None, b"\xff\x00")
    assert "value" not in foreign


def test_a_record_for_people_is_one_line() -> None:
    assert text_line(Record(7, None, b"two\nlines\x1b[2J")) == "clicks-0\t7\t-\ttwo\\nlines\\x1b[2J"


def test_printed_records_are_committed_about_every_second(
    now_ms: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = Batches(*([Record(n)] for n in range(10)))

    loop = printing(consumer)
    loop.run(threading.Event())

    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == [str(n) for n in range(10)]
    assert loop.printed == 10
    assert (consumer.commits, now_ms) == (4, [6_300])  # at 1.5, 2.7, 3.9, 5.1 s: the first look after each second


@pytest.mark.parametrize(
    ("consumer_id", "why"),
    [(None, "it is not registered: ZooKeeper must answer"), ("g_h-1-aaaaaaaa", "g_h-1-aaaaaaaa is registered: a")],
)
def test_never_a_partition_to_read_is_not_the_end_of_the_records(
    now_ms: list[int], consumer_id: str | None, why: str
) -> None:
    consumer = Batches()
    consumer.held, consumer.consumer_id = (), consumer_id

    with pytest.raises(UnavailableError, match=f"waited 3000 ms in vain for a partition of clicks; {why}"):
        printing(consumer, wanted="a partition of clicks").run(threading.Event())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((["a", "b"], None, None), "a partition of a, b"),
        (([], "c.*", None), "a topic that matches c.*"),
        (([], None, "c.*"), "a topic that does not match c.*"),
    ],
)
def test_the_wait_names_wanted_topics(asked: tuple[list[str], str | None, str | None], words: str) -> None:
    assert wanted_words(*asked) == words


def test_a_partition_without_a_record_ends_it_in_peace(now_ms: list[int]) -> None:
    loop = printing(Batches())

    loop.run(threading.Event())

    assert loop.printed == 0


def test_no_more_is_taken_than_will_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Batches([Record(0), Record(1)], [Record(2)])

    printing(consumer, max_messages=3).run(threading.Event())

    assert consumer.asked_for == [3, 1]


def test_without_commits_nothing_is_committed(now_ms: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Batches(*([Record(n)] for n in range(10)))

    printing(consumer, commits=False).run(threading.Event())

    assert consumer.commits == 0


def test_a_commit_that_is_refused_is_told_and_reading_goes_on(
    now_ms: list[int], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Batches(*([Record(n)] for n in range(10)))
    consumer.refusal = FencedError("taken away: clicks-0")

    loop = printing(consumer)
    with caplog.at_level(logging.WARNING, "zkcoord.cli"):
        loop.run(threading.Event())

    assert loop.printed == 10
    assert "taken away: clicks-0" in caplog.messages


def test_nothing_is_committed_that_could_not_be_printed(now_ms: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr("zkcoord.cli.consume._pipe", lambda _stream: None)
    consumer = Batches([Record(0)])

    with pytest.raises(BrokenPipeError):
        printing(consumer).run(threading.Event())

    assert consumer.commits == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--include", "c["], "include 'c[': an invalid regex (unterminated character set"),
        (["--exclude", "c{1,2}"], "(a ',' means or in a topic filter: write {2,3} as {2}|{3})"),
        (["--include", "c", "--exclude", "d"], "give either --topic (once or more), or --include, or --exclude"),
        ([], "give either --topic (once or more), or --include, or --exclude"),
        (["--topic", "t", "--include", "c.*"], "give either --topic (once or more), or --include, or --exclude"),
        (["--topic", "t/u"], "topic 't/u': letters, digits"),
        (["--topic", "t", "--threads", "0"], "Invalid value for '--threads'"),
        (["--topic", "t", "--command-config", "/none"], "/none"),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_change(run: Run, words: list[str], why: str) -> None:
    servers = ["--zookeeper", "127.0.0.1:1", "--bootstrap-servers", "127.0.0.1:1"]

    result = run("consume", "--group", "g", *words, *servers)

    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


# the whole, with a coordinator, a real ZooKeeper and a broker that librdkafka plays


class World:
    """A topic of two partitions with ten records each, and a coordinator that serves."""

    def __init__(self, zookeeper: str, broker: Broker, spawn: Spawn) -> None:
        self.zookeeper, self.broker, self._spawn = zookeeper, broker, spawn
        self.topic = broker.topic([10, 10])
        document = json.dumps({"version": 1, "partitions": {"0": [1], "1": [1]}}).encode()
        topics = [("/brokers", b""), ("/brokers/topics", b""), (f"/brokers/topics/{self.topic}", document)]
        with Tree(zookeeper) as tree:
            tree.commit(Transaction(writes=tuple(CreateNode(path, data) for path, data in topics)))

    def consume(self, *options: str, lines_max: int | None = None, topics: Sequence[str] = ()) -> Program:
        servers = ["--zookeeper", self.zookeeper, "--bootstrap-servers", self.broker.bootstrap_servers]
        group = ["--group", "g", *(topics or ["--topic", self.topic]), "--from-beginning"]
        return self._spawn("consume", *group, *servers, *options, lines_max=lines_max)

    def offsets(self) -> list[bytes]:
        paths = [DRAFT.offset("g", TopicPartition(self.topic, n)) for n in range(2)]
        with Tree(self.zookeeper) as tree:
            return [node.data for node in tree.read([Read(path) for path in paths])]


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def world(chroot: str, broker: Broker, spawn: Spawn) -> Iterator[World]:
    serving = threading.Event()
    coordinator = Coordinator(chroot, on_serving=lambda _id, _epoch: serving.set())
    coordinator.start()
    assert serving.wait(PATIENCE_SECONDS)
    yield World(chroot, broker, spawn)
    coordinator.stop()


def where(line: str) -> tuple[int, int]:
    document = json.loads(line)
    return document["partition"], document["offset"]


ALL = [(partition, offset) for partition in range(2) for offset in range(10)]


@pytest.mark.zookeeper
def test_it_prints_and_commits_so_many_and_leaves(world: World) -> None:
    program = world.consume("--output", "json", "--max-messages", "20")

    assert program.end() == 0
    assert sorted(where(line) for line in program.rest()) == ALL
    assert program.line("stderr", having="messages") == "20 messages"
    assert world.offsets() == [b"10", b"10"]


@pytest.mark.zookeeper
@pytest.mark.parametrize("wildcard", [["--include", "{topic}|other"], ["--exclude", "x.*"]])
def test_a_wildcard_takes_the_topics_that_match(world: World, wildcard: list[str]) -> None:
    words = [word.format(topic=world.topic) for word in wildcard]

    program = world.consume("--output", "json", "--max-messages", "20", topics=words)

    assert program.end() == 0
    assert sorted(where(line) for line in program.rest()) == ALL


@pytest.mark.zookeeper
def test_it_goes_on_where_the_group_stopped_and_ends_when_nothing_comes(world: World) -> None:
    first = world.consume("--output", "json", "--max-messages", "5")
    assert first.end() == 0

    read = first.rest()

    def all_is_read() -> bool:
        """On a busy machine the time may end before it has been given all: then another one goes on."""
        next_one = world.consume("--output", "json", "--timeout-ms", "1500")
        code = next_one.end()
        read.extend(next_one.rest())
        return code == 0 and len(read) >= len(ALL)

    wait_until(all_is_read, "the rest is read, and it ends")
    assert sorted(map(where, read)) == ALL


@pytest.mark.zookeeper
def test_a_topic_that_nobody_has_made_is_named_at_once_and_waited_for(world: World) -> None:
    world.topic = "clisk"

    line = world.consume().line("stderr", having="topic_missing")
    assert "WARNING: topic_missing group=g topic=clisk" in line
    assert "create the topic in Kafka, or correct its name, or the chroot" in line

    program = world.consume("--timeout-ms", "1000")
    assert program.end() == 5
    assert re.match(r"error: waited \d{4,} ms in vain for a partition of clisk; ", program.rest("stderr")[-1])


@pytest.mark.zookeeper
def test_without_commits_the_offsets_stay(world: World) -> None:
    first = world.consume("--max-messages", "20", "--no-commit")
    assert first.end() == 0

    assert world.offsets() == [b"0", b"0"]  # where it began: written by the start
    assert len(first.rest()) == 20


def test_without_commits_an_early_release_keeps_the_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(Consumer, "stopped", lambda self, partitions, offsets: told.append((partitions, offsets)))
    finals = {TopicPartition("clicks", 0): 5}
    callbacks = {"on_start": told.append, "on_stop": lambda partitions: finals, "on_lost": told.append}

    keeping_offsets("zk:2181", "g", ["clicks"], **callbacks).stopped(tuple(finals), finals)

    assert told == [(tuple(finals), {})]


@pytest.mark.zookeeper
def test_it_commits_while_it_runs_and_leaves_at_a_signal(world: World) -> None:
    program = world.consume("--output", "json", "--log-format", "json", "-v", "--consumer-id", "etl-1")
    wait_until(lambda: world.offsets() == [b"10", b"10"], "a commit while it runs")

    program.process.terminate()

    assert program.end() == 0
    assert sorted(where(line) for line in program.rest()) == ALL
    events = [json.loads(line) for line in program.rest("stderr")]
    names = [event["event"] for event in events]
    assert {"registered", "fetch_started", "fetched", "offsets_committed", "fetch_stopped"} <= set(names)
    fetched = [(event["partition"], event["first"], event["last"]) for event in events if event["event"] == "fetched"]
    offsets = sorted((p, offset) for p, first, last in fetched for offset in range(first, last + 1))
    assert offsets == [(f"{world.topic}-{partition}", offset) for partition, offset in ALL]  # each told once
    with Tree(world.zookeeper) as tree:
        ids, owner = tree.read([Read(DRAFT.ids("g")), Read(DRAFT.owner("g", TopicPartition(world.topic, 0)))])
    assert (ids.children, owner.data) == ((), b"")


@pytest.mark.zookeeper
def test_it_leaves_when_nobody_reads_any_more(world: World) -> None:
    program = world.consume("--output", "json", lines_max=20)

    assert program.end() == 0
    assert sorted(where(line) for line in program.rest()) == ALL
    assert program.line("stderr", having="messages") == "20 messages"
