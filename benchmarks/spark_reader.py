"""What of the Python reader's speed outside Spark is left in Spark: one range, one core for tasks.

    python benchmarks/spark_reader.py [--quick] [--profile] [--json FILE]

Embedded Kafka, one partition of 100-byte records, Spark `local[1]`. In each round the same range is read twice: *raw*,
by the fetch function (`zkcoord.spark.readers.python.read_slices`) in this process, from making its consumer to closing
it; *spark*, by a DataFrame of that one range, from making the DataFrame to the end of its write to nowhere. The first
round does not count. Compared are medians. A tiny batch of 8 ranges tells the fixed cost (no goal: Spark starts a task
for each, and three planners in Python). Raw times: benchmarks/out/spark_reader_raw.json.

Then a profile: where the time of 100,000 rows goes, step by step, with eight tasks and with one (`reader_profile.py`).
`--profile` is this alone. Its measures have no goal.

Ends with one line a measure: `measure value goal ok|short`; exit code 0 when all hold. `python_reader` is raw's time
over spark's for the large range.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import reader_profile
from kafka_log import TOPIC, fill
from spark_bench import conclude
from verdict import Measure, arguments

from zkcoord.embedded import EmbeddedKafka, EmbeddedZooKeeper, spark_environment
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.spark import OffsetRange, spark_session
from zkcoord.spark.options import Options
from zkcoord.spark.readers.python import Slice, read_slices
from zkcoord.spark.readers.ranges import PythonReader

GOAL = 0.8  # the raw reader's time over Spark's, at least
FULL, QUICK = (4_000_000, 7), (2_000_000, 3)  # rows of the range, rounds that count
PROFILED, PROFILED_QUICK = 20, 3  # rounds of the profile that count
TINY = tuple(OffsetRange(TOPIC, 0, 10 * number, 10 * number + 10) for number in range(8))


def timed(call: Callable[[], object]) -> float:
    """Return the milliseconds that the call takes."""
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def measure(bootstrap_servers: str, reader: PythonReader, rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each read."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "raw"}

    def raw() -> None:
        found = sum(batch.num_rows for batch in read_slices(settings, [Slice(TOPIC, 0, 0, rows)]))
        assert found == rows, found

    def in_spark(ranges: tuple[OffsetRange, ...]) -> None:
        reader.read(ranges).write.format("noop").mode("append").save()

    times: dict[str, list[float]] = {"raw": [], "spark": [], "tiny": []}
    for turn in range(rounds + 1):
        found = {
            "raw": timed(raw),
            "spark": timed(lambda: in_spark((OffsetRange(TOPIC, 0, 0, rows),))),
            "tiny": timed(lambda: in_spark(TINY)),
        }
        rates = ", ".join(f"{name} {rows / found[name]:,.0f} thousand rows/s" for name in ("raw", "spark"))
        print(f"round {turn}: {rates}, tiny {found['tiny']:.0f} ms", file=sys.stderr)
        for name, took in found.items() if turn else ():
            times[name].append(took)
    return times


def against_raw(bootstrap_servers: str, reader: PythonReader, rows: int, rounds: int) -> tuple[object, list[Measure]]:
    """Measure, and print the medians; return the milliseconds of each read, and the measure."""
    times = measure(bootstrap_servers, reader, rows, rounds)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name in ("raw", "spark"):
        print(f"{name:<8}{medians[name]:>8.0f} ms {rows / medians[name]:>10,.0f} thousand rows/s")
    print(f"tiny    {medians['tiny']:>8.0f} ms for 8 ranges of 10 rows")
    return times, [Measure("python_reader", medians["raw"] / medians["spark"], GOAL)]


def main() -> int:
    """The program."""
    parser = arguments(__doc__)
    parser.add_argument("--profile", action="store_true", help="nothing but the profile")
    chosen = parser.parse_args()
    rows, rounds = QUICK if chosen.quick else FULL
    raw: dict[str, object] = {}
    measures: list[Measure] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkcoord-bench-")))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(fsync=False, jvm_options=LONG_LIVED))
        servers = stack.enter_context(
            EmbeddedKafka(zookeeper.hosts, heap="1g", jvm_options=LONG_LIVED)
        ).bootstrap_servers
        fill(servers, 1, reader_profile.ROWS if chosen.profile else rows)
        spark = spark_session("zkcoord benchmark", environment=spark_environment(), log_level="OFF", master="local[1]")
        stack.callback(spark.stop)
        if not chosen.profile:
            reader = PythonReader(spark, servers, "bench", Options(reader="python"))
            raw["ms"], measures = against_raw(servers, reader, rows, rounds)
        steps = reader_profile.profile(spark, servers, PROFILED_QUICK if chosen.quick else PROFILED, scratch)
    raw["profile_ms"] = steps
    typical = reader_profile.medians(steps)
    print(reader_profile.table(typical))
    return conclude("spark_reader", raw, [*measures, *reader_profile.measures(typical)], chosen.json)


if __name__ == "__main__":
    sys.exit(main())
