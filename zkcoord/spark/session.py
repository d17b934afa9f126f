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
    "spark.ui.showConsoleProgress": "false",  # its bar would overwrite the consumer's own line
    # a consumer can do without these; it saves half of the memory and of the start, and a third of each small batch
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",  # it re-plans shuffles, which a small batch does not have
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",  # Kafka on V2, as the reader needs it
}

LOGGING = Path(__file__).with_name("start_up.properties")
QUIET: Mapping[str, str] = {
    "spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions']} "
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}
"""For `config` in a command for people: Spark logs only errors, also while it starts. Java itself prints a warning,
which `quiet` of `embedded.spark_environment` suppresses."""


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
    Spark reads it there. Without PYSPARK_PYTHON the workers run this Python. `config` overrides all other settings.
    Raises UsageError with the pip command if PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("Spark needs an extra package: pip install 'zkcoord[spark]'") from error
    os.environ.update({"PYSPARK_PYTHON": sys.executable, **environment})
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark looks for an address, and warns about it
    settings = {**SETTINGS, **(config or {})}
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark
