"""A Spark session without Kafka, for what only Spark shows of a sink."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark_java: None) -> Iterator[SparkSession]:
    from zkcoord.spark import spark_session

    session = spark_session("zkcoord sinks", log_level="OFF")
    yield session
    session.stop()


@pytest.fixture
def sockets_collected() -> Iterator[None]:
    """The sockets that PySpark leaves are collected here, where their warning is known."""
    yield
    gc.collect()
