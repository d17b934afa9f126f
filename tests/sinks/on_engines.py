"""Reads tables by Spark's Delta and Iceberg, as a program: `python -m tests.sinks.on_engines FOLDER < QUESTION`.

A process of its own: these need settings of the session that another one of the process would not have.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from zkcoord.embedded import delta_jars, iceberg_jars
from zkcoord.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def main(folder: str) -> None:
    """Answer one question: the rows of each table, all of them and those from an offset on."""
    asked = json.load(sys.stdin)
    local = {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    local["spark.sql.catalog.default_iceberg.warehouse"] = folder
    jars = [*delta_jars(), *iceberg_jars()]
    spark = spark_session("zkcoord engines", jars=jars, log_level="OFF", config={**SETTINGS, **local})
    told = {}
    for name, kind, uri in asked["tables"]:
        found = spark.read.format(kind).load(uri)
        some = found.where(f"offset >= {asked['from']}")
        told[name] = {"all": rows_of(found, asked["columns"]), "some": rows_of(some, asked["columns"])}
    spark.stop()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
