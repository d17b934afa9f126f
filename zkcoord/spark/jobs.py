"""Names and cancels Spark's work, on a classic session and through Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zkcoord.spark.ports import Jobs
from zkcoord.spark.progress import BAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


def is_connect(spark: SparkSession) -> bool:
    """True for a remote session, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def shows_bar(spark: SparkSession) -> bool:
    """True when Spark draws its progress bar on this process's terminal. (The bar of a remote session is its
    server's.)"""
    return not is_connect(spark) and spark.sparkContext.getConf().get(BAR) == "true"


def jobs_of(spark: SparkSession) -> Jobs:
    """Return the object that names and cancels jobs in this session."""
    return ConnectJobs(spark) if is_connect(spark) else ClassicJobs(spark)


class ClassicJobs(Jobs):
    """Job tags of the SparkContext. (The session's own tags cancel nothing here.)"""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        """The Spark UI shows the description."""
        before = self._context.getLocalProperty(DESCRIPTION)
        self._context.addJobTag(tag)
        self._context.setLocalProperty(DESCRIPTION, description)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)
            self._context.setLocalProperty(DESCRIPTION, before)

    def cancel(self, tag: str) -> None:
        """End active jobs. A batch that is still planning goes on."""
        self._context.cancelJobsWithTag(tag)


class ConnectJobs(Jobs):
    """Operation tags of the remote session. Its server shows only the tag, and no description."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def running(self, tag: str, description: str) -> Iterator[None]:
        self._spark.addTag(tag)
        try:
            yield
        finally:
            self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.interruptTag(tag)
