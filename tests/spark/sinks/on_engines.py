"""Writes tables in a real session, and reads them by Spark's Delta and Iceberg, as a program:
`python -m tests.spark.sinks.on_engines FOLDER < QUESTION`.

A process of its own: these need settings of the session that another one of the process would not have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.sinks.test_iceberg import Dies, Warehouse, unnamed
from tests.spark.sinks.typed_tables import LONGER, Tables
from zkcoord.embedded import delta_jars, iceberg_jars
from zkcoord.spark import spark_session
from zkcoord.spark.sinks import data_files, iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[3]
SPARK_S = 900  # a loaded machine takes minutes for a session

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.default_iceberg": "org.apache.iceberg.spark.SparkCatalog",  # of tables by their metadata's path
    "spark.sql.catalog.default_iceberg.type": "hadoop",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",  # of a log: 50 by default
    "spark.driver.memory": "1g",
}


def rows_of(found: DataFrame, columns: list[str]) -> list[list[Any]]:
    """All rows, in the order of the log."""
    return [[_spelled(each) for each in row] for row in found.select(columns).orderBy(*columns[:3]).collect()]


def _spelled(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if value is None or isinstance(value, int | str) else str(value)


def ask(question: Any, folder: Path) -> Any:
    """Run this program; return its answer. The folder is for what Spark leaves."""
    command = [sys.executable, "-m", "tests.spark.sinks.on_engines", str(folder)]
    told = json.dumps(question)
    done = subprocess.run(command, input=told, cwd=ROOT, capture_output=True, text=True, timeout=SPARK_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def made(spark: SparkSession, folder: Path) -> tuple[list[list[str]], dict[str, int]]:
    """Write tables; return name, kind and address of each, and how many files no snapshot named before and after
    Iceberg's own removal of them."""
    folder.mkdir()
    house, tables = Warehouse(folder), Tables(spark.createDataFrame)
    delta, found = tables.delta(folder / "delta"), tables.iceberg(house)
    killed(house, tables)
    before = len(unnamed(house.load("db.typed")))
    remove_orphan_files(spark, found["db.typed"].metadata_location)
    counts = {"before": before, "after": len(unnamed(house.load("db.typed")))}
    house.close()
    of_delta = [[name, "delta", path] for name, path in delta.items()]
    return [*of_delta, *([name, "iceberg", table.metadata_location] for name, table in found.items())], counts


def remove_orphan_files(spark: SparkSession, table: str) -> None:
    """Do what Iceberg's procedure of this name does. (It takes the names of a catalog only.)"""
    iceberg_java: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    loaded = iceberg_java.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).load(table)
    iceberg_java.spark.actions.SparkActions.get(spark._jsparkSession).deleteOrphanFiles(loaded).execute()


def killed(house: Warehouse, tables: Tables) -> None:
    """Leave what a program leaves that is killed before its commit, or in Spark's job; all files are four days old."""

    def die(*_: object) -> None:
        raise Dies

    commit, iceberg._State.commit = iceberg._State.commit, die  # type: ignore[method-assign]
    try:
        tables.append(house, "db.typed", LONGER._replace(start=20, end=23))
    except Dies:
        iceberg._State.commit = commit  # type: ignore[method-assign]
    data = Path(house.load("db.typed").location().removeprefix("file://")) / "data"
    (draft := data / data_files.DRAFTS / "dead" / "part-0.parquet").parent.mkdir(parents=True)
    shutil.copy(next(data.glob("*.parquet")), draft)
    for file in data.rglob("*"):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 4 * 86_400))  # it leaves those of three days


def main(folder: str) -> None:
    """Answer one question: the rows of each table, all of them and those from an offset on."""
    asked = json.load(sys.stdin)
    local = {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    local["spark.sql.catalog.default_iceberg.warehouse"] = folder
    jars = [*delta_jars(), *iceberg_jars()]
    spark = spark_session("zkcoord engines", jars=jars, log_level="OFF", config={**SETTINGS, **local})
    tables, counts = made(spark, Path(asked["make"])) if "make" in asked else (asked["tables"], {})
    told = {}
    for name, kind, uri in tables:
        found = spark.read.format(kind).load(uri)
        some = found.where(f"offset >= {asked['from']}")
        told[name] = {"all": rows_of(found, asked["columns"]), "some": rows_of(some, asked["columns"])}
    spark.stop()
    print(json.dumps({"made": tables, "read": told, "unnamed": counts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
