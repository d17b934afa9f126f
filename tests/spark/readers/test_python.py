"""The parts of the reader without a jar that need neither Spark nor Kafka."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from zkcoord.spark.readers.python import RangesReader, RangesSource, as_task, forget_archives

PLAN = {"settings": {"group.id": "none"}, "headers": False, "timeout_ms": 1, "tasks": []}


def archives_known() -> list[str]:
    return [path for path, each in sys.path_importer_cache.items() if isinstance(each, zipimport.zipimporter)]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip archive on the module path, as pyspark.zip is in a worker."""
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("packed/__init__.py", "")
        packed.writestr("packed/early.py", "")
        packed.writestr("packed/late.py", "NAME = 'late'")
    monkeypatch.syspath_prepend(str(path))
    importlib.import_module("packed.early")
    return path


def test_archives_are_forgotten_yet_what_is_in_them_can_be_imported(archive: Path) -> None:
    assert archives_known() == [str(archive), f"{archive}/packed"]
    forget_archives()
    assert archives_known() == []
    assert importlib.import_module("packed.late").NAME == "late"


def test_each_call_of_spark_leaves_no_archive_to_the_next_one(archive: Path) -> None:
    calls = [
        lambda: RangesSource({"plan": '{"headers": false}'}).schema(),
        lambda: RangesReader(PLAN).partitions(),
        lambda: list(RangesReader(PLAN).read(as_task([("t", 0, 5, 5)]))),
    ]
    for call in calls:
        importlib.reload(importlib.import_module("packed.late"))
        assert archives_known()
        call()
        assert archives_known() == []
