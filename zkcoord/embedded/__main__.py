"""`python -m zkcoord.embedded` fetches the jars of Kafka and of Spark's connector if absent, and checks them."""

import sys

from zkcoord.embedded.artifacts import connector_jars, kafka_jars
from zkcoord.errors import ZkcoordError


def main() -> int:
    """Fetch; the exit code is the error's."""
    try:
        kafka_jars()
        connector_jars()
    except ZkcoordError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
