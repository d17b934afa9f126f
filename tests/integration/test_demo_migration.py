"""The demo of a migration as its user runs it, on real servers, with real old consumers and PySpark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_demo import DEADLINE_S, left_behind

pytestmark = [pytest.mark.zookeeper, pytest.mark.kafka, pytest.mark.spark, pytest.mark.legacy, pytest.mark.long]


def test_a_group_of_old_consumers_is_taken_over_and_every_record_is_processed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "zkcoord_command", "demo", "--migration", "--output", "json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    records, phases = result["records"], result["phases"]
    assert result["ok"] is True
    assert records["processed"] == records["produced"] > 1_000
    assert records["lost"] == records["unexplained"] == 0
    assert [(phase["name"], [name.partition("-")[0] for name in phase["killed"]]) for phase in phases] == [
        ("old consumers alone", []),
        ("zkcoord comes in", []),
        ("consumers are replaced", ["b"]),
        ("the coordinator is killed", ["coordinator"]),
        ("offsets go to both stores", ["y"]),
        ("offsets go to Kafka", ["coordinator"]),
        ("and back to ZooKeeper", ["x"]),
        ("and to Kafka again", []),
    ]
    assert all(phase["records"] > 0 for phase in phases)
    assert list(tmp_path.iterdir()) == []
    assert left_behind(tmp_path) == []
