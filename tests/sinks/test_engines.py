"""What the sinks wrote into tables, read by engines that did not write it: Polars, DuckDB's `delta_scan`, and Spark's
Delta and Iceberg.

Polars has the list of a table's files from delta-rs or pyiceberg, and reads the files, with its own filters, by itself.
DuckDB and Spark read everything by themselves, in processes of their own: a process has one Spark session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.sinks.delta_scan import by_delta_scan
from tests.sinks.frames import A, B, Frame, Rows, batch, records
from tests.sinks.test_iceberg import Warehouse
from zkcoord.spark import write_delta
from zkcoord.spark.ranges import OffsetRange

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
SPARK_S = 900  # a loaded machine takes minutes for a session
COLUMNS = ["topic", "partition", "offset", "n"]
LONGER = A._replace(end=20)
FROM = 12  # the offset of a reader's filter: files that end before it are passed over by their statistics
MORE = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("money", pa.decimal128(10, 2)),
        ("word", pa.string()),
    ]
)
WORDS = ("a b/ü", "x%20=:#+?", None)


def frame(*ranges: OffsetRange) -> Frame:
    """The records with columns of other types, and nulls in them."""
    rows = Frame.of(*ranges).rows
    offsets = rows["offset"].to_pylist()
    made = {
        "at": [datetime(2026, 1, 2, 3, 4, 5, 123456, UTC) + timedelta(hours=each) for each in offsets],
        "day": [None if each % 5 == 0 else date(2026, 1, 1 + each % 2) for each in offsets],
        "money": [None if each % 7 == 0 else Decimal(each).scaleb(-2) for each in offsets],
        "word": [WORDS[each % 3] for each in offsets],
    }
    for name, values in made.items():
        rows = rows.append_column(name, pa.array(values, MORE.field(name).type))
    return Frame(rows)


def write(table: Path, *ranges: OffsetRange, **settings: Any) -> int:
    return write_delta(frame(*ranges), batch(*ranges), table, **settings)


def plain(table: Path) -> Rows:
    """Batches, one of which comes again and brings more."""
    write(table, A, B)
    write(table, LONGER, B)
    return records(LONGER, B)


def partitioned(table: Path) -> Rows:
    """Files of days and words, and of none, in folders whose names are not those of the values."""
    write(table, A, B, partition_by=["day", "word"])
    write(table, LONGER, B)
    return records(LONGER, B)


def checkpointed(table: Path) -> Rows:
    """What was before the checkpoint stands only there."""
    write(table, A)
    DeltaTable(table).create_checkpoint()
    for old in sorted((table / "_delta_log").glob("*.json"))[:-1]:  # as the log's retention does it
        old.unlink()
    write(table, LONGER, B)
    assert write(table, LONGER, B) == 0
    return records(LONGER, B)


def restored(table: Path) -> Rows:
    """A batch was taken back, and a part of it has come again."""
    write(table, A, B)
    kept = DeltaTable(table).version()
    write(table, A._replace(start=14, end=30))
    DeltaTable(table).restore(kept)
    write(table, LONGER)
    return records(LONGER, B)


MAKERS: dict[str, Callable[[Path], Rows]] = {
    each.__name__: each for each in (plain, partitioned, checkpointed, restored)
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def iceberg_tables(house: Warehouse) -> dict[str, Any]:
    """A plain table and one that is partitioned, by name. Both have `records(LONGER, B)`."""
    kinds = frame(A).rows.schema
    house.catalog().create_table("db.typed", kinds)
    schema = house.load("db.typed").schema()
    spec = PartitionSpec(PartitionField(schema.find_field("day").field_id, 1000, IdentityTransform(), "day"))
    house.catalog().create_table("db.by_day", schema, partition_spec=spec)
    for name in ("db.typed", "db.by_day"):
        for ranges in ((A, B), (LONGER, B)):
            house.write(frame=frame(*ranges), to=batch(*ranges), table=name)
    return {name: house.load(name) for name in ("db.typed", "db.by_day")}


def wanted(rows: Rows) -> list[list[Any]]:
    """Rows with the further columns, as JSON has them."""
    ranges = [OffsetRange(topic, partition, offset, offset + 1) for topic, partition, offset, _ in rows]
    found = [row for each in ranges for row in frame(each).rows.to_pylist()]
    return [[*(row[name] for name in COLUMNS), *(spelled(row[name]) for name in MORE.names)] for row in found]


def spelled(value: Any) -> str | None:
    """A time, a day or an amount of money, the same from every engine."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return None if value is None else str(value)


def by_polars(scanned: polars.LazyFrame) -> list[list[Any]]:
    found = scanned.select([*COLUMNS, *MORE.names]).sort("topic", "partition", "offset").collect().rows()
    return [[*row[:4], *map(spelled, row[4:])] for row in found]


def behind(rows: list[list[Any]]) -> list[list[Any]]:
    return [row for row in rows if row[2] >= FROM]


@pytest.mark.parametrize("kind", MAKERS)
def test_f227_polars_reads_each_record_of_a_delta_table_once(tmp_path: Path, kind: str) -> None:
    rows = wanted(MAKERS[kind](tmp_path / kind))
    scanned = polars.scan_delta(str(tmp_path / kind))
    assert by_polars(scanned) == rows
    assert by_polars(scanned.filter(polars.col("offset") >= FROM)) == behind(rows)
    day = date(2026, 1, 2)
    assert by_polars(scanned.filter(polars.col("day") == day)) == [row for row in rows if row[5] == str(day)]


@pytest.mark.delta_scan
def test_duckdb_reads_each_record_of_a_delta_table_once(tmp_path: Path) -> None:
    kinds = """strftime("at", '%Y-%m-%dT%H:%M:%S.%f+00:00'), day::text, money::text, word"""
    columns = f'topic, partition, "offset", n, {kinds}'
    asked, expected = [], []
    for kind, make in MAKERS.items():
        rows = wanted(make(tmp_path / kind))
        for condition, found in {
            "true": rows,
            f'"offset" >= {FROM}': behind(rows),
            "day = '2026-01-02'": [row for row in rows if row[5] == "2026-01-02"],
        }.items():
            asked.append(f"SELECT {columns} FROM delta_scan('{tmp_path / kind}') WHERE {condition} ORDER BY 1, 2, 3")
            expected.append(found)
    assert by_delta_scan(asked) == expected


def test_polars_reads_each_record_of_an_iceberg_table_once(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own is a package apart
    for table in iceberg_tables(house).values():
        scanned = polars.scan_iceberg(table, reader_override="native")
        rows = wanted(records(LONGER, B))
        assert by_polars(scanned) == rows
        assert by_polars(scanned.filter(polars.col("offset") >= FROM)) == behind(rows)


@pytest.mark.long
def test_sparks_delta_and_iceberg_read_each_record_of_the_tables_once(
    tmp_path: Path, house: Warehouse, spark_java: None
) -> None:
    """Without and with a filter."""
    asked, expected = [], {}
    for kind, make in MAKERS.items():
        expected[kind] = wanted(make(tmp_path / "delta" / kind))
        asked.append([kind, "delta", str(tmp_path / "delta" / kind)])
    for name, table in iceberg_tables(house).items():
        expected[name] = wanted(records(LONGER, B))
        asked.append([name, "iceberg", table.metadata_location])
    question = json.dumps({"tables": asked, "columns": [*COLUMNS, *MORE.names], "from": FROM})
    command = [sys.executable, "-m", "tests.sinks.on_engines", str(tmp_path / "spark")]
    done = subprocess.run(command, input=question, cwd=ROOT, capture_output=True, text=True, timeout=SPARK_S)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert {name: found["all"] for name, found in told.items()} == expected
    assert {name: found["some"] for name, found in told.items()} == {n: behind(rows) for n, rows in expected.items()}
