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
SHARED_BELOW = "minRecordsPerPartition"  # zkcoord's option, not the connector's
# how long a task waits for a record that must exist by the log's end; Spark's own default is 120 s
POLL_TIMEOUT_MS = 20_000
MISSING = re.compile("Failed to find data source: kafka|KAFKA_DATA_SOURCE_NOT_ENABLED")
# Java's texts for classes that were compiled against other versions: the error's name, and the class or method
MISFIT = re.compile(
    r"(?:NoClassDefFoundError|ClassNotFoundException|ExceptionInInitializerError|NoSuchMethodError|NoSuchFieldError"
    r"|AbstractMethodError|IncompatibleClassChangeError|ServiceConfigurationError)\b[^\n]*"
)
# texts of Java's client, and of the connector, when no broker answers, or when a broker has just started and does not
# know its topics yet
AWAY = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|BrokerNotAvailable|LeaderNotAvailable"
    r"|UnknownTopicOrPartition)Exception"
    r"|TimeoutException: Cannot fetch record for offset"
)
# it logs ten lines about kafka.group.id at every batch
LOUD_LOGGER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def connector_coordinate(spark_version: str) -> str:
    """Return the connector for this Spark, as Maven and `spark.jars.packages` name it. The two versions must be equal.

    >>> connector_coordinate("4.0.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


class KafkaReader(Reader):
    """Reads ranges with `spark.read.format("kafka")`.

    It removes `kafka` from the session's list of V1 sources, which is a setting of the SQL session. So the session's
    other batch reads and writes of Kafka use the faster V2, too.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        """`options` are those of `connector_options`. Only one thread may read at a time."""
        self._spark = spark
        self._options = {key: value for key, value in options.items() if key != SHARED_BELOW}
        self._least = int(options.get(SHARED_BELOW, 0))
        self._kept: DataFrameReader | None = None
        _use_v2(spark)
        _quiet(spark)

    def read(self, ranges: Collection[OffsetRange]) -> DataFrame:
        """Return a DataFrame with one task for each range; a range above `max_offsets_per_task` has several tasks, and
        ranges below `min_offsets_per_task` share tasks."""
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
        """Return Spark's reader with the constant options, each of which takes a call to Java. In a classic session the
        reader is kept, since its `load` copies the options; in a remote session DataFrames share the options with their
        reader."""
        kept = self._kept or self._spark.read.format("kafka").options(**self._options)
        self._kept = None if is_connect(self._spark) else kept
        return kept

    def lacks(self, error: Exception) -> str | None:
        return how_to_add(self._spark.version, error) if is_unusable(error) else None

    def away(self, error: Exception) -> bool:
        return AWAY.search(str(error)) is not None


def connector_options(bootstrap_servers: str, group: str, options: Options) -> dict[str, str]:
    """Return the options of `KafkaReader`, which are the same for every batch: the connector's, and the limit below
    which ranges share tasks."""
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

    Executors keep a consumer for each (group id, partition), and refuse one with other settings. So the group id for
    reading is fixed, and contains a hash of the settings. It is not the group's own id: nothing is committed under it.
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
    """True if Spark failed because its Kafka connector is missing, incomplete, or for another version of Spark.

    A wrong version may only show later: at `load`, when a batch is planned, or in its tasks. Every such trace names the
    connector.

    >>> is_unusable(ValueError("Failed to find data source: kafka. Please deploy ..."))
    True
    >>> is_unusable(ValueError("java.lang.NoSuchMethodError: my.Library.call()")), is_unusable(ValueError("kafka"))
    (False, False)
    """
    text = str(error)
    return MISSING.search(text) is not None or (MISFIT.search(text) is not None and "kafka" in text.lower())


def how_to_add(spark_version: str, error: Exception) -> str:
    """Tell a person what Java reported about the connector, and how to add the right one."""
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
    """Silence a logger, only in a classic session: a Connect server's log belongs to its operator."""
    if is_connect(spark):
        return
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr,unused-ignore]
    log4j.core.config.Configurator.setLevel(LOUD_LOGGER, log4j.Level.ERROR)
