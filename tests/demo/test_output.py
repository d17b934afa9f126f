"""What the consumers wrote, read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkcoord.demo.accounting import Output, Range
from zkcoord.demo.output import read_outputs

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow comes with the extra spark")


def write(path: Path, numbers: list[int | None]) -> None:
    """A file with these sequence numbers, and another column."""
    import pyarrow

    path.parent.mkdir(exist_ok=True)
    columns = {"seq": pyarrow.array(numbers, pyarrow.int64()), "page": ["/"] * len(numbers)}
    parquet.write_table(pyarrow.table(columns), path)


def test_complete_files_are_read_by_name_and_drafts_are_not(tmp_path: Path) -> None:
    write(tmp_path / "clicks-10-100-103.parquet", [100, 101, 102])
    write(tmp_path / "clicks-0-5-7.parquet", [5, None])
    write(tmp_path / ".0123" / "part-00000.parquet", [7, 8])
    (tmp_path / ".0123" / "_temporary").mkdir()
    assert list(read_outputs(tmp_path)) == [
        Output(Range(0, 5, 7), [5, -1]),
        Output(Range(10, 100, 103), [100, 101, 102]),
    ]
