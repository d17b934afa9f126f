"""A Delta table in which each record is once, whoever writes it again, in which pieces, and when one dies."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark import cloudpickle
from pyspark.sql import types

from tests.spark.sinks.frames import TYPES, A, B, DeltaLog, Frame, batch, once, records
from zkcoord.errors import UsageError
from zkcoord.spark import delta_ends, write_delta
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.sinks import files_in_tasks
from zkcoord.spark.sinks.columns import check_columns, fields_of
from zkcoord.spark.sinks.data_files import task_of
from zkcoord.spark.sinks.files_in_tasks import OPEN_MAX

pytestmark = pytest.mark.spark
PA, PB = "zkcoord/etl/clicks-0", "zkcoord/etl/clicks-1"


def write(table: Path, *ranges: OffsetRange, frame: Any = None, to: Batch | None = None, **settings: Any) -> int:
    return write_delta(frame or Frame.of(*ranges), to or batch(*ranges), table, **settings)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.__dict__["zkcoord_event"] for each in caplog.records if each.levelno >= logging.WARNING]


def others(table: Path) -> None:
    """Another writer appends a row of its own."""
    write_deltalake(table, pa.table([["other"], [0], [0], [0]], TYPES), mode="append")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


# ---- each record once


def test_a_batch_is_one_transaction_with_the_end_of_each_partition(table: Path) -> None:
    assert write(table, A, B) == 7
    found = DeltaLog(table)
    assert (found.rows(), found.ends) == (records(A, B), {PA: 14, PB: 8})
    assert len(found.commits) == 2  # the table's creation, and this
    assert [each["dataChange"] for each in found.files.values()] == [True] * 3  # else streams that read it see no rows


def test_f162_a_batch_rewritten_in_any_pieces_is_there_once(table: Path) -> None:
    """The whole batch, its ranges dealt to two heirs, cut anew, and an old piece of a program that slept."""
    assert write(table, A, B) == 7
    assert write(table, A, B) == 0
    assert (write(table, B), write(table, A)) == (0, 0)
    assert write(table, A._replace(start=12, end=20), B) == 6
    assert write(table, A._replace(start=11, end=13)) == 0
    found = DeltaLog(table)
    assert (found.rows(), found.ends) == (records(A._replace(end=20), B), {PA: 20, PB: 8})


def test_f254_an_end_beyond_the_batch_stays_where_it_is(table: Path) -> None:
    """A batch that comes late brings one partition of which an heir has written more, and one that nobody has."""
    longer = A._replace(end=20)
    assert (write(table, longer), write(table, A, B), write(table, longer)) == (10, 3, 0)
    found = DeltaLog(table)
    assert (found.rows(), found.ends) == (records(longer, B), {PA: 20, PB: 8})


def test_f162_a_part_of_a_batch_that_an_heir_has_written_is_left_out(table: Path) -> None:
    assert write(table, B) == 3
    assert write(table, A, B) == 4
    assert DeltaLog(table).rows() == records(A, B)


def test_f162_a_count_over_several_partitions_is_exact_though_an_heir_has_written_one(table: Path) -> None:
    def count(rows: Any) -> Any:
        return Frame(pa.table({"rows": [rows.rows.num_rows], "sum": [sum(rows.rows["n"].to_pylist())]}))

    for ranges in ((B,), (A, B), (A,), (A._replace(start=12, end=20), B)):
        write(table, *ranges, transform=count)
    expected = records(A._replace(end=20), B)
    assert DeltaLog(table).rows("sum(rows), sum(sum)", "1") == [(len(expected), sum(row[3] for row in expected))]


def test_a_batch_of_which_nothing_is_to_be_written_moves_the_ends(table: Path) -> None:
    write(table, A)
    assert write(table, B, transform=lambda rows: rows.where("n < 0")) == 0
    found = DeltaLog(table)
    assert (found.rows(), found.ends) == (records(A), {PA: 14, PB: 8})
    assert len(found.files) == 2, "those of A's two tasks: a file without rows is none of the table"


def test_a_topic_that_was_created_again_is_written_from_its_beginning(table: Path) -> None:
    first, again = A._replace(incarnation=1), A._replace(start=0, end=5, incarnation=2)
    assert (write(table, first), write(table, again), write(table, again)) == (4, 5, 0)
    assert write(table, first._replace(end=16)) == 2  # read late: still a record that the table had not
    assert DeltaLog(table).ends == {PA: 16, f"{PA}.2": 5}


def test_two_groups_write_the_same_topic_each_once(table: Path) -> None:
    assert [write(table, A, to=batch(A, group=group)) for group in ("etl", "other", "etl", "other")] == [4, 4, 0, 0]


def test_fresh_rows_that_the_table_has_are_told(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(table, A)
    write(table, A, to=batch(A, replayed=True))
    assert told(caplog) == []
    write(table, A._replace(end=16))
    assert told(caplog) == ["rows_passed_over"]
    assert "offsets of clicks-0 from 10 to 14" in caplog.text


def test_a_batch_that_begins_behind_the_tables_end_is_told(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(table, A)
    assert write(table, A._replace(start=20, end=25)) == 5
    assert told(caplog) == ["rows_missing"]
    assert "offsets of clicks-0 from 14 to 20" in caplog.text


# ---- at the same moment


def test_f163_of_two_that_write_the_same_ranges_at_once_one_writes(table: Path) -> None:
    """The other one has read the table, and written its files, before the first one commits."""
    write(table, OffsetRange("clicks", 0, 0, 10))
    frame = Frame.of(A, B, on_write=once(lambda: write(table, B, A)))
    assert write(table, frame=frame, to=batch(A, B)) == 0
    assert DeltaLog(table).rows() == records(A._replace(start=0), B)


def test_a_table_that_another_one_makes_and_fills_first_keeps_what_it_has(table: Path) -> None:
    """Both have seen that there is no table."""
    first = once(lambda: write(table, B))

    def transform(rows: Any) -> Any:
        first()
        return rows

    assert write(table, A, transform=transform) == 4
    assert DeltaLog(table).rows() == records(A, B)


def test_f163_a_partly_overtaken_writer_writes_the_rest(table: Path) -> None:
    frame = Frame.of(A, B, on_write=once(lambda: write(table, B, A._replace(end=12))))
    assert write(table, frame=frame, to=batch(A, B)) == 2
    assert DeltaLog(table).rows() == records(A, B)


def test_f163_an_end_that_another_one_has_moved_beyond_the_batch_meanwhile_stays_there(table: Path) -> None:
    """The first try was to move it. The second writes the other partition only."""
    longer = A._replace(end=20)
    frame = Frame.of(A, B, on_write=once(lambda: write(table, longer)))
    assert (write(table, frame=frame, to=batch(A, B)), write(table, longer)) == (3, 0)
    found = DeltaLog(table)
    assert (found.rows(), found.ends) == (records(longer, B), {PA: 20, PB: 8})


def test_f163_a_writer_overtaken_many_times_writes_the_rest(table: Path) -> None:
    ends = [11, 12, 13]

    def overtake() -> None:
        if ends:
            write(table, A._replace(end=ends.pop(0)))

    assert write(table, frame=Frame.of(A, B, on_write=overtake), to=batch(A, B)) == 4
    assert DeltaLog(table).rows() == records(A, B)


def test_f163_threads_that_write_pieces_of_the_same_ranges_leave_each_record_once(table: Path) -> None:
    pieces = [(A, B), (B, A), (A._replace(end=12),), (A._replace(start=7, end=13), B), (B._replace(end=6),)]
    barrier = threading.Barrier(len(pieces))
    counts = []

    def run(ranges: tuple[OffsetRange, ...]) -> None:
        barrier.wait(60)
        counts.append(write(table, *ranges))

    write(table, OffsetRange("clicks", 0, 0, 10), OffsetRange("clicks", 1, 0, 5))
    threads = [threading.Thread(target=run, args=(each,)) for each in pieces]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = DeltaLog(table)
    expected = records(A._replace(start=0), B._replace(start=0))
    assert (len(counts), sum(counts)) == (len(pieces), 7)
    assert (found.rows(), found.ends) == (expected, {PA: 14, PB: 8})


def test_others_append_and_compact_meanwhile(table: Path) -> None:
    write(table, B)
    others(table)

    def meanwhile() -> None:
        others(table)
        DeltaTable(table).optimize.compact()
        others(table)

    assert write(table, frame=Frame.of(A, on_write=once(meanwhile)), to=batch(A)) == 4
    others_rows = [("other", 0, 0, 0)] * 3
    assert DeltaLog(table).rows() == [*records(A, B), *others_rows]
    DeltaTable(table).optimize.compact()
    assert (write(table, A, B), DeltaLog(table).rows()) == (0, [*records(A, B), *others_rows])


def test_the_ends_are_known_after_a_checkpoint_and_without_the_old_log(table: Path) -> None:
    write(table, A, B)
    others(table)
    DeltaTable(table).create_checkpoint()
    for number in (0, 1):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    assert write(table, A._replace(end=15), B) == 1


# ---- Spark's side


def test_a_task_needs_pyarrow_alone_in_its_worker(tmp_path: Path) -> None:
    plan = {"uri": str(tmp_path / "t"), "library": "deltalake", "options": {}, "partition_by": []}
    sent = cloudpickle.dumps(task_of({**plan, "kept": False}))
    (tmp_path / "task").write_bytes(sent)
    program = (
        "import sys, pickle, pyarrow as pa; sys.modules.update(dict.fromkeys(('zkcoord', 'deltalake', 'pyiceberg')));"
        f"task = pickle.load(open({str(tmp_path / 'task')!r}, 'rb'));"
        "(told,) = task([pa.RecordBatch.from_pydict({'n': [1, 2]})]); print(told.to_pylist()[0]['rows'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_task_reaches_a_store_as_delta_rs_does(table: Path) -> None:
    """Through a URI; nothing on the way knows that it is a folder."""
    write(table, A)
    plan = {"uri": f"file://{table}", "library": "deltalake", "options": {}, "partition_by": []}
    rows = [pa.RecordBatch.from_pydict({"n": [*range(at, at + 50_000)]}) for at in range(0, 600_000, 50_000)]
    (told,) = files_in_tasks.write_files({**plan, "kept": False}, rows)
    (file,) = told.to_pylist()
    assert (table / file["path"]).stat().st_size == file["size"]
    assert pa.parquet.read_table(table / file["path"])["n"].to_pylist() == [*range(600_000)]


def test_a_new_table_has_the_columns_that_spark_names(table: Path) -> None:
    kinds = [
        *(types.TimestampType(), types.DateType(), types.DecimalType(10, 2), types.BinaryType(), types.ByteType()),
        types.ArrayType(types.IntegerType()),
        types.MapType(types.StringType(), types.DoubleType(), valueContainsNull=False),
        types.StructType([types.StructField("a", types.FloatType()), types.StructField("b", types.BooleanType())]),
    ]
    spark = types.StructType([types.StructField(f"c{number}", kind) for number, kind in enumerate(kinds)])
    made = Schema.from_json(spark.json())
    DeltaTable.create(table, made)
    found = DeltaTable(table).schema().to_json()
    check_columns(fields_of(spark.json()), fields_of(found), "t")
    assert types.StructType.fromJson(json.loads(found)) == spark


# ---- the table's columns


def refused(table: Path, frame: Any, match: str, **settings: Any) -> None:
    before = sorted(table.rglob("*"))
    with pytest.raises(UsageError, match=match):
        write(table, frame=frame, to=batch(A), **settings)
    assert sorted(table.rglob("*")) == before


def test_rows_that_do_not_fit_the_table_are_refused_before_anything_is_written(table: Path) -> None:
    fields = [*TYPES, pa.field("must", pa.string(), nullable=False)]
    write(table, B)
    rows = Frame.of(A).rows
    refused(table, Frame(rows.append_column("more", rows["n"])), "has no column 'more'.*add it to the table")
    refused(table, Frame(rows.set_column(3, "n", rows["n"].cast(pa.int32()))), '\'n\' is "integer".*"long": cast it')
    refused(table, Frame(rows.drop_columns(["offset"])), "DataFrame has no column 'offset'.*as transform")
    refused(table, Frame(rows), "partition_by is .'n'., and the table .* is partitioned by ..", partition_by=["n"])
    strict = table.parent / "strict"
    DeltaTable.create(strict, Schema.from_arrow(pa.schema(fields)))
    refused(strict, Frame(rows), "the column 'must', which may not be null: write it")
    given = rows.append_column("must", pa.array(["a", None, "b", "c"]))
    with pytest.raises(UsageError, match='the column "must" has a null, and in the table it may not'):
        write(strict, frame=Frame(given), to=batch(A))
    assert DeltaLog(strict).rows() == []


def test_tables_that_need_more_of_their_writers_are_refused(table: Path) -> None:
    write(table, B)
    DeltaTable(table).alter.add_constraint({"small": "n < 1000000"})
    refused(table, Frame.of(A), "has the setting delta.constraints.small, which this sink does not know")
    mapped = table.parent / "mapped"
    DeltaTable.create(mapped, Schema.from_arrow(TYPES))
    log = mapped / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    refused(mapped, Frame.of(A), "has column mapping")


def test_a_column_that_the_rows_lack_is_null(table: Path) -> None:
    DeltaTable.create(table, Schema.from_arrow(pa.schema([*TYPES, ("more", pa.string())])))
    write(table, A)
    assert {row["more"] for row in DeltaTable(table).to_pyarrow_table().to_pylist()} == {None}


def test_a_partitioned_table_has_a_file_for_each_value(table: Path) -> None:
    rows = Frame.of(A).rows
    days, words = [date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 1)], ["a b/ü", "", "x", "a b/ü"]
    rows = rows.append_column("day", pa.array(days, pa.date32())).append_column("word", pa.array(words))
    assert write(table, frame=Frame(rows, tasks=4), to=batch(A), partition_by=["day", "word"]) == 4
    assert write(table, frame=Frame(rows), to=batch(A)) == 0
    found = DeltaLog(table)
    values = {(each["partitionValues"]["day"], each["partitionValues"]["word"]) for each in found.files.values()}
    assert values == {("2026-01-01", "a b/ü"), ("2026-01-02", None), (None, "x")}
    assert len(found.files) == 3
    read = DeltaTable(table).to_pyarrow_table().sort_by("offset")
    assert read["day"].to_pylist() == days
    assert read["word"].to_pylist() == ["a b/ü", None, "x", "a b/ü"]
    assert found.rows() == records(A)


def test_a_task_that_ends_files_to_open_others_tells_of_all(table: Path) -> None:
    """It has more values of the table's partition column than it keeps files open; one of them is null."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    days = [*(first + timedelta(n) for n in range(OPEN_MAX)), None, first]
    many = OffsetRange("clicks", 0, 10, 10 + len(days))
    rows = Frame.of(many).rows.append_column("at", pa.array(days, pa.timestamp("us", "UTC")))
    assert write(table, frame=Frame(rows, tasks=len(days)), to=batch(many), partition_by=["at"]) == len(days)
    found = DeltaLog(table)
    assert (len(found.files), found.rows(), found.counted()) == (len(days), records(many), len(days))
    assert DeltaTable(table).to_pyarrow_table().sort_by("offset")["at"].to_pylist() == days


def test_the_log_tells_what_lies_in_a_file(table: Path) -> None:
    at = [datetime(2026, 1, 1, 0, 0, 0, 1500, UTC), None, datetime(2026, 1, 2, 0, 0, 0, 1500, UTC), None]
    rows = Frame.of(A).rows.append_column("at", pa.array(at, pa.timestamp("us", "UTC")))
    rows = rows.append_column("value", pa.array([b"a"] * 4)).append_column("long", pa.array(["x" * 99] * 4))
    write(table, frame=Frame(rows, tasks=4), to=batch(A))
    (file,) = DeltaLog(table).files.values()
    stats = json.loads(file["stats"])
    assert stats == {
        "numRecords": 4,
        "minValues": {"topic": "clicks", "partition": 0, "offset": 10, "n": 70, "at": "2026-01-01T00:00:00.001Z"},
        "maxValues": {"topic": "clicks", "partition": 0, "offset": 13, "n": 91, "at": "2026-01-02T00:00:00.002Z"},
        "nullCount": {"topic": 0, "partition": 0, "offset": 0, "n": 0, "at": 2, "value": 0, "long": 0},
    }
    assert file["size"] == (table / file["path"]).stat().st_size
    assert DeltaTable(table).to_pyarrow_table(filters=[("offset", ">", 11)]).num_rows == 2
    assert DeltaTable(table).to_pyarrow_table(filters=[("at", ">=", at[2])]).num_rows == 1, "or the file is passed over"


def test_a_table_is_a_path_or_a_uri_with_both_its_slashes(table: Path) -> None:
    """A path with `file://` is a path: Spark's own writer takes it. A `Path` takes a slash of a URI away."""

    class WithoutPython(Frame):
        mapInArrow = None  # type: ignore[assignment] # noqa: N815

    frame: Any = WithoutPython(Frame.of(A).rows)
    assert (write_delta(frame, batch(A), f"file://{table}"), write(table, A)) == (4, 0)
    for lost in (Path("s3://lake/clicks"), f"file:{table}"):
        with pytest.raises(UsageError, match="is neither a path nor a URI, which has two slashes"):
            write_delta(frame, batch(A), lost)
        with pytest.raises(UsageError, match="is neither a path nor a URI"):
            delta_ends(lost)
    for nothing in (None, "", 7):  # a setting that is not there
        with pytest.raises(UsageError, match=f"the place to write to is {nothing!r}; give a path, or a URI"):
            write_delta(frame, batch(A), nothing)  # type: ignore[arg-type]


def test_a_transform_that_returns_no_rows_or_is_none_is_refused(table: Path) -> None:
    for wrong, text in (("clicks", "transform is 'clicks'"), (lambda rows: None, "transform returned None")):
        with pytest.raises(UsageError, match=text):
            write(table, A, transform=wrong)
    assert not table.exists()


def test_a_batch_that_does_not_name_its_group_is_refused(table: Path) -> None:
    with pytest.raises(UsageError, match=r"replace\(batch, group="):
        write(table, A, to=replace(batch(A), group=""))
    assert not table.exists()
