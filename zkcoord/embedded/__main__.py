"""`python -m zkcoord.embedded` fetches the jars of Kafka and of Spark's connector if they are absent, checks them, and
makes the archives of the servers' classes."""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from zkcoord.embedded.artifacts import (
    COMPILER_VERSION,
    KAFKA_4_VERSION,
    KAFKA_VERSION,
    OLD_KAFKA_VERSIONS,
    Bundle,
    ensure,
    fetch_with_ivy,
    load_bundle,
    spark_version,
)
from zkcoord.embedded.class_archives import make_archives
from zkcoord.embedded.java import cache_dir
from zkcoord.errors import ZkcoordError

EXPLAINED = """Fetches the jars of Kafka and of Spark's connector, if they are absent, and checks their sums. Then it
starts each server once and keeps an archive of its classes: with that a server starts in half the time. All of it is
kept in the folder that ZKCOORD_CACHE names (~/.cache/zkcoord). The demo and the tests fetch the jars by themselves:
this is for machines that will be without a network later, or that start servers often. Exit code 5: something cannot be
fetched, or a server does not start."""
AT_ONCE = 3
"""The number of fetches that run in parallel: each mostly waits for the repository."""


def bundles(old: bool) -> tuple[Bundle, ...]:
    """The bundles to fetch, the largest first."""
    rows = [("kafka", KAFKA_VERSION), ("kafka", KAFKA_4_VERSION)]
    if old:
        rows += [("kafka", version) for version in reversed(OLD_KAFKA_VERSIONS)]
    rows.append(("spark-kafka-connector", spark_version()))
    if old:
        rows.append(("java-compiler", COMPILER_VERSION))
        rows += [("kafka-tools", version) for version in (KAFKA_VERSION, KAFKA_4_VERSION)]
    return tuple(load_bundle(name, version) for name, version in rows)


def main() -> int:
    """Fetch; return the exit code: 0, or that of the error."""
    parser = argparse.ArgumentParser(prog="python -m zkcoord.embedded", description=EXPLAINED)
    parser.add_argument(
        "--old",
        action="store_true",
        help="Fetch also what tests alone use: old Kafka versions, Kafka's tools, and a Java compiler.",
    )
    old = parser.parse_args().old
    try:
        cache, fetch = cache_dir(), partial(fetch_with_ivy, rewrites=False)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda bundle: ensure(bundle, cache, fetch), bundles(old)):
                pass
            make_archives((KAFKA_VERSION, KAFKA_4_VERSION, *(OLD_KAFKA_VERSIONS if old else ())), pool)
    except ZkcoordError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
