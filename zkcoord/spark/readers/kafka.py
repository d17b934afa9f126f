"""Reads with Spark's own Kafka connector (a jar), on its V2 path."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from zkcoord.errors import UsageError
from zkcoord.spark.jobs import is_connect
from zkcoord.spark.ports import Reader
from zkcoord.spark.ranges import OffsetRange, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from zkcoord.spark.options import Options

V1_SOURCES = "spark.sql.sources.useV1SourceList"
SHARED_BELOW = "minRecordsPerPartition"  # ours, not the connector's
POLL_TIMEOUT_MS = 20_000  # how long a task waits for a record that the log's end promised; Spark's own default is 120 s
MISSING = re.compile("Failed to find data source: kafka|KAFKA_DATA_SOURCE_NOT_ENABLED")
MISFIT = re.compile(  # what Java says of classes that were compiled against others: the name of its error, and of what
    r"(?:NoClassDefFoundError|ClassNotFoundException|ExceptionInInitializerError|NoSuchMethodError|NoSuchFieldError"
    r"|AbstractMethodError|IncompatibleClassChangeError|ServiceConfigurationError)\b[^\n]*"
)
AWAY = re.compile(  # what Java's client, and the connector over it, say when no broker answers, or when one has just
    # started that does not know its topics yet
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|BrokerNotAvailable|LeaderNotAvailable"
    r"|UnknownTopicOrPartition)Exception"
    r"|TimeoutException: Cannot fetch record for offset"
)
LOUD_LOGGER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"  # ten lines about kafka.group.id at every batch


def connector_coordinate(spark_version: str) -> str:
    """Return the connector for this Spark, as Maven and `spark.jars.packages` name it. Versions must be equal.

    >>> connector_coordinate("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


class KafkaReader(Reader):
    """Reads ranges with `spark.read.format("kafka")`.

    Takes `kafka` out of the session's list of V1 sources, which is a setting of the SQL session: its other batch reads
    and writes of Kafka use the faster V2 too.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        """`options` are those of `connector_options`. One thread reads at a time."""
        self._spark = spark
        self._options = {key: value for key, value in options.items() if key != SHARED_BELOW}
        self._least = int(options.get(SHARED_BELOW, 0))
        self._kept: DataFrameReader | None = None
        _use_v2(spark)
        _quiet(spark)

    def read(self, ranges: Collection[OffsetRange]) -> DataFrame:
        """One task for each range; several for one above `max_offsets_per_task`, fewer for those below
        `min_offsets_per_task`."""
        small = [each for each in ranges if each.end - each.start < self._least]
        if len(small) < 2:
            return self._load(ranges)
        together = self._load(small).coalesce(max(1, offsets_in(small) // self._least))
        large = [each for each in ranges if each.end - each.start >= self._least]
        return self._load(large).union(together) if large else together

    def _load(self, ranges: Collection[OffsetRange]) -> DataFrame:
        try:
            return self._with_options().options(**assignment(ranges)).load()
        except Exception as error:
            if not is_unusable(error):
                raise
            raise UsageError(how_to_add(self._spark.version, error)) from error

    def _with_options(self) -> DataFrameReader:
        """Return Spark's reader with the options that stay, each of which is a call of Java's. A classic session's is
        kept, since its `load` copies the options; a remote one's DataFrames share them with their reader."""
        kept = self._kept or self._spark.read.format("kafka").options(**self._options)
        self._kept = None if is_connect(self._spark) else kept
        return kept

    def lacks(self, error: Exception) -> str | None:
        return how_to_add(self._spark.version, error) if is_unusable(error) else None

    def away(self, error: Exception) -> bool:
        return AWAY.search(str(error)) is not None


def connector_options(bootstrap_servers: str, group: str, options: Options) -> dict[str, str]:
    """Return the options of `KafkaReader`, which are the same for every batch: the connector's, and when ranges share
    tasks."""
    found = reader_options(bootstrap_servers, group, options.kafka().reader, options.include_headers)
    if options.max_offsets_per_task is not None:
        found["maxRecordsPerPartition"] = str(options.max_offsets_per_task)
    if options.min_offsets_per_task:
        found[SHARED_BELOW] = str(options.min_offsets_per_task)
    return found


def reader_options(
    bootstrap_servers: str, group: str, settings: Mapping[str, str], include_headers: bool
) -> dict[str, str]:
    """Return the options that are the same for every batch.

    Executors keep a consumer for each (group id, partition) and refuse one with other settings. So the reading group id
    is fixed and carries a hash of the settings. It is not the group's own: nothing is committed under it.
    """
    options = {f"kafka.{key}": value for key, value in sorted(settings.items())}
    options["kafka.bootstrap.servers"] = bootstrap_servers
    options["includeHeaders"] = str(include_headers).lower()
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]
    options["kafka.group.id"] = f"{group}-read-{digest}"
    options["kafkaConsumer.pollTimeoutMs"] = str(POLL_TIMEOUT_MS)
    return options


def assignment(ranges: Collection[OffsetRange]) -> dict[str, str]:
    """Return the options that name exactly these ranges.

    >>> assignment([OffsetRange("t", 3, 7, 507)])["startingOffsets"]
    '{"t": {"3": 7}}'
    """
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in ranges:
        assign.setdefault(each.topic, []).append(each.partition)
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    return {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


def is_unusable(error: Exception) -> bool:
    """True if Spark failed because its Kafka connector is absent, incomplete, or for another version of Spark.

    A misfit shows late: at `load`, when a batch is planned, or in its tasks. Every such trace names the connector.

    >>> is_unusable(ValueError("Failed to find data source: kafka. Please deploy ..."))
    True
    >>> is_unusable(ValueError("java.lang.NoSuchMethodError: my.Library.call()")), is_unusable(ValueError("kafka"))
    (False, False)
    """
    text = str(error)
    return MISSING.search(text) is not None or (MISFIT.search(text) is not None and "kafka" in text.lower())


def how_to_add(spark_version: str, error: Exception) -> str:
    """Tell a person what Java said of the connector, and how to add the right one."""
    coordinate = connector_coordinate(spark_version)
    said = MISFIT.search(str(error))
    return (
        f"Spark has no usable Kafka connector{f' ({said[0].strip()})' if said else ''}: it needs {coordinate} with "
        f"what that depends on; its version must be Spark's ({spark_version}). Add it when the session is built: "
        f'SparkSession.builder.config("spark.jars.packages", "{coordinate}"), or spark-submit --packages {coordinate}; '
        "without network give the jars as spark.jars."
    )


def _use_v2(spark: SparkSession) -> None:
    listed = (spark.conf.get(V1_SOURCES) or "").split(",")
    kept = ",".join(each for each in listed if each.strip() != "kafka")
    if kept != ",".join(listed):
        spark.conf.set(V1_SOURCES, kept)


def _quiet(spark: SparkSession) -> None:
    """Classic only: a Connect server's log is its operator's."""
    if is_connect(spark):
        return
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr,unused-ignore]
    log4j.core.config.Configurator.setLevel(LOUD_LOGGER, log4j.Level.ERROR)
