"""Registers the streaming source in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkcoord.errors import UsageError
from zkcoord.spark.readers.ranges import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_source(spark: SparkSession) -> None:
    """Make `format("zkcoord")` known to this session. Raises UsageError if a package is missing."""
    try:
        from zkcoord.spark.readers import kept_clients, python
        from zkcoord.spark.stream import data_source
    except ImportError as error:
        raise UsageError(f"format('zkcoord') needs an extra package: pip install 'zkcoord[spark]' ({error})") from error
    register(spark, data_source.StreamSource, python, kept_clients, data_source)
