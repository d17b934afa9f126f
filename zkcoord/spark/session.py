"""Makes a small local Spark session for the demo, the tests and the benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zkcoord.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_ENVIRONMENT: Mapping[str, str] = {}

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",  # loopback only
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",  # its bar would run through the consumer's own line
    # what a consumer can do without: half of the memory and of the start, and a third off each small batch
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",  # re-plans shuffles that a small batch does not have
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",  # Kafka on V2, as the reader wants it
}

LOGGING = Path(__file__).with_name("start_up.properties")
QUIET: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions']} "
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}
"""For `config` of a command that people call: Spark logs errors only, also while it starts. Java itself has a warning,
which `quiet` of `embedded.spark_environment` takes away."""


def spark_session(
    app_name: str,
    *,
    jars: Collection[Path | str] = (),
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    master: str = "local[2]",
    log_level: str = "ERROR",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a new session, or the one that this process has already.

    `jars` are those of the Kafka connector. `environment` (JAVA_HOME, PYSPARK_PYTHON) is set in this process, since
    Spark takes it from there; without PYSPARK_PYTHON the workers run this Python. `config` wins over everything.
    UsageError with the pip line when PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("Spark needs an extra package: pip install 'zkcoord[spark]'") from error
    os.environ.update({"PYSPARK_PYTHON": sys.executable, **environment})
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark looks for an address, and warns of it
    settings = {**SETTINGS, **(config or {})}
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark
