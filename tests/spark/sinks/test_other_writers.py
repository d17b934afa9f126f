"""Spark's own Delta writes to a table of the sink, beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.sinks.frames import A, B, Frame, Rows, batch, once, records
from zkcoord.spark import write_delta
from zkcoord.spark.ranges import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).parents[3]
DAY = {"partition_by": ["partition"]}
LONGER = A._replace(end=20)
Sql = Callable[[str], list[list[Any]]]


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory, spark_java: None) -> Iterator[Sql]:
    """Asks Spark's Delta, which is a process of its own."""
    folder = tmp_path_factory.mktemp("spark")
    command = [sys.executable, "-m", "tests.spark.sinks.on_delta", str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (folder / "errors").open("w") as errors, subprocess.Popen(command, cwd=ROOT, stderr=errors, **pipes) as spark:

        def ask(statement: str) -> list[list[Any]]:
            assert spark.stdin is not None
            assert spark.stdout is not None
            print(statement, file=spark.stdin, flush=True)
            told = spark.stdout.readline()
            assert told, (folder / "errors").read_text()[-3000:]
            return list(json.loads(told))

        yield ask


def write(table: Path, *ranges: OffsetRange, then: Callable[[], object] = lambda: None, **settings: Any) -> int:
    frame: Any = Frame.of(*ranges, on_write=then)
    return write_delta(frame, batch(*ranges), table, **settings)


@pytest.mark.parametrize("settings", [{}, DAY], ids=["", "partitioned"])
def test_sparks_delta_appends_compacts_and_deletes_between_a_batchs_files_and_its_commit(
    tmp_path: Path, sql: Sql, settings: dict[str, Any]
) -> None:
    """Each record that nobody has deleted is there once, and so are the rows of the other one."""
    table = tmp_path / "clicks"
    name = f"delta.`{table}`"
    write(table, B, **settings)
    theirs: Rows = [("theirs", 7, number, number) for number in range(3)]
    values = ", ".join(map(str, theirs))
    insert = once(lambda: sql(f"INSERT INTO {name} VALUES {values}"))
    assert write(table, A, B, then=insert, **settings) == 4
    optimise = once(lambda: sql(f"OPTIMIZE {name}"))
    assert write(table, LONGER, B, then=optimise, **settings) == 6
    delete = once(lambda: sql(f"DELETE FROM {name} WHERE topic = 'clicks' AND offset = 11"))
    again = LONGER._replace(end=22)
    assert write(table, again, then=delete, **settings) == 2
    assert write(table, again, B, **settings) == 0
    expected = sorted([*(row for row in records(again, B) if row[2] != 11), *theirs])
    read = f"SELECT topic, partition, offset, n FROM {name} ORDER BY 1, 2, 3"
    assert [tuple(row) for row in sql(read)] == expected
    done = [entry["operation"] for entry in reversed(DeltaTable(table).history())]
    assert [each for each in done if each not in ("WRITE", "CREATE TABLE")] == ["OPTIMIZE", "DELETE"]
