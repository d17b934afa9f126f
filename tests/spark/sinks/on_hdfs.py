"""Programs that speak to HDFS: `python -m tests.spark.sinks.on_hdfs WHAT ...`. Arrow starts a JVM in them.

    write URI GENERATION RANGES    ranges, as through Spark Connect; waits for a line when its tasks have written; it
                                   dies if a rename removes another program's file
    spark URI RANGES               the same ranges twice, by a session of Spark; prints what Spark reads
    read                           for each line, [folder, where to copy its files]: prints the files below the folder

RANGES: JSON of [topic, partition, start, end].
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.spark.sinks.frames import Frame, Remote, TwoSteps, batch, records
from zkcoord.embedded import spark_environment
from zkcoord.spark import spark_session, write_parquet_ranges
from zkcoord.spark.ranges import OffsetRange
from zkcoord.spark.sinks import files_in_stores
from zkcoord.spark.sinks.stores import open_store

WRITTEN = "the tasks have written"
COLUMNS = "topic string, partition int, offset bigint, n bigint"


def wait() -> None:
    """Say where it is, and wait for a word."""
    print(WRITTEN, flush=True)
    sys.stdin.readline()


def write(uri: str, generation: str, ranges: str) -> None:
    """Write them, replayed unless it is the first generation; print the files."""
    wanted = [OffsetRange(*each) for each in json.loads(ranges)]
    of = replace(batch(*wanted, replayed=generation != "1"), generation=int(generation))
    frame = Frame.of(*wanted, on_write=wait)
    frame.sparkSession = Remote()
    opened = files_in_stores._opened
    files_in_stores._opened = lambda *arguments: TwoSteps(opened(*arguments), os.abort)
    print(json.dumps(write_parquet_ranges(frame, of, uri)), flush=True)  # type: ignore[arg-type]


def spark(uri: str, ranges: str) -> None:
    """Write them in two generations; print the files, and the rows."""
    wanted = [OffsetRange(*each) for each in json.loads(ranges)]
    of_arrow = os.environ["JAVA_HOME"]
    os.environ |= spark_environment({})
    session = spark_session("zkcoord hdfs", log_level="OFF", config={"spark.executorEnv.JAVA_HOME": of_arrow})
    os.environ["JAVA_HOME"] = of_arrow
    frame = session.createDataFrame(records(*wanted), COLUMNS).repartition(2, "topic", "partition")
    for generation in (1, 2):
        of = replace(batch(*wanted, replayed=generation > 1), generation=generation)
        found = write_parquet_ranges(frame, of, uri)
    rows = session.read.parquet(uri).select("topic", "partition", "offset", "n").orderBy("partition", "offset")
    print(json.dumps([found, [[*row] for row in rows.collect()]]), flush=True)
    session.stop()


def read() -> None:
    """Until the input ends."""
    from pyarrow import fs

    for line in sys.stdin:
        folder, copy = json.loads(line)
        store = open_store(folder, {})
        selected = store.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
        files = sorted(each.path for each in selected if each.is_file)
        for each in files:
            if copy is not None and "/" not in each:
                with store.open_input_stream(each) as source:
                    (Path(copy) / each).write_bytes(source.read())
        print(json.dumps(files), flush=True)


PROGRAMS: dict[str, Callable[..., None]] = {"write": write, "spark": spark, "read": read}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
