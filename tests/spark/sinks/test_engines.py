"""What the sinks wrote into tables, read by engines that did not write it: Polars, DuckDB's `delta_scan`, and Spark's
Delta and Iceberg.

Polars has the list of a table's files from delta-rs or pyiceberg, and reads the files, with its own filters, by itself.
DuckDB and Spark read everything by themselves, in processes of their own: a process has one Spark session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import polars
import pytest
from pyiceberg.table import StaticTable

from tests.spark.sinks.delta_scan import by_delta_scan
from tests.spark.sinks.frames import Frame
from tests.spark.sinks.on_engines import ask
from tests.spark.sinks.test_iceberg import Warehouse
from tests.spark.sinks.typed_tables import COLUMNS, FROM, ROWS, Tables, spelled

pytestmark = pytest.mark.spark
BEHIND = [row for row in ROWS if row[2] >= FROM]
DAY = date(2026, 1, 2)
OF_DAY = [row for row in ROWS if row[5] == str(DAY)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def by_polars(scanned: polars.LazyFrame) -> list[list[Any]]:
    found = scanned.select(COLUMNS).sort("topic", "partition", "offset").collect().rows()
    return [[*row[:4], *map(spelled, row[4:])] for row in found]


def polars_reads_delta(table: str) -> None:
    scanned = polars.scan_delta(table)
    assert by_polars(scanned) == ROWS, table
    assert by_polars(scanned.filter(polars.col("offset") >= FROM)) == BEHIND, table
    assert by_polars(scanned.filter(polars.col("day") == DAY)) == OF_DAY, table


def polars_reads_iceberg(table: Any) -> None:
    scanned = polars.scan_iceberg(table, reader_override="native")
    assert by_polars(scanned) == ROWS
    assert by_polars(scanned.filter(polars.col("offset") >= FROM)) == BEHIND


def duckdb_reads_delta(tables: Mapping[str, str]) -> None:
    kinds = """strftime("at", '%Y-%m-%dT%H:%M:%S.%f+00:00'), day::text, money::text, word"""
    columns = f'topic, partition, "offset", n, {kinds}'
    wheres = {"true": ROWS, f'"offset" >= {FROM}': BEHIND, f"day = '{DAY}'": OF_DAY}
    asked, expected = [], []
    for table in tables.values():
        for condition, rows in wheres.items():
            asked.append(f"SELECT {columns} FROM delta_scan('{table}') WHERE {condition} ORDER BY 1, 2, 3")
            expected.append(rows)
    assert by_delta_scan(asked) == expected


@pytest.mark.parametrize("kind", ["plain", "partitioned", "checkpointed", "restored"])
def test_f227_polars_reads_each_record_of_a_delta_table_once(tmp_path: Path, kind: str) -> None:
    getattr(Tables(Frame), kind)(tmp_path / kind)
    polars_reads_delta(str(tmp_path / kind))


@pytest.mark.delta_scan
def test_duckdb_reads_each_record_of_a_delta_table_once(tmp_path: Path) -> None:
    duckdb_reads_delta(Tables(Frame).delta(tmp_path))


def test_polars_reads_each_record_of_an_iceberg_table_once(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own is a package apart
    for table in Tables(Frame).iceberg(house).values():
        polars_reads_iceberg(table)


@pytest.mark.long
@pytest.mark.delta_scan
def test_all_engines_read_each_record_of_tables_that_spark_wrote_once(
    tmp_path: Path, spark_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without and with a filter. Iceberg's `remove_orphan_files` has removed the files of a program that was killed."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    told = ask({"make": str(tmp_path / "tables"), "columns": COLUMNS, "from": FROM}, tmp_path / "spark")
    assert {name: found["all"] for name, found in told["read"].items()} == dict.fromkeys(told["read"], ROWS)
    assert {name: found["some"] for name, found in told["read"].items()} == dict.fromkeys(told["read"], BEHIND)
    assert len(told["read"]) == 6
    duckdb_reads_delta({name: uri for name, kind, uri in told["made"] if kind == "delta"})
    for _, kind, uri in told["made"]:
        if kind == "delta":
            polars_reads_delta(uri)
        else:
            polars_reads_iceberg(StaticTable.from_metadata(uri))
    assert told["unnamed"] == {"before": 3, "after": 0}
