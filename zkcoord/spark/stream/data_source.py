"""The streaming source as Spark sees it. Runs in Spark's Python processes, for planning and for reading.

Spark hands it over by value, as `zkcoord.spark.readers.python`, which it reads with. A worker that reads needs
confluent-kafka and pyarrow, not zkcoord, so `read` uses nothing but these two modules. The process that plans (a child
of the JVM, beside the driver) imports zkcoord inside its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from zkcoord.spark.readers.python import HEADERS, SCHEMA, Slices, as_task, read_in_worker

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, a source is not told that its query shall end

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in that Spark does not know."""


FORMAT = "zkcoord"


class StreamSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("zkcoord")`; `zkcoord.spark.stream.options` has the options."""

    @classmethod
    def name(cls) -> str:
        """As Spark asks for it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source. Raises zkcoord's UsageError for wrong options."""
        from zkcoord.spark.stream.options import stream_options

        return SCHEMA + (HEADERS if stream_options(self.options).options.include_headers else "")

    def streamReader(self, schema: Any) -> StreamReader:
        """As Spark asks for it."""
        from zkcoord.spark.stream.options import plan_of

        return StreamReader(dict(self.options), plan_of(self.options))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark makes several. One of them plans, and is a member of the group while the query runs; the others only
    `read`."""

    def __init__(self, options: Mapping[str, str], plan: Mapping[str, Any]) -> None:
        """Keeps values only: Spark sends it to the workers."""
        self._options = options
        self._plan = plan
        self._source: Any = None

    def _planning(self) -> Any:
        if self._source is None:
            from zkcoord.spark.stream.options import stream_options
            from zkcoord.spark.stream.source import Source, leave_at_sigterm

            self._source = Source(stream_options(self._options))
            leave_at_sigterm()
        return self._source

    def initialOffset(self) -> Mapping[str, Any]:
        """Return the empty offset: the group says where to begin."""
        from zkcoord.spark.stream.offsets import EMPTY

        return EMPTY

    def latestOffset(self, start: Any = None, limit: Any = None) -> Mapping[str, Any]:
        """Plan the next batch. Spark before 4.2 gives no argument; `maxOffsetsPerTrigger` is the limit."""
        found: Mapping[str, Any] = self._planning().latest(start)
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end with what is there now."""
        self._planning().end_at_present()

    def reportLatestOffset(self) -> Mapping[str, Any] | None:
        """Return the ends of the logs."""
        found: Mapping[str, Any] | None = self._planning().log_ends()
        return found

    def partitions(self, start: Any, end: Any) -> Sequence[Slices]:
        """Return one task for each range, several for a large one, one for several small ones."""
        return [as_task(each) for each in self._planning().tasks(start, end)]

    def read(self, partition: Slices) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        return read_in_worker(self._plan, partition)

    def commit(self, end: Any) -> None:
        """Do nothing: Spark calls it too late. `latestOffset` commits."""

    def stop(self) -> None:
        """Leave the group."""
        if self._source is not None:
            from zkcoord.spark.stream.source import finish_in_peace

            finish_in_peace()
            self._source.stop()
