"""`python -m zkcoord.embedded` fetches the jars of Kafka and of Spark's connector if absent, and checks them."""

import argparse
import sys

from zkcoord.embedded.artifacts import (
    KAFKA_4_VERSION,
    KAFKA_VERSION,
    OLD_KAFKA_VERSIONS,
    compiler_jars,
    connector_jars,
    kafka_jars,
    kafka_tools_jars,
)
from zkcoord.errors import ZkcoordError

EXPLAINED = """Fetches the jars of Kafka and of Spark's connector, if they are absent, and checks their sums. They are
kept in the folder that ZKCOORD_CACHE names (~/.cache/zkcoord). The demo and the tests fetch them by themselves: this is
for machines that will be without a network later. Exit code 5: they cannot be fetched."""


def main() -> int:
    """Fetch; the exit code is the error's."""
    parser = argparse.ArgumentParser(prog="python -m zkcoord.embedded", description=EXPLAINED)
    parser.add_argument(
        "--old",
        action="store_true",
        help="Fetch also what tests alone use: old Kafka versions, Kafka's tools, and a Java compiler.",
    )
    old = parser.parse_args().old
    try:
        kafka_jars()
        kafka_jars(KAFKA_4_VERSION)
        connector_jars()
        if old:
            compiler_jars()
            for version in (KAFKA_VERSION, KAFKA_4_VERSION):
                kafka_tools_jars(version)
            for version in OLD_KAFKA_VERSIONS:
                kafka_jars(version)
    except ZkcoordError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
