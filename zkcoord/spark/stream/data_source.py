"""The streaming source's classes for Spark. They run in Spark's Python processes, for planning and for reading.

Spark passes this module by value, together with `zkcoord.spark.readers.python`, which it uses for reading. A worker
that reads needs confluent-kafka and pyarrow, but not zkcoord, so `read` uses only these two modules. The process that
plans (a child of the JVM, next to the driver) imports zkcoord inside its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from zkcoord.spark.readers.python import HEADERS, SCHEMA, as_task, read_in_worker

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, a source is not told that its query shall end

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for older Spark versions, which ignore it."""


FORMAT = "zkcoord"
RANGES_SCHEMA = (  # with the option rows=ranges; `reader` is JSON, without credentials
    "topic string, partition int, from_offset bigint, until_offset bigint, incarnation int, group_id string, "
    "generation int, replayed boolean, reader string"
)
Told = Mapping[str, Any]  # of a batch's ranges: `rows` of RANGES_SCHEMA, and the reader's `secrets`, in none of them


class StreamSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("zkcoord")`; `zkcoord.spark.stream.options` has the options."""

    @classmethod
    def name(cls) -> str:
        """Spark calls it."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source. Raises zkcoord's UsageError for wrong options."""
        from zkcoord.spark.stream.options import stream_options

        chosen = stream_options(self.options)
        return RANGES_SCHEMA if chosen.ranges else SCHEMA + (HEADERS if chosen.options.include_headers else "")

    def streamReader(self, schema: Any) -> StreamReader:
        """Spark calls it."""
        from zkcoord.spark.stream.options import plan_of

        return StreamReader(dict(self.options), plan_of(self.options))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark makes several objects. One of them plans, and is a member of the group while the query runs. The others
    only `read`."""

    def __init__(self, options: Mapping[str, str], plan: Mapping[str, Any]) -> None:
        """Stores only values, since Spark sends the object to the workers."""
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
        """Return the empty offset: the group's offsets say where to begin."""
        from zkcoord.spark.stream.offsets import EMPTY

        return EMPTY

    def latestOffset(self, start: Any = None, limit: Any = None) -> Mapping[str, Any]:
        """Plan the next batch. Spark before 4.2 passes no argument. `maxOffsetsPerTrigger` is the limit."""
        found: Mapping[str, Any] = self._planning().latest(start)
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end with the present records."""
        self._planning().end_at_present()

    def reportLatestOffset(self) -> Mapping[str, Any] | None:
        """Return the ends of the logs."""
        found: Mapping[str, Any] | None = self._planning().log_ends()
        return found

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """Return one task for each range, several for a large range, and one for several small ones.

        If rows are ranges, return one partition with `Told`: the driver takes it from the plan, and no task runs. (The
        class is PySpark's own, since a class of zkcoord would be passed by value, with all of this module.)
        """
        tasks = self._planning().tasks(start, end)
        if "secrets" not in self._plan:
            return [as_task(each, self._planning().cluster_id) for each in tasks]
        replayed = bool(end.get("replayed", False)) or self._planning().runs_again(end)
        batch = end.get("group", ""), int(end.get("generation", 0)), replayed
        said = *batch, self._plan["reader"]
        rows = [(*each, *said) for task in tasks for each in task]
        return [InputPartition({"rows": rows, "secrets": self._plan["secrets"]})] if rows else []

    def read(self, partition: Any) -> Iterator[Any]:
        """Read the records of one task, or the rows with ranges."""
        return iter(partition.value["rows"]) if "secrets" in self._plan else read_in_worker(self._plan, partition)

    def commit(self, end: Any) -> None:
        """Do nothing: Spark calls it too late. `latestOffset` commits."""

    def stop(self) -> None:
        """Leave the group."""
        if self._source is not None:
            from zkcoord.spark.stream.source import finish_in_peace

            finish_in_peace()
            self._source.stop()
