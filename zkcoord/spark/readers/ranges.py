"""The driver's part of the reader without a jar: it turns ranges into slices of tasks
(`zkcoord.spark.readers.python`)."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.ports import Reader
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.readers.kafka import POLL_TIMEOUT_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zkcoord.spark.options import Options

LACKING = (
    "Spark's Python workers lack confluent-kafka, which reader='python' needs: pip install 'zkcoord[kafka]' into the "
    "Python that PYSPARK_PYTHON names on every machine of the executors"
)
CORRECT = "correct the bootstrap servers, or where their names lead to on the machines of the executors"
# Sources that each session knows. Spark warns if one is registered twice.
_known: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


class PythonReader(Reader):
    """Reads ranges with confluent-kafka in Python workers. Raises UsageError without pyarrow."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, group: str, options: Options) -> None:
        try:
            from zkcoord.spark.readers import kept_clients
            from zkcoord.spark.readers import python as reader_python
        except ImportError as error:
            raise UsageError(
                f"reader='python' needs an extra package: pip install 'zkcoord[spark]' ({error})"
            ) from error
        self._spark = spark
        self._module = reader_python
        self._cluster: Callable[[], str | None] = lambda: None
        self._most, self._least = options.max_offsets_per_task, options.min_offsets_per_task
        settings, headers = options.kafka().librdkafka, options.include_headers
        self._plan = read_plan(bootstrap_servers, group, settings, headers=headers, timeout_ms=POLL_TIMEOUT_MS)
        register(spark, reader_python.RangesSource, reader_python, kept_clients)

    def of_cluster(self, told: Callable[[], str | None]) -> None:
        self._cluster = told

    def read(self, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return a DataFrame with the tasks of `tasks_of`."""
        tasks = tasks_of(ranges, self._most, self._least)
        plan = json.dumps({**self._plan, "cluster": self._cluster(), "tasks": tasks})
        return self._spark.read.format(self._module.FORMAT).option("plan", plan).load()

    def lacks(self, error: Exception) -> str | None:
        return LACKING if self._module.NO_CLIENT in str(error) else None

    def away(self, error: Exception) -> bool:
        return self._module.SILENT in str(error)

    def elsewhere(self, error: Exception) -> str | None:
        found = re.search(f"{self._module.ELSEWHERE}: [^\n]*", str(error))
        return found and f"{found[0]}. Nothing of this batch is committed; {CORRECT}"


def read_plan(
    bootstrap_servers: str,
    group: str,
    settings: Mapping[str, str],
    *,
    headers: bool,
    timeout_ms: int,
) -> dict[str, Any]:
    """Return what workers need in addition to their slices. Nothing is committed under their group id."""
    reading = {**settings, "bootstrap.servers": bootstrap_servers, "group.id": f"{group}-read"}
    return {"settings": reading, "headers": headers, "timeout_ms": timeout_ms}


def register(spark: SparkSession, source: Any, *modules: ModuleType) -> None:
    """Register a Python data source in this session. Its modules are passed to workers by value, so workers need no
    zkcoord."""
    from pyspark import cloudpickle

    for each in modules:
        cloudpickle.register_pickle_by_value(each)
    known = _known.setdefault(spark, set())
    if source.name() not in known:
        spark.dataSource.register(source)
        known.add(source.name())


def tasks_of(ranges: Iterable[OffsetRange], most: int | None, least: int = 0) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, in order: one range, a part of a range above `most` offsets, or ranges below
    `least`.

    >>> small, large = OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 30)
    >>> [[str(each) for each in task] for task in tasks_of([small, large, small._replace(partition=2)], 20, 10)]
    [['t-1-0-15'], ['t-1-15-30'], ['t-0-0-5', 't-2-0-5']]
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    together: list[OffsetRange] = []
    offsets = 0
    for each in ranges:
        if each.end - each.start >= least:
            tasks += [(part,) for part in split(each, most)]
            continue
        together.append(each)
        offsets += each.end - each.start
        if offsets >= least:
            tasks.append(tuple(together))
            together, offsets = [], 0
    return [*tasks, tuple(together)] if together else tasks


def split(each: OffsetRange, most: int | None) -> list[OffsetRange]:
    """Divide the range into equal parts of at most `most` offsets, in order.

    >>> [str(part) for part in split(OffsetRange("t", 0, 10, 30), 9)]
    ['t-0-10-16', 't-0-16-23', 't-0-23-30']
    """
    count = 1 if most is None else -(-(each.end - each.start) // most)
    size = each.end - each.start
    edges = [each.start + size * number // count for number in range(count + 1)] if count else []
    return [each._replace(start=start, end=end) for start, end in pairwise(edges)]
