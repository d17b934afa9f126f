"""A remote session writes into a store, as a program: `python -m tests.spark.on_connect_store SERVER FOLDER ENDPOINT`.

FOLDER is a folder of the driver program, and also its name in the store. The program prints one line of JSON: how many
rows each of two writes has written. It is a process of its own, since a process with a classic session can have no
remote one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.sinks.s3_server import BUCKET, arrow_options, delta_options, iceberg_options
from zkcoord.spark import Batch, OffsetRange, write_delta, write_iceberg, write_parquet_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANGES = (OffsetRange("clicks", 0, 0, 5), OffsetRange("clicks", 1, 10, 14))
TABLE = "db.clicks"


def into_iceberg(rows: DataFrame, batch: Batch, folder: Path, place: str, endpoint: str) -> list[int]:
    """A table of a catalog in SQLite, twice."""
    from pyiceberg.catalog.sql import SqlCatalog

    where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{place}/iceberg", **iceberg_options(endpoint)}
    catalog = SqlCatalog("tests", **where)
    try:
        catalog.create_namespace("db")
        catalog.create_table(TABLE, rows.limit(0).toArrow().schema, location=f"{place}/iceberg")
        return [write_iceberg(rows, batch, TABLE, catalog=catalog) for _ in range(2)]
    finally:
        catalog.close()


def main(server: str, folder: str, endpoint: str) -> None:
    """All three sinks, each twice."""
    from pyspark.sql import SparkSession

    place = f"s3://{BUCKET}/{Path(folder).name}"
    batch = Batch(id="b", seq=0, generation=1, ranges=RANGES, group="etl")
    spark = SparkSession.builder.remote(server).getOrCreate()
    try:
        rows = spark.range(9).selectExpr(
            "'clicks' AS topic", "int(id DIV 5) AS partition", "id + 5 * (id DIV 5) AS offset", "id AS n"
        )
        arrow, delta = dict(arrow_options(endpoint)), dict(delta_options(endpoint))
        together = rows.repartition(2, "topic", "partition")
        told: dict[str, Any] = {
            "ranges": [
                [
                    [each.file, each.rows]
                    for each in write_parquet_ranges(together, batch, f"{place}/ranges", storage_options=arrow)
                ]
                for _ in range(2)
            ],
            "delta": [write_delta(rows, batch, f"{place}/delta", storage_options=delta) for _ in range(2)],
            "iceberg": into_iceberg(rows, batch, Path(folder), place, endpoint),
        }
    finally:
        spark.stop()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
