"""`python -m zkcoord.embedded` fetches the jars of Kafka and of Spark's connector if absent, and checks them."""

import argparse
import sys

from zkcoord.embedded.artifacts import connector_jars, kafka_jars
from zkcoord.errors import ZkcoordError

EXPLAINED = """Fetches the jars of Kafka and of Spark's connector, if they are absent, and checks their sums. They are
kept in the folder that ZKCOORD_CACHE names (~/.cache/zkcoord). The demo and the tests fetch them by themselves: this is
for machines that will be without a network later. Exit code 5: they cannot be fetched."""


def main() -> int:
    """Fetch; the exit code is the error's."""
    parser = argparse.ArgumentParser(prog="python -m zkcoord.embedded", description=EXPLAINED)
    parser.parse_args()
    try:
        kafka_jars()
        connector_jars()
    except ZkcoordError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
