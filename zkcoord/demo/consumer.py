"""A consumer's program: PySpark, warm before it registers, writing each batch as one Parquet file a range."""

from __future__ import annotations

import argparse
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zkcoord import logs
from zkcoord.demo.options import GROUP, SESSION_TIMEOUT_MS, TOPIC, Places
from zkcoord.demo.output import NUMBER
from zkcoord.embedded import connector_jars, spark_environment
from zkcoord.embedded.java import QUICK
from zkcoord.spark import Batch, SparkConsumer, spark_session, write_parquet_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GO_POLL_S = 0.01
JVM_END_S = 10


class Job:
    """What one consumer does with its batches."""

    def __init__(self, name: str, places: Places) -> None:
        self._places = places
        self._go = places.go(name)
        self._warm = places.scratch / f"warm-{name}"

    def warm_up(self, frame: DataFrame) -> None:
        """Write a record to a temporary file, report that Spark is warm, and wait for the file that lets this consumer
        in.
        """
        self.columns(frame).write.mode("overwrite").parquet(self._warm.as_uri())
        logs.emit("warm")
        while not self._go.exists():
            time.sleep(GO_POLL_S)

    def process(self, frame: DataFrame, batch: Batch) -> None:
        """Write the batch, with an event when it begins and another when it is written."""
        logs.emit("batch_started", seq=batch.seq, generation=batch.generation, ranges=[str(r) for r in batch.ranges])
        written = write_parquet_ranges(self.columns(frame), batch, self._places.output)
        logs.emit("batch_written", seq=batch.seq, rows=sum(each.rows for each in written))

    @staticmethod
    def columns(frame: DataFrame) -> DataFrame:
        """The records as a table."""
        value = "cast(value as string)"
        return frame.selectExpr(
            "topic",
            "partition",
            "offset",
            "timestamp",
            "cast(key as string) as user",
            f"get_json_object({value}, '$.page') as page",
            f"cast(get_json_object({value}, '$.seq') as bigint) as {NUMBER}",
        )


def session(name: str, places: Places) -> SparkSession:
    """Return a small Spark session whose files stay in the demo's folder. So the user needs no home directory, which
    Ivy would use otherwise."""
    home = f"-Duser.home={places.scratch}"
    return spark_session(
        f"zkcoord demo, consumer {name}",
        jars=connector_jars(),
        environment=spark_environment(),
        config={
            "spark.driver.extraJavaOptions": " ".join((*QUICK, f"-Djava.io.tmpdir={places.scratch}", home)),
            "spark.jars.ivy": str(places.scratch / "ivy"),
            "spark.sql.warehouse.dir": str(places.scratch / "warehouse"),
        },
    )


def end(spark: SparkSession) -> None:
    """Stop Spark and wait until its Java has ended, so that nothing writes to the demo's folder any more."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the Java ends when its standard input ends
        gateway.proc.wait(JVM_END_S)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a consumer's options: its name, where the servers are, and the folder of the run."""
    parser = argparse.ArgumentParser(description=description)
    for option in ("--name", "--zookeeper", "--bootstrap-servers"):
        parser.add_argument(option, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser


def main() -> None:
    """The program."""
    chosen = arguments(__doc__).parse_args()
    logs.configure("json", logging.INFO)
    places = Places(chosen.folder)
    os.chdir(places.scratch)  # Spark makes folders in the working directory
    spark = session(chosen.name, places)
    job = Job(chosen.name, places)
    consumer = SparkConsumer(
        spark,
        chosen.zookeeper,
        chosen.bootstrap_servers,
        GROUP,
        [TOPIC],
        starting_offsets="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        warm_up=job.warm_up,
    )
    try:
        consumer.run(job.process)
    finally:
        end(spark)


if __name__ == "__main__":
    main()
