"""PySpark consumers: members of a group that read their partitions with Spark, batch by batch."""

from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.session import spark_session
from zkcoord.spark.sinks.delta import delta_ends, write_delta
from zkcoord.spark.sinks.files import write_parquet_ranges
from zkcoord.spark.sinks.iceberg import iceberg_ends, write_iceberg
from zkcoord.spark.sinks.sql import write_sql
from zkcoord.spark.stream.batch import stream_batch
from zkcoord.spark.stream.batches import batches
from zkcoord.spark.stream.registering import register_source

__all__ = [
    "Batch",
    "OffsetRange",
    "SparkConsumer",
    "batches",
    "delta_ends",
    "iceberg_ends",
    "register_source",
    "spark_session",
    "stream_batch",
    "write_delta",
    "write_iceberg",
    "write_parquet_ranges",
    "write_sql",
]
