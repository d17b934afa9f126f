"""Records of a topic as files in S3, one for each range of offsets, so that each record is there once.

    python examples/files_in_s3.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC URI [OPTION=VALUE ...]

URI is a folder of a bucket: `s3://lake/clicks`. The options are those of `pyarrow.fs.S3FileSystem`, here and on each
machine of Spark's executors: `region=eu-central-1`, or `endpoint_override=http://localhost:9000` for a store of one's
own. Credentials are looked for as usual (`AWS_ACCESS_KEY_ID`, files, the machine's role).

Spark's tasks put the files under their final names, each whole: TOPIC-PARTITION-START-END.parquet. A range that comes
again after a crash is the same range, and puts the same key again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyspark
from pyarrow import dataset, fs
from pyspark.sql import DataFrame, SparkSession

from zkcoord.errors import ZkcoordError
from zkcoord.spark import Batch, SparkConsumer, write_parquet_ranges

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"  # exactly PySpark's version
Options = Mapping[str, str]


def write(
    spark: SparkSession, zookeeper: str, bootstrap_servers: str, topic: str, uri: str, options: Options, **run: Any
) -> int:
    """Write the topic's records below `uri`; return the number of batches."""

    def process(df: DataFrame, batch: Batch) -> None:
        rows = df.selectExpr("topic", "partition", "offset", "timestamp", "cast(value as string) as value")
        write_parquet_ranges(rows, batch, uri, storage_options=options)  # no shuffle before: a task is a range

    where = (spark, zookeeper, bootstrap_servers, "files-in-s3", [topic])
    return SparkConsumer(*where, starting_offsets="earliest").run(process, **run)


def rows_by_file(uri: str, options: Options) -> dict[str, int]:
    """Return file name -> number of rows."""
    folder = uri.split("://", 1)[1].rstrip("/")
    files = dataset.dataset(folder, filesystem=fs.S3FileSystem(**options)).get_fragments()
    return {each.path.rsplit("/", 1)[1]: each.count_rows() for each in files}


def main() -> None:
    """Write all records that exist now, then print the files."""
    if len(sys.argv) < 5 or not all("=" in word for word in sys.argv[5:]):
        sys.exit(__doc__)
    zookeeper, bootstrap_servers, topic, uri, *words = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    builder = SparkSession.builder.appName("files in S3").config("spark.jars.packages", CONNECTOR)
    spark = builder.config("spark.ui.showConsoleProgress", False).getOrCreate()
    try:
        batches = write(spark, zookeeper, bootstrap_servers, topic, uri, options, idle_timeout_ms=5_000)
    except ZkcoordError as error:  # it says who must act
        sys.exit(f"error: {error}")
    print(f"{batches} batches were written")
    for name, rows in rows_by_file(uri, options).items():
        print(f"{rows:>9,} {name}")


if __name__ == "__main__":
    main()
