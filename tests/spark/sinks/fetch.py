"""Installs the programs that the tests of sinks need, all at the same time: `python -m tests.spark.sinks.fetch`.

The tests install what is missing, too, but one after the other, and nothing else is done meanwhile. So `scripts/test`
calls this beside its checks. What cannot be installed is told by the tests that need it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.spark.sinks.azure_server import azurite
from tests.spark.sinks.delta_scan import delta_scan
from tests.spark.sinks.gcs_server import fake_gcs_server
from tests.spark.sinks.hdfs_server import libhdfs
from tests.spark.sinks.s3_server import moto_python
from zkcoord.embedded.artifacts import hadoop_jars
from zkcoord.errors import ZkcoordError

PROGRAMS: tuple[Callable[[], object], ...] = (moto_python, azurite, fake_gcs_server, delta_scan, libhdfs, hadoop_jars)


def main() -> None:
    """Install what is missing."""

    def ensured(program: Callable[[], object]) -> None:
        with suppress(ZkcoordError):
            program()

    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        list(pool.map(ensured, PROGRAMS))


if __name__ == "__main__":
    main()
