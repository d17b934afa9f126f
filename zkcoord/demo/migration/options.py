"""Constants of the demo of a migration: the programs' names, and settings of the old consumers."""

from __future__ import annotations

from zkcoord.demo.options import Options

OLD_VERSION = "1.1.1"
RETRIES, BACKOFF_MS = 4, 2_000  # the old consumers' defaults: they try for 8 s to claim their partitions
AUTO_COMMIT_MS = 1_000  # of the old consumers; their default is a minute
OLD, OURS, SPARK = ("a", "b", "c"), ("x", "y"), "z"

PARTITIONS = 12  # can be divided by two, three and four members into equal shares
RATE = 500  # records a second; no more, since an old consumer prints a line for each record

MIGRATION = Options(migration=True, partitions=PARTITIONS, rate=RATE)
