"""Tables of many types and histories, which other engines read, and the rows that each must show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.spark.sinks.frames import TYPES, A, B, Frame, batch
from tests.spark.sinks.test_iceberg import Warehouse
from zkcoord.spark import write_delta
from zkcoord.spark.ranges import OffsetRange

LONGER = A._replace(end=20)
FROM = 12  # the offset of a reader's filter: files that end before it are passed over by their statistics
MORE = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("money", pa.decimal128(10, 2)),
        ("word", pa.string()),
    ]
)
COLUMNS = [*TYPES.names, *MORE.names]
WORDS = ("a b/ü", "x%20=:#+?", None)


def rows_of(*ranges: OffsetRange) -> pa.Table:
    """The records with columns of other types, and nulls in them."""
    rows = Frame.of(*ranges).rows
    offsets = rows["offset"].to_pylist()
    made = {
        "at": [datetime(2026, 1, 2, 3, 4, 5, 123456, UTC) + timedelta(hours=each) for each in offsets],
        "day": [None if each % 5 == 0 else date(2026, 1, 1 + each % 2) for each in offsets],
        "money": [None if each % 7 == 0 else Decimal(each).scaleb(-2) for each in offsets],
        "word": [WORDS[each % 3] for each in offsets],
    }
    for name, values in made.items():
        rows = rows.append_column(name, pa.array(values, MORE.field(name).type))
    return rows


class Tables:
    """Writes tables that all come to have `ROWS`. `shown` makes DataFrames of Arrow rows."""

    def __init__(self, shown: Callable[[pa.Table], Any]) -> None:
        self._shown = shown

    def delta(self, folder: Path) -> dict[str, str]:
        """Write Delta tables; return the path of each."""
        kinds = (self.plain, self.partitioned, self.checkpointed, self.restored)
        for make in kinds:
            make(folder / make.__name__)
        return {make.__name__: str(folder / make.__name__) for make in kinds}

    def _write(self, table: Path, *ranges: OffsetRange, **settings: Any) -> int:
        return write_delta(self._shown(rows_of(*ranges)), batch(*ranges), table, **settings)

    def plain(self, table: Path) -> None:
        """Batches, one of which comes again and brings more."""
        self._write(table, A, B)
        self._write(table, LONGER, B)

    def partitioned(self, table: Path) -> None:
        """Files of days and words, and of none, in folders whose names are not those of the values."""
        self._write(table, A, B, partition_by=["day", "word"])
        self._write(table, LONGER, B)

    def checkpointed(self, table: Path) -> None:
        """What was before the checkpoint stands only there."""
        self._write(table, A)
        DeltaTable(table).create_checkpoint()
        for old in sorted((table / "_delta_log").glob("*.json"))[:-1]:  # as the log's retention does it
            old.unlink()
        self._write(table, LONGER, B)
        assert self._write(table, LONGER, B) == 0

    def restored(self, table: Path) -> None:
        """A batch was taken back, and a part of it has come again."""
        self._write(table, A, B)
        kept = DeltaTable(table).version()
        self._write(table, A._replace(start=14, end=30))
        DeltaTable(table).restore(kept)
        self._write(table, LONGER)

    def iceberg(self, house: Warehouse) -> dict[str, Any]:
        """Write a plain table and one that is partitioned; return them by name."""
        house.catalog().create_table("db.typed", rows_of(A).schema)
        schema = house.load("db.typed").schema()
        spec = PartitionSpec(PartitionField(schema.find_field("day").field_id, 1000, IdentityTransform(), "day"))
        house.catalog().create_table("db.by_day", schema, partition_spec=spec)
        for name in ("db.typed", "db.by_day"):
            for ranges in ((A, B), (LONGER, B)):
                self.append(house, name, *ranges)
        return {name: house.load(name) for name in ("db.typed", "db.by_day")}

    def append(self, house: Warehouse, name: str, *ranges: OffsetRange) -> int:
        """Write a batch into an Iceberg table."""
        return house.write(frame=self._shown(rows_of(*ranges)), to=batch(*ranges), table=name)


def spelled(value: Any) -> str | None:
    """A time, a day or an amount of money, the same from every engine."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return None if value is None else str(value)


def _spelled(*ranges: OffsetRange) -> list[list[Any]]:
    found = rows_of(*ranges).to_pylist()
    return [[row[name] if name in TYPES.names else spelled(row[name]) for name in COLUMNS] for row in found]


ROWS = _spelled(LONGER, B)
"""What each table has, as JSON spells it."""
