"""Settings, options, the progress line and the range writer: each by itself."""

import io
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.fakes import World
from zkcoord.consumer import Consumer
from zkcoord.errors import UsageError
from zkcoord.spark.dependencies import RealDependencies
from zkcoord.spark.options import Options
from zkcoord.spark.ports import Report
from zkcoord.spark.progress import BAR, LiveLine, LogLines, Reports, log_event, progress_to, warn_of_bar
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.readers.kafka import KafkaReader, assignment, connector_options, reader_options
from zkcoord.spark.settings import split_settings
from zkcoord.spark.sinks.files import name_files, write_parquet_ranges
from zkcoord.spark.sinks.range_names import range_of
from zkcoord.spark.sinks.spark_writer import footers_of
from zkcoord.tree.registration import decode_registration

RANGES = (OffsetRange("t", 0, 5, 8), OffsetRange("t", 3, 0, 2))
REPORT = Report(
    batch=Batch(id="ab", seq=3, generation=9, ranges=RANGES),
    lag=1234,
    rows=4,
    bytes=400,
    drain_ms=1,
    plan_ms=2,
    process_ms=40,
    commit_ms=8,
    acknowledge_ms=3,
)


def test_settings_go_to_both_clients_or_to_the_one_that_their_prefix_names() -> None:
    given = {"security.protocol": "SSL", "kafka.fetch.max.bytes": "9", "librdkafka.log_level": "3"}
    found = split_settings({**given, "receive.buffer.bytes": "7"})
    assert found.librdkafka == {
        "security.protocol": "ssl",
        "log_level": "3",
        "isolation.level": "read_uncommitted",
        "socket.receive.buffer.bytes": "7",
    }
    assert found.reader == {
        "security.protocol": "SSL",
        "fetch.max.bytes": "9",
        "receive.buffer.bytes": "7",
        "isolation.level": "read_uncommitted",
        "request.timeout.ms": "10000",
        "default.api.timeout.ms": "15000",
        "fetch.max.wait.ms": "1",
        "max.poll.records": "10000",
        "max.partition.fetch.bytes": "2097152",
    }


def test_with_the_python_reader_what_is_named_for_the_reader_is_librdkafkas_too() -> None:
    given = {"kafka.fetch.max.wait.ms": "9", "kafka.max.poll.records": "5", "fetch.min.bytes": "1"}
    given |= {"kafka.fetch.min.bytes": "2", "kafka.check.crcs": "true", "librdkafka.check.crcs": "false"}
    assert split_settings(given, python_reader=True).librdkafka == {
        "fetch.wait.max.ms": "9",
        "fetch.min.bytes": "2",
        "check.crcs": "false",
        "isolation.level": "read_uncommitted",
    }


def test_the_membership_is_given_what_the_assignor_looks_at() -> None:
    options = Options(rack="r1", capacity=5, assignors=("range",), instance="etl-1", hold_ms=7_000)
    dependencies = RealDependencies(None, "127.0.0.1:1", "127.0.0.1:2", "g", ["t"], options)  # type: ignore[arg-type]
    consumer = dependencies.membership(
        on_start=lambda p: None,
        on_stop=lambda p: {},
        on_lost=lambda p: None,
        on_replay=lambda p: None,
        reset=lambda p: {},
    )
    assert isinstance(consumer, Consumer)
    found = decode_registration(consumer._role._settings.registration(6_000))
    assert (found.rack, found.capacity, found.assignors) == ("r1", 5, ("range",))
    assert (found.instance, found.hold_ms, found.rebalance_timeout_ms) == ("etl-1", 7_000, 300_000)
    assert found.offsets == ("zookeeper", "dual", "kafka")


def test_the_reader_names_exactly_the_ranges() -> None:
    options = {key: json.loads(value) for key, value in assignment(RANGES).items()}
    assert options == {
        "assign": {"t": [0, 3]},
        "startingOffsets": {"t": {"0": 5, "3": 0}},
        "endingOffsets": {"t": {"0": 8, "3": 2}},
    }


def test_the_reading_group_is_fixed_not_the_groups_own_and_follows_the_settings() -> None:
    first = reader_options("h:1", "g", {"a": "1"}, False)["kafka.group.id"]
    assert first == reader_options("h:1", "g", {"a": "1"}, False)["kafka.group.id"]
    assert first.startswith("g-read-")
    assert first != reader_options("h:1", "g", {"a": "2"}, False)["kafka.group.id"]


def test_a_missing_connector_is_told_with_the_exact_coordinate() -> None:
    class NoConnector:
        version = "4.0.0"
        conf = SimpleNamespace(get=lambda name: "csv,kafka,text", set=lambda name, value: changed.update({name: value}))
        read = property(lambda self: self)

        def format(self, name: str) -> "NoConnector":
            return self

        def options(self, **given: str) -> "NoConnector":
            return self

        def load(self) -> None:
            raise ValueError("[_LEGACY_ERROR_TEMP_1140] Failed to find data source: kafka. Please deploy …")

    NoConnector.__module__ = "pyspark.sql.connect.session"
    changed: dict[str, str] = {}
    reader = KafkaReader(NoConnector(), connector_options("h:1", "g", Options()))  # type: ignore[arg-type]
    assert changed == {"spark.sql.sources.useV1SourceList": "csv,text"}
    with pytest.raises(UsageError, match=r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.0\.0"):
        reader.read(RANGES)


@pytest.mark.parametrize(
    ("error", "away"), [("Timeout", True), ("UnknownTopicOrPartition", True), ("TopicAuthorization", False)]
)
def test_f168_a_batch_that_a_broker_refuses_before_it_knows_its_topics_is_tried_again(error: str, away: bool) -> None:
    java = f"java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.{error}Exception: …"
    assert KafkaReader.away(None, RuntimeError(f"An error occurred while calling o1.collect.\n: {java}")) is away  # type: ignore[arg-type]


def test_a_batch_is_one_structured_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zkcoord.spark")
    LogLines("g").batch_done(REPORT)
    (record,) = caplog.records
    assert record.getMessage().startswith("batch 3 of group g: 5 offsets in 2 ranges, plan 2 ms")
    assert record.__dict__["zkcoord_event"] == "batch_done"
    assert record.__dict__["zkcoord_fields"] == {
        "group": "g",
        "batch": "ab",
        "seq": 3,
        "generation": 9,
        "ranges": ["t-0-5-8", "t-3-0-2"],
        "replayed": False,
        "offsets_count": 5,
        "rows": 4,
        "bytes": 400,
        "lag": 1234,
        "drain_ms": 1,
        "plan_ms": 2,
        "process_ms": 40,
        "commit_ms": 8,
        "acknowledge_ms": 3,
    }


def test_a_terminal_gets_one_line_that_is_written_over_and_a_sum() -> None:
    stream = io.StringIO()
    line = LiveLine(stream, "g")
    line.batch_done(REPORT)
    line.idle(7)  # not drawn, since the last line was drawn just before
    line.close()
    first, last = stream.getvalue().split("\r\x1b[K")[1:]
    assert first.startswith("g · batch 3: 5 offsets in 50 ms (100/s) · lag 1,234")
    assert last.startswith("g · 1 batch, 5 offsets in ")
    assert last.endswith("\n")


def test_a_line_that_has_not_changed_is_not_drawn_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(ms=1_000)
    monkeypatch.setattr("zkcoord.spark.progress.time", SimpleNamespace(monotonic_ns=lambda: clock.ms * 1_000_000))
    stream = io.StringIO()
    line = LiveLine(stream, "g")
    for clock.ms in range(2_000, 4_000, 50):
        line.idle(7)
    line.idle(6)
    clock.ms = 4_000
    line.close()
    shown = [each.partition(" · ")[2] for each in stream.getvalue().split("\r\x1b[K")[1:]]
    seven, six = (f"no batch yet · lag {lag} · waiting" for lag in (7, 6))
    assert shown == [seven, seven, six, "0 batches, 0 offsets in 3.0 s\n"]


def test_a_consumer_without_a_partition_shows_that_it_waits_for_one() -> None:
    stream = io.StringIO()
    line = Reports(None)
    line.shown = LiveLine(stream, "g")
    line.unheld()
    assert stream.getvalue() == "\r\x1b[Kg · no batch yet · no partition · waiting"
    line.close()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ClosedTerminal(Terminal):
    """A terminal whose window is closed: the system answers EIO."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_consumer_outlives_the_terminal_that_its_live_line_was_on() -> None:
    line = LiveLine(ClosedTerminal(), "g")
    line.batch_done(REPORT)
    line.idle(7)
    log_event(logging.WARNING, "batch_slow", "it makes room")
    line.close()


def test_a_warning_begins_where_the_live_line_began() -> None:
    terminal = Terminal()
    line = LiveLine(terminal, "g")
    line.batch_done(REPORT)
    drawn = terminal.getvalue()
    log_event(logging.DEBUG, "batch_cancelled", "nobody sees it")
    assert terminal.getvalue() == drawn
    log_event(logging.WARNING, "batch_lost", "a warning")
    assert terminal.getvalue() == f"{drawn}\r\x1b[K"
    line.close()
    ended = terminal.getvalue()
    log_event(logging.WARNING, "batch_lost", "a warning")
    assert terminal.getvalue() == ended


@pytest.mark.parametrize(("stream", "live"), [(Terminal(), True), (io.StringIO(), False), (None, False)])
def test_a_terminal_has_a_live_line_and_the_log_its_line_all_the_same(
    caplog: pytest.LogCaptureFixture, stream: Any, live: bool
) -> None:
    caplog.set_level(logging.INFO, "zkcoord.spark")
    shown = progress_to(stream, "g")
    shown.batch_done(REPORT)
    shown.close()
    assert [each.__dict__["zkcoord_event"] for each in caplog.records] == ["batch_done"]
    assert (stream is not None and "batch 3" in stream.getvalue()) is live


def test_where_the_logs_lines_are_on_the_terminal_there_is_no_live_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zkcoord.spark")
    handler = logging.StreamHandler(Terminal())
    logging.getLogger("zkcoord").addHandler(handler)
    try:
        assert isinstance(progress_to(Terminal(), "g"), LogLines)
        handler.setLevel(logging.WARNING)
        live = progress_to(Terminal(), "g")
        assert not isinstance(live, LogLines)
        live.close()
    finally:
        logging.getLogger("zkcoord").removeHandler(handler)


@pytest.mark.parametrize(
    ("stream", "bar", "told"),
    [(Terminal(), "true", 1), (Terminal(), "false", 0), (Terminal(), None, 0), (io.StringIO(), "true", 0)],
)
def test_sparks_own_bar_beside_the_live_line_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stream: Any, bar: str | None, told: int
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    warn_of_bar.cache_clear()
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: {BAR: bar}))
    dependencies = RealDependencies(session, "127.0.0.1:1", "127.0.0.1:2", "g", ["t"], Options())

    for _ in range(2):
        dependencies.progress().close()

    warned = [each.getMessage() for each in caplog.records if each.__dict__["zkcoord_event"] == "progress_bar_on"]
    assert warned == [f"Spark's own bar runs into the consumer's line: build the session with {BAR}=false"] * told


def draft(folder: Path, name: str, *rows: tuple[str, int, int]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    schema = pyarrow.schema([("topic", "string"), ("partition", "int32"), ("offset", "int64")])
    table = pyarrow.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    folder.mkdir(exist_ok=True)
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / name)


def test_files_are_named_by_the_ranges_that_their_footers_tell(tmp_path: Path) -> None:
    drafts, folder = tmp_path / "drafts", tmp_path
    draft(drafts, "part-0.parquet", ("t", 3, 0))
    draft(drafts, "part-1.parquet", ("t", 0, 5), ("t", 0, 6), ("t", 0, 7))
    draft(drafts, "part-2.parquet")
    assert name_files(footers_of(drafts), RANGES, folder) == (("t-0-5-8.parquet", 3), ("t-3-0-2.parquet", 1))
    assert sorted(path.name for path in folder.glob("*.parquet")) == ["t-0-5-8.parquet", "t-3-0-2.parquet"]


@pytest.mark.parametrize(
    ("second", "text"), [((("t", 0, 7),), "several tasks"), ((("t", 3, 0), ("t", 0, 7)), "several ranges")]
)
def test_a_batch_that_was_dealt_out_anew_is_refused_and_names_no_file(tmp_path: Path, second: Any, text: str) -> None:
    drafts = tmp_path / "drafts"
    draft(drafts, "part-0.parquet", ("t", 0, 5), ("t", 0, 6))
    draft(drafts, "part-1.parquet", *second)
    with pytest.raises(UsageError, match=text):
        name_files(footers_of(drafts), RANGES, tmp_path)
    assert list(tmp_path.glob("*.parquet")) == []


def test_the_sink_needs_topic_and_partition_a_batch_and_a_path(tmp_path: Path) -> None:
    frame: Any = SimpleNamespace(columns=["topic", "partition"])
    with pytest.raises(UsageError, match="'partition'"):
        write_parquet_ranges(SimpleNamespace(columns=["topic"]), REPORT.batch, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"batch is 3; .*stream_batch\(df\.sparkSession, checkpoint, number\)"):
        write_parquet_ranges(frame, 3, tmp_path)  # type: ignore[arg-type]
    for folder in (Path("hdfs://namenode/clicks"), f"file:{tmp_path}"):  # Path has removed one of two slashes
        with pytest.raises(UsageError, match="is neither a path nor a URI, which has two slashes"):
            write_parquet_ranges(frame, REPORT.batch, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"starting_offsets": "newest"}, "must be 'latest', 'earliest'"),
        ({"max_offsets_per_batch": 0}, "pass an integer of 1 or more"),
        ({"config": {"group.id": "x"}}, "use the argument group"),
        ({"config": {"kafka.auto.offset.reset": "x"}}, "starting_offsets"),
        ({"config": {"max.poll.records": "5"}}, "Java's client alone: write kafka.max.poll.records"),
        ({"config": {"isolation.level": "x"}}, "must be read_committed or read_uncommitted"),
    ],
)
def test_a_wrong_setting_is_told_when_the_consumer_is_made(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        World().consumer(**settings)


@pytest.mark.parametrize("topic", ["_clicks", ".clicks"])
def test_f332_files_of_a_topic_with_a_hidden_name_are_seen_by_readers(tmp_path: Path, topic: str) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    each, folder = OffsetRange(topic, 0, 5, 8, incarnation=1), tmp_path / "folder"
    folder.mkdir()
    draft(tmp_path / "drafts", "part-0.parquet", *((topic, 0, offset) for offset in (5, 6, 7)))
    (written,) = name_files(footers_of(tmp_path / "drafts"), [each], folder)
    assert dataset.dataset(folder).count_rows() == 3
    assert (written.file, range_of(written.file)) == (f"~{topic}-0-5-8.parquet", each)
