"""Writes rows to a Parquet file, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from zkcoord.errors import UsageError

ROWS_MAX = 50_000
"""Rows of one row group, which are in memory until they are written."""


class ParquetFile:
    """A new Parquet file, to be used with `with`. `columns` maps a name to "text", "number" or "time" (ms, UTC).

    Raises UsageError if the file exists or cannot be created, or pyarrow is not installed.
    """

    def __init__(self, path: str, columns: Mapping[str, str]) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise UsageError("a Parquet file needs an extra package: pip install 'zkcoord[spark]'") from error
        kinds = {"text": pyarrow.string(), "number": pyarrow.int64(), "time": pyarrow.timestamp("ms", tz="UTC")}
        self._pyarrow, self._path = pyarrow, path
        self._schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
        self._rows: list[Mapping[str, Any]] = []
        try:
            self._file = Path(path).open("xb")  # noqa: SIM115 - closed in __exit__
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; name a file that can be made") from None
        self._writer = parquet.ParquetWriter(self._file, self._schema)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows. Only the named columns of each are written."""
        self._rows += rows
        while len(self._rows) >= ROWS_MAX:
            self._flush(ROWS_MAX)

    def _flush(self, count: int) -> None:
        part, self._rows = self._rows[:count], self._rows[count:]
        self._writer.write_table(self._pyarrow.Table.from_pylist(part, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush(len(self._rows))
        self._writer.close()
        self._file.close()
