"""Times and days of any year: a record is written, and its readers find it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from tests.spark.sinks.frames import A, B, DeltaLog, Frame, batch
from tests.spark.sinks.test_iceberg import Warehouse
from zkcoord.spark import write_delta
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks.files_in_tasks import as_text, spelled
from zkcoord.spark.sinks.spark_writer import MICROSECONDS, TIMESTAMPS, times_in_microseconds

pytestmark = pytest.mark.spark
NO_ERROR = (None, None, None)
DAY_US = 24 * 3600 * 1_000_000
AT, DAY = pa.timestamp("us", "UTC"), pa.date32()
STRANGE = {  # days since 1970, and microseconds of that day
    "the last time that Python has": (2_932_896, DAY_US - 1),
    "milliseconds that were taken for seconds": (19_675_925, 0),
    "before the first year": (-719_163, 0),
}


def rows_at(each: OffsetRange, day: int, rest_us: int = 0) -> pa.Table:
    """The rows of a range, with this time and day in the first one, and ordinary ones in the others."""
    rows = Frame.of(each).rows
    ordinary = range(rows.num_rows - 1)
    rows = rows.append_column("at", pa.array([day * DAY_US + rest_us, *ordinary], pa.int64()).cast(AT))
    return rows.append_column("day", pa.array([day, *ordinary], pa.int32()).cast(DAY))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("year", STRANGE)
def test_f337_a_delta_table_takes_times_and_days_of_any_year(tmp_path: Path, year: str) -> None:
    rows = rows_at(A, *STRANGE[year])
    assert write_delta(Frame(rows, tasks=9), batch(A), tmp_path / "t") == 4  # type: ignore[arg-type]
    (file,) = DeltaLog(tmp_path / "t").files.values()
    stats = json.loads(file["stats"])
    assert (stats["minValues"]["offset"], stats["nullCount"]["at"], "at" in stats["minValues"]) == (10, 0, False)
    found = DeltaTable(tmp_path / "t").to_pyarrow_dataset().to_table(columns=["offset", "at"])
    assert found["at"].cast(pa.int64()).to_pylist() == rows["at"].cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("year", STRANGE)
def test_f337_an_iceberg_table_takes_times_and_days_of_any_year(house: Warehouse, year: str) -> None:
    rows = rows_at(A, *STRANGE[year])
    house.catalog().create_table("db.t", rows.schema)
    assert house.write(frame=Frame(rows, tasks=9), to=batch(A), table="db.t") == 4
    found = house.load("db.t").scan().to_arrow()
    assert found["at"].cast(pa.int64()).to_pylist() == rows["at"].cast(pa.int64()).to_pylist()
    assert house.write(frame=Frame(rows_at(B, 20_000), tasks=9), to=batch(B), table="db.t") == 3
    bounds = [len(each.file.lower_bounds) for each in house.load("db.t").scan().plan_files()]
    assert sorted(bounds) == [6 if year.startswith("the last") else 0, 6], "an ordinary batch is measured again"


def test_f337_a_row_with_a_strange_time_is_in_its_icebergs_partition(house: Warehouse) -> None:
    """pyiceberg takes the partition from the bounds of the partition's column."""
    rows = rows_at(A, *STRANGE["before the first year"])
    catalog = house.catalog()
    table = catalog.create_table("db.t", rows.schema)
    with table.update_spec() as change:
        change.add_identity("n")
    assert house.write(frame=Frame(rows, tasks=9), to=batch(A), table="db.t") == 4
    for n in rows["n"].to_pylist():
        assert house.load("db.t").scan(f"n = {n}").to_arrow()["n"].to_pylist() == [n]
    files = [each.file for each in house.load("db.t").scan().plan_files()]
    assert sorted(each.partition[0] for each in files) == rows["n"].to_pylist()


def test_f337_a_time_before_the_year_1000_is_found_by_its_value(tmp_path: Path) -> None:
    first = datetime(1, 1, 1, tzinfo=UTC)
    rows = Frame.of(A).rows.append_column("at", pa.array([first] * 4, AT))
    write_delta(Frame(rows), batch(A), tmp_path / "t")  # type: ignore[arg-type]
    earlier = pc.field("at") < pa.scalar(datetime(2020, 1, 1, tzinfo=UTC), AT)
    assert DeltaTable(tmp_path / "t").to_pyarrow_dataset().to_table(filter=earlier).num_rows == 4
    assert as_text(first) == "0001-01-01 00:00:00.000000"
    assert spelled(first.replace(tzinfo=None, microsecond=1001), up=True) == "0001-01-01T00:00:00.002"


def test_two_writers_of_a_session_leave_its_setting_for_times_as_it_was() -> None:
    frame: Any = Frame(rows_at(A, 0))
    first, second = times_in_microseconds(frame), times_in_microseconds(frame)
    seen = []
    for step in (
        first.__enter__,
        second.__enter__,
        lambda: first.__exit__(*NO_ERROR),
        lambda: second.__exit__(*NO_ERROR),
    ):
        step()
        seen.append(frame.sparkSession.get(TIMESTAMPS))
    assert seen == [MICROSECONDS, MICROSECONDS, MICROSECONDS, "INT96"]
