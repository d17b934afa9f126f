"""DuckDB's own reader of Delta tables, `delta_scan`: an extension, which pip fetches with its DuckDB into a folder of
their own below `ZKCOORD_CACHE`. (PyPI has none for the DuckDB that the other tests read with.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.spark.sinks.installed_once import folder_for, install_once, is_installed, run

WHEELS = ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5")
ANSWER_S = 120
PROGRAM = """
import json, sys
from importlib.resources import files
import duckdb
extension = files("duckdb_extension_delta") / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
duckdb.execute(f"LOAD '{extension}'")
duckdb.execute("SET TimeZone = 'UTC'")
print(json.dumps([duckdb.sql(each).fetchall() for each in json.load(sys.stdin)]))
"""


def delta_scan() -> Path:
    """Return the folder, which is filled if need be. UnavailableError says why it cannot be."""
    folder = folder_for("delta-scan", "\n".join((*WHEELS, sys.version)).encode())
    if not is_installed(folder):
        pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheels_only = ["--only-binary", ":all:", "--no-deps"]
        install_once(folder, lambda _: run("delta_scan", [*pip, *wheels_only, "--target", folder, *WHEELS]))
    return folder


def by_delta_scan(questions: Sequence[str]) -> list[list[list[Any]]]:
    """Return the rows that answer each question."""
    environment = {**os.environ, "PYTHONPATH": str(delta_scan())}
    command = [sys.executable, "-c", PROGRAM]
    told = json.dumps(questions)
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=ANSWER_S, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return [*json.loads(done.stdout)]
