"""A file for each range below a URI: on S3, and on a file system where a file gets its name by a rename."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import fs

from tests.spark.sinks.faulty_store import FaultyStore
from tests.spark.sinks.frames import Frame, Remote, TwoSteps, batch, once, records
from tests.spark.sinks.s3_server import BUCKET, S3, arrow_options
from zkcoord.errors import UsageError
from zkcoord.spark import write_parquet_ranges
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.sinks import files_in_stores, files_in_tasks, ranges_in_tasks, renames, stores
from zkcoord.spark.sinks.by_value import by_value

pytestmark = [pytest.mark.spark, pytest.mark.s3]
C, D = OffsetRange("clicks", 0, 10, 13), OffsetRange("clicks", 1, 5, 8)  # each a task of three rows
FILES = ["clicks-0-10-13.parquet", "clicks-1-5-8.parquet"]
LARGE = 24_000_000  # bytes: more than one part of an upload
PART = "partNumber"


class Place:
    """A folder of a test's own: below a path, or in the bucket."""

    def __init__(self, folder: Path, store: S3 | None) -> None:
        self.folder, self._store = folder, store
        self.uri = f"s3a://{BUCKET}/{folder.name}" if store else f"file://{folder}"
        self.options = dict(arrow_options(store.endpoint)) if store else {}

    def write(self, *ranges: OffsetRange, frame: Any = None, to: Batch | None = None, **settings: Any) -> Any:
        frame = frame or Frame.of(*ranges, **settings)
        return write_parquet_ranges(frame, to or batch(*ranges), self.uri, storage_options=self.options)

    def files(self) -> list[str]:
        if self._store:
            return self._store.keys(self.folder.name)
        return sorted(str(each.relative_to(self.folder)) for each in self.folder.rglob("*") if each.is_file())

    def rows(self) -> list[tuple[Any, ...]]:
        """What another engine reads."""
        found = self._store.download(self.folder.name, self.folder / "read") if self._store else self.folder
        columns = 'topic, partition, "offset", n'
        return duckdb.sql(f"SELECT {columns} FROM read_parquet('{found}/*.parquet') ORDER BY 1, 2, 3").fetchall()


@pytest.fixture(params=["s3", "renames"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: S3) -> Place:
    return Place(tmp_path, s3 if request.param == "s3" else None)


@pytest.fixture
def in_s3(tmp_path: Path, s3: S3) -> Place:
    return Place(tmp_path, s3)


@pytest.fixture
def faulty(in_s3: Place, s3: S3) -> Iterator[FaultyStore]:
    """Before the store of `in_s3`."""
    with FaultyStore(s3.port).running() as store:
        in_s3.options["endpoint_override"] = store.endpoint
        yield store


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["zkcoord_event"] for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("rows_of_a_task", [3, 6])
def test_each_range_is_a_file_however_many_a_task_has(place: Place, rows_of_a_task: int) -> None:
    assert [*place.write(C, D, tasks=rows_of_a_task)] == [(name, 3) for name in FILES]
    assert (place.files(), place.rows()) == (FILES, records(C, D))


def test_f172_ranges_that_come_again_whole_from_heirs_or_late_replace_their_own_files(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    again = partial(batch, replayed=True)
    place.write(C, D)
    place.write(C, D, to=again(C, D))
    place.write(D, to=again(D))
    place.write(C, to=again(C))
    assert (place.files(), place.rows(), told(caplog)) == (FILES, records(C, D), [])
    place.write(C, D._replace(start=8, end=11))
    assert told(caplog) == ["files_replaced"]
    assert "clicks-0-10-13.parquet" in caplog.text
    assert place.rows() == records(C, D._replace(end=11))


def test_a_task_that_spark_repeats_does_not_call_its_own_file_somebody_elses(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it writes drafts a file that is there is not its own."""
    repeated = [] if place.options else ["files_replaced"]
    for attempt, events in ((0, []), (1, repeated), (0, [*repeated, "files_replaced"])):
        context = SimpleNamespace(get=lambda number=attempt: SimpleNamespace(attemptNumber=lambda: number))
        monkeypatch.setattr("pyspark.TaskContext", context)
        place.write(C)
        assert told(caplog) == events


def test_a_topic_that_was_created_again_has_files_of_its_own(place: Place) -> None:
    place.write(C)
    place.write(C._replace(incarnation=2))
    assert place.files() == ["clicks-0-10-13.2.parquet", "clicks-0-10-13.parquet"]


def test_a_range_without_rows_has_no_file_and_an_empty_batch_writes_nothing(place: Place) -> None:
    place.folder.mkdir(exist_ok=True)
    assert place.write(C, frame=Frame.of(C).where("n < 0")) == ()
    assert [*place.write(C, D, frame=Frame.of(D))] == [(FILES[1], 3)]
    assert place.files() == FILES[1:]


def test_a_range_that_is_spread_over_tasks_is_refused_and_leaves_no_file(place: Place) -> None:
    """A task cannot know it. The range's file lacks rows then, so it goes; the other one is whole."""
    four = C._replace(end=14)
    with pytest.raises(UsageError, match="a range was written by several tasks; no repartition"):
        place.write(four, D)
    left = {each for each in place.files() if not each.startswith(".zkcoord/")}
    assert left <= {FILES[1]}


def test_rows_of_a_partition_that_the_batch_does_not_have_are_refused(place: Place) -> None:
    place.folder.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="rows of a partition that the batch does not have"):
        place.write(C, frame=Frame.of(C, D), to=batch(C))
    assert FILES[1] not in place.files()


# ---- deaths


class Dies(BaseException):
    """As the end of the process: nothing after it is run."""


def die() -> None:
    raise Dies


def test_f173_a_dead_programs_drafts_are_no_files_and_go_with_the_range(tmp_path: Path) -> None:
    """It died with all its drafts, and its two ranges come to two heirs."""
    place = Place(tmp_path, None)
    with pytest.raises(Dies):
        place.write(frame=Frame.of(C, D, on_write=die), to=batch(C, D))
    assert (len(place.files()), {each.split("/")[0] for each in place.files()}) == (2, {".zkcoord"})
    place.write(D, to=replace(batch(D, replayed=True), generation=2))
    assert [each for each in place.files() if "/" not in each] == FILES[1:]
    assert len(place.files()) == 2
    place.write(C, to=replace(batch(C, replayed=True), generation=3))
    assert (place.files(), place.rows()) == (FILES, records(C, D))


@pytest.mark.parametrize("generation", [1, 2])
def test_f173_drafts_of_one_that_writes_at_the_same_time_stay(tmp_path: Path, generation: int) -> None:
    """A member of the same generation, and one that slept: both end in the same file."""
    place = Place(tmp_path, None)
    late = Frame.of(C, on_write=once(lambda: place.write(C, to=replace(batch(C), generation=generation))))
    place.write(frame=late, to=replace(batch(C), generation=2))
    assert (place.files(), place.rows()) == (FILES[:1], records(C))


def test_f184_an_attempt_of_a_task_that_another_one_overtook_spoils_no_file(tmp_path: Path) -> None:
    """Spark runs a task twice, for speed or since it takes a machine for dead. One attempt is killed as it writes, when
    the other one's files are about to get their names."""
    place, attempts = Place(tmp_path, None), []

    class Twice(Frame):
        def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802
            attempts.append(function)
            return super().mapInArrow(function, schema)

    def killed() -> None:
        drafts = tmp_path / ".zkcoord"
        before = {each: (each.stat().st_ino, each.stat().st_mtime_ns) for each in drafts.iterdir()}
        [*attempts[0](iter(Frame.of(C).rows.to_batches()))]
        for each in drafts.iterdir():
            if before.get(each) != (each.stat().st_ino, each.stat().st_mtime_ns):
                each.write_bytes(b"PAR1")

    place.write(frame=Twice(Frame.of(C, D).rows, on_write=killed), to=batch(C, D))
    assert place.rows() == records(C, D)
    place.write(C, to=replace(batch(C, replayed=True), generation=2))
    assert (place.files(), place.rows()) == (FILES, records(C, D))


@pytest.mark.parametrize("replayed", [False, True])
def test_f317_where_a_rename_is_two_steps_a_file_that_came_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, replayed: bool
) -> None:
    """As in HDFS through Spark Connect: one that slept, before or while it wrote, dies between the steps, behind its
    heir. A fresh batch with other rows replaces the file that it finds."""
    opened, steps = files_in_stores._opened, [die]
    monkeypatch.setattr(renames, "of_hadoop", lambda uri: True)
    monkeypatch.setattr(files_in_stores, "_opened", lambda *told: TwoSteps(opened(*told), lambda: steps.pop()()))
    place = Place(tmp_path, None)

    def by(generation: int, on_write: Any = None, first: int = 0) -> Any:
        frame = Frame(Frame.of(C).rows.slice(first), on_write)
        frame.sparkSession = Remote()
        return place.write(frame=frame, to=replace(batch(C, replayed=replayed), generation=generation))

    heirs: list[int] = []

    def heir() -> None:
        by(2)
        heirs.append((tmp_path / FILES[0]).stat().st_ino)

    drafts = files_in_stores._remove_left
    monkeypatch.setattr(files_in_stores, "_remove_left", lambda store, of: drafts(store, replace(of, generation=1)))
    assert [*by(1, once(heir))] == [(FILES[0], 3)]
    assert ([(tmp_path / FILES[0]).stat().st_ino], place.files(), place.rows()) == (heirs, FILES[:1], records(C))
    assert (told(caplog), steps) == ([], [die])
    by(1)
    found = [] if replayed else ["files_replaced"]
    assert ([(tmp_path / FILES[0]).stat().st_ino], told(caplog), steps) == (heirs, found, [die])
    steps[:] = [lambda: None]
    by(3, first=1)
    assert (place.files(), place.rows(), steps == []) == (FILES[:1], records(C)[not replayed :], not replayed)


def test_f173_a_task_that_fails_has_put_nothing(in_s3: Place) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from Frame.of(C).rows.to_batches()
        raise RuntimeError("the connection to Kafka was lost")

    plan = {"uri": in_s3.uri, "options": in_s3.options, "files": {"clicks": {"0": FILES[0]}}}
    with pytest.raises(RuntimeError, match="the connection to Kafka"):
        [*ranges_in_tasks.write_ranges({**plan, "draft": None, "look": True}, rows())]
    assert in_s3.files() == []


# ---- a store that does not behave


@pytest.mark.parametrize(
    ("kind", "times", "more"), [("busy", 3, {}), ("lost", 2, {}), ("slow", 2, {"wait_s": 1.5})], ids=lambda each: each
)
def test_f174_a_store_that_is_slow_or_busy_or_whose_answers_are_lost_has_each_range_once(
    in_s3: Place, faulty: FaultyStore, kind: str, times: int, more: Any
) -> None:
    fault = faulty.add(kind, "PUT", ".parquet", times, **more)
    assert [*in_s3.write(C, D)] == [(name, 3) for name in FILES]
    assert len(fault.met) == times
    assert (in_s3.files(), in_s3.rows()) == (FILES, records(C, D))


def test_a_small_file_is_one_request_that_writes(in_s3: Place, faulty: FaultyStore) -> None:
    in_s3.write(C)
    assert [path for method, path in faulty.seen if method in ("PUT", "POST")] == [
        f"/{BUCKET}/{in_s3.folder.name}/{FILES[0]}"
    ]


def test_f174_a_store_that_refuses_all_is_told_and_has_no_file(in_s3: Place, faulty: FaultyStore) -> None:
    in_s3.options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=2)
    fault = faulty.add("busy", "PUT", ".parquet", 1_000)
    with pytest.raises(OSError, match=r"(?i)slow"):
        in_s3.write(C)
    assert (len(fault.met) >= 2, in_s3.files()) == (True, [])


def large() -> Frame:
    """A range that is more than one part of an upload."""
    rows = Frame.of(C).rows
    return Frame(rows.append_column("noise", pa.array([os.urandom(LARGE // 3) for _ in range(3)])))


@pytest.mark.parametrize(("part", "completion"), [("busy", "busy"), ("lost", "busy"), ("busy", "lost")])
def test_f174_a_large_file_is_there_once_whole_though_parts_and_its_completion_fail(
    in_s3: Place, faulty: FaultyStore, part: str, completion: str
) -> None:
    parts = faulty.add(part, "PUT", PART, 2)
    completed = faulty.add(completion, "POST", "uploadId", 1)
    in_s3.write(frame=large(), to=batch(C))
    assert (len(parts.met), len(completed.met), in_s3.files()) == (2, 1, FILES[:1])
    assert in_s3.rows() == records(C)


def test_f173_a_large_file_of_which_a_part_is_never_taken_is_not_there(
    in_s3: Place, s3: S3, faulty: FaultyStore
) -> None:
    in_s3.options["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    faulty.add("busy", "PUT", f"{PART}=2", 1_000)
    with pytest.raises(OSError, match=r"(?i)slow"):
        in_s3.write(frame=large(), to=batch(C))
    assert (in_s3.files(), s3.uploads(in_s3.folder.name)) == ([], FILES[:1])
    faulty.faults.clear()
    del in_s3.options["retry_strategy"]
    in_s3.write(frame=large(), to=batch(C, replayed=True))
    assert (in_s3.files(), in_s3.rows(), s3.uploads(in_s3.folder.name)) == (FILES[:1], records(C), [])


# ---- what is told before anything is written


@pytest.mark.parametrize(
    ("folder", "options", "text"),
    [
        ("ftp://host/clicks", {}, "of no file system that this sink knows; those are abfs, abfss, file, gcs, gs, hdfs"),
        ("s3://lake/clicks", {"key": "x"}, "storage_options do not fit: .*'key'.*arguments of pyarrow.fs.S3FileSystem"),
        ("", {}, "the place to write to is ''; give a path, or a URI"),
        ("/data/clicks", {"region": "x"}, "storage_options are for a URI, and folder '/data/clicks' is a path"),
    ],
)
def test_a_place_or_options_that_cannot_be_are_refused(folder: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        write_parquet_ranges(Frame.of(C), batch(C), folder, storage_options=options)  # type: ignore[arg-type]


def test_f197_files_by_range_that_the_driver_does_not_see_are_missed(tmp_path: Path) -> None:
    """An executor writes into the folder of another machine."""

    def elsewhere() -> None:
        next(tmp_path.glob(".b-*/*.parquet")).unlink()

    frame: Any = Frame.of(C, D, on_write=elsewhere)
    with pytest.raises(UsageError, match=r"sees 3 rows of 6 that Spark's executors wrote into .*: give a path"):
        write_parquet_ranges(frame, batch(C, D), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert [each.rows for each in write_parquet_ranges(Frame.of(C, D), batch(C, D), tmp_path)] == [3, 3]  # type: ignore[arg-type]


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    write = partial(write_parquet_ranges, Frame.of(C), batch(C))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"this program lacks the library .*libhdfs.*CLASSPATH=\$\(hadoop classpath"):
        write("hdfs://namenode/clicks")
    monkeypatch.delattr(stores.fs, "GcsFileSystem")
    with pytest.raises(UsageError, match="this build of pyarrow has no GcsFileSystem: install pyarrow from PyPI"):
        write("gs://lake/clicks")


def test_a_library_that_the_workers_lack_is_named() -> None:
    class Lacking(Frame):
        def mapInArrow(self, function: Any, schema: str) -> Any:  # noqa: N802
            raise RuntimeError(f"RuntimeError: {stores.LACKING}: libhdfs\n  at java.lang.Thread")

    with pytest.raises(
        UsageError, match=r"a Python worker of Spark lacks the library .*: libhdfs; it is needed on every"
    ):
        write_parquet_ranges(Lacking(Frame.of(C).rows), batch(C), "s3://lake/clicks")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("abfss://lake@account.dfs.core.windows.net/clicks", "lake/clicks/"),
        ("gs://lake/clicks", "lake/clicks/"),
        ("s3n://lake/a/b", "lake/a/b/"),
    ],
)
def test_a_uri_names_its_folder(uri: str, path: str) -> None:
    options = {"account_key": "a2V5"} if uri.startswith("abfss") else {"anonymous": True}
    assert stores.open_store(uri, options).base_path == path


def test_a_worker_that_writes_ranges_needs_no_zkcoord(in_s3: Place, tmp_path: Path) -> None:
    from pyspark import cloudpickle

    plan = {"uri": in_s3.uri, "options": in_s3.options, "files": {"clicks": {"0": FILES[0]}}, "look": True}
    write = partial(ranges_in_tasks.write_ranges, {**plan, "draft": None})
    sent = cloudpickle.dumps(by_value(write, ranges_in_tasks, files_in_tasks, stores))
    (tmp_path / "task").write_bytes(sent)
    program = (
        "import sys, pickle, pyarrow as pa; sys.modules.update(dict.fromkeys(('zkcoord', 'deltalake', 'pyiceberg')));"
        f"task = pickle.load(open({str(tmp_path / 'task')!r}, 'rb'));"
        f"(told,) = task([pa.RecordBatch.from_pylist({Frame.of(C).rows.to_pylist()!r})]); print(told.to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (
        f"[{{'file': '{FILES[0]}', 'rows': 3, 'replaced': False, 'draft': None}}]\n",
        "",
    )
