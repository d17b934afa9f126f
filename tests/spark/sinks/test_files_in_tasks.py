"""What a data file's footer tells a table's log, and how the rows of a task become row groups."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from zkcoord.spark.sinks.files_in_tasks import ROWS_MAX, ParquetRows, statistics

pytestmark = pytest.mark.spark


def footer_of(groups: Sequence[pa.Table]) -> parquet.FileMetaData:
    sink = io.BytesIO()
    with parquet.ParquetWriter(sink, groups[0].schema) as writer:
        for each in groups:
            writer.write_table(each)
    return parquet.read_metadata(io.BytesIO(sink.getvalue()))


def test_a_file_has_no_bounds_of_a_column_of_which_a_row_group_has_none() -> None:
    """A long text has none. By the bounds of the other groups readers would pass over the file, and miss its row."""
    texts: Any = (["a", "b"], ["x" * 5000], [None])
    groups = [
        pa.table({"text": pa.array(each, pa.string()), "n": [number] * len(each)}) for number, each in enumerate(texts)
    ]
    told = statistics(footer_of(groups))
    assert (told["minValues"], told["maxValues"], told["nullCount"]) == ({"n": 0}, {"n": 2}, {"text": 1, "n": 0})
    told = statistics(footer_of([groups[0], groups[2]]))
    assert (told["minValues"]["text"], told["maxValues"]["text"]) == ("a", "b"), "a group of nulls hides nothing"


def test_the_log_is_told_nothing_of_parts_of_a_column() -> None:
    rows = pa.table({"pair": [{"a": 1, "b": "x"}], "list": [[1, 2]], "n": [7]})
    assert statistics(footer_of([rows])) == {
        "numRecords": 1,
        "minValues": {"n": 7},
        "maxValues": {"n": 7},
        "nullCount": {"n": 0},
    }


def test_row_groups_are_full_however_the_rows_come() -> None:
    rows = ParquetRows(io.BytesIO())
    part = pa.record_batch({"n": pa.nulls(ROWS_MAX // 2, pa.int64())})
    for _ in range(5):
        rows.add(part)
    footer = rows.close()
    found = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert found == [ROWS_MAX, ROWS_MAX, ROWS_MAX // 2]
