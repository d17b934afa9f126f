"""The Java of the tests' Sparks. It compiles quickly, and has Spark's classes in an archive (JEP 350).

With the archive, a Spark needs half the processor time until it has answered its first queries. The first Spark makes
the archive when it ends. The archive stays in the environment in which PySpark is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

from zkcoord.embedded.java import QUICK, pyspark_jars

PREPARES_S = 300  # a quarter of a minute on a quiet machine
ARCHIVED = "-Xlog:disable"  # a Spark with another class path cannot use the archive: it must not print that
WRAPPER = """#!/bin/sh
case " $* " in *" org.apache.spark.deploy.SparkSubmit "*) set -- {options} "$@" ;; esac
exec {java} {quick} "$@"
"""
FIRST_SPARK = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
folder = __import__("sys").argv[1]
rows = spark.createDataFrame([(n, str(n).encode()) for n in range(9)], "n int, value binary")
rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(f"{folder}/table")
spark.read.parquet(f"{folder}/table").groupBy("n").count().collect()
stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, _: batch.count())
stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(once=True).start().awaitTermination()
spark.stop()
"""


def quick_java_home(java: Path, folder: Path) -> Path:
    """Make a folder that Spark can use as JAVA_HOME instead of the one with this `java`."""
    archive = _archive(java, folder)
    return _wrapped(java, folder / "java-home", f"-XX:SharedArchiveFile={archive}")


def _archive(java: Path, folder: Path) -> Path:
    """Return the archive for this Java and this PySpark. The first process that asks makes it, and others wait."""
    jars = pyspark_jars()
    known_by = [(str(path), path.stat().st_mtime_ns) for path in (java.resolve(), jars)]
    archive = Path(sys.prefix) / f"spark-{hashlib.sha256(repr(known_by).encode()).hexdigest()[:8]}.jsa"
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            draft = folder / "draft.jsa"  # Java crashes with an incomplete archive
            home = _wrapped(java, folder / "making", f"-XX:ArchiveClassesAtExit={draft}")
            subprocess.run(
                [sys.executable, "-c", FIRST_SPARK, str(folder / "first")],
                env={**os.environ, "JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
                check=True,
                capture_output=True,  # until the output ends: Java ends, with all written, after its starter
                timeout=PREPARES_S,
            )
            place = archive.with_suffix(".draft")
            place.write_bytes(draft.read_bytes())
            place.replace(archive)
    return archive


def _wrapped(java: Path, home: Path, option: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    words = {"java": shlex.quote(str(java)), "quick": " ".join(QUICK), "options": f"{ARCHIVED} {shlex.quote(option)}"}
    script.write_text(WRAPPER.format(**words), encoding="utf-8")
    script.chmod(0o755)
    return home
