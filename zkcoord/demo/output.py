"""Reads what the consumers wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zkcoord.demo.accounting import Output, parse_range

NUMBER = "seq"  # the column with the sequence number
NOBODYS = -1  # for a row without a sequence number: the producer did not write it


def read_outputs(folder: Path) -> Iterator[Output]:
    """Read every complete file, in the order of the names. Incomplete files of an interrupted batch are in hidden
    folders, and are not read."""
    from pyarrow import parquet

    for path in sorted(folder.glob("*.parquet")):
        numbers = parquet.ParquetFile(path).read(columns=[NUMBER]).column(NUMBER)
        yield Output(parse_range(path.stem), [NOBODYS if n is None else n for n in numbers.to_pylist()])
