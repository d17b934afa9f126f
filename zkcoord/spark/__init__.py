"""PySpark consumers: members of a group that read their partitions with Spark, batch by batch."""

from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.session import spark_session
from zkcoord.spark.sink_sql import write_sql
from zkcoord.spark.sinks import write_parquet_ranges
from zkcoord.spark.stream import register_source
from zkcoord.spark.stream_batch import stream_batch

__all__ = [
    "Batch",
    "OffsetRange",
    "SparkConsumer",
    "register_source",
    "spark_session",
    "stream_batch",
    "write_parquet_ranges",
    "write_sql",
]
