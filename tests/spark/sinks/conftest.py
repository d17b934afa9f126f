"""What all tests of sinks have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.spark.sinks.frames import Frame
from zkcoord.spark.sinks import spark_writer


@pytest.fixture(autouse=True)
def frames_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark's own means, which need its JVM."""
    of_spark: Callable[[Any], Any] = spark_writer.counted
    monkeypatch.setattr(
        spark_writer,
        "counted",
        lambda rows: nullcontext((rows, rows.count)) if isinstance(rows, Frame) else of_spark(rows),
    )
