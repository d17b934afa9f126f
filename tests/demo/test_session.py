"""A demo consumer's Spark, really started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

START = """
import sys
from pathlib import Path
from zkcoord.demo.consumer import end, session
from zkcoord.demo.options import Places
places = Places(Path(sys.argv[1]))
places.scratch.mkdir()
spark = session("a", places)
print("rows:", spark.range(5).count())
end(spark)
"""


def test_it_starts_for_a_user_without_a_home_and_writes_below_the_demos_folder(tmp_path: Path) -> None:
    """Java calls the home `?` of a user who has none, or whose home is `/`: what a container's users have."""
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-Duser.home=?"}
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "rows: 5\n"), done.stderr
