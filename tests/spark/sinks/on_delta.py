"""Spark's own Delta, as a program: `python -m tests.spark.sinks.on_delta FOLDER`. For each line of SQL it prints its
rows, as JSON."""

from __future__ import annotations

import json
import sys

from tests.spark.sinks.on_engines import SETTINGS
from zkcoord.embedded import delta_jars
from zkcoord.spark import spark_session


def main(folder: str) -> None:
    """Until the input ends."""
    settings = {name: value for name, value in SETTINGS.items() if "iceberg" not in name}
    local = {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    spark = spark_session("zkcoord delta", jars=delta_jars(), log_level="OFF", config={**settings, **local})
    for line in sys.stdin:
        rows = spark.sql(line).collect()
        print(json.dumps([[*row] for row in rows], default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
