"""A driver that can be suspended: `python -m tests.spark.on_pause ZOOKEEPER KAFKA TOPIC`.

Prints a line of JSON for each thing that happens. Its first batch waits for a line on standard input.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from zkcoord.embedded import connector_jars
from zkcoord.spark import Batch, SparkConsumer, spark_session
from zkcoord.spark.ports import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "g"


def tell(what: str, **fields: Any) -> None:
    """Print a line."""
    print(json.dumps({"what": what, **fields}), flush=True)


def process(df: DataFrame, batch: Batch) -> None:
    """Read the records, twice."""
    rows = sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())
    tell("begun", rows=rows)
    if batch.seq == 0:
        sys.stdin.readline()
    df.count()


def committed(report: Report) -> None:
    """Print that a batch is committed."""
    tell("committed", ranges=[[each.partition, each.start, each.end] for each in report.batch.ranges])


def main(zookeeper: str, kafka: str, topic: str) -> None:
    """Read until SIGTERM."""
    spark = spark_session("asleep", jars=connector_jars(), log_level="OFF")
    try:
        consumer = SparkConsumer(
            *(spark, zookeeper, kafka, GROUP, [topic]),
            starting_offsets="earliest",
            session_timeout_ms=4_000,
            on_report=committed,
        )
        batches = consumer.run(process)
        tell("ended", batches=batches, lost=consumer.metrics.lost)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
