"""A table changes between a batch's files and their commit, or is one whose files or ends a reader would miss."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, TableFeatures, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.spark.sinks.frames import TYPES, A, B, DeltaLog, Frame, batch, once, records
from tests.spark.sinks.test_delta import refused, write
from tests.spark.sinks.test_iceberg import Warehouse
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.spark import delta_ends
from zkcoord.spark.sinks import delta, iceberg

pytestmark = pytest.mark.spark
FORGETS = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
MODE = "write.metadata.metrics.default"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clicks"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def with_column(values: Any) -> Frame:
    return Frame(Frame.of(A).rows.append_column("k", pa.array(values)), tasks=9)


# ---- Delta


def test_f187_files_of_a_table_that_was_replaced_meanwhile_are_written_anew(table: Path) -> None:
    """By one with other partitions: the files lack nothing of it then."""
    write(table, B)

    def replace() -> None:
        DeltaTable.create(table, Schema.from_arrow(TYPES), mode="overwrite", partition_by=["topic"])

    assert write(table, frame=Frame.of(A, on_write=once(replace)), to=batch(A)) == 4
    assert [each["partitionValues"] for each in DeltaLog(table).files.values()] == [{"topic": "clicks"}] * 2
    assert {row["topic"] for row in DeltaTable(table).to_pyarrow_table().to_pylist()} == {"clicks"}


def constrain(table: Path) -> None:
    DeltaTable(table).alter.add_constraint({"small": "n < 60"})


def demand(table: Path) -> None:
    DeltaTable(table).alter.add_feature(TableFeatures.RowTracking, allow_protocol_versions_increase=True)


def retype(table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table()
    texts = rows.set_column(3, "n", rows["n"].cast(pa.string()))
    write_deltalake(table, texts, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (constrain, r"the setting delta\.constraints\.small"),
        (demand, "the feature rowTracking"),
        (retype, "'n' is .long., and in the table .* .string.: cast it"),
    ],
)
def test_f187_a_table_that_is_changed_meanwhile_refuses_rows_that_do_not_fit(
    table: Path, change: Callable[[Path], None], text: str
) -> None:
    write(table, B)
    with pytest.raises(UsageError, match=text):
        write(table, frame=Frame.of(A, on_write=once(lambda: change(table))), to=batch(A))
    assert [row[:3] for row in DeltaLog(table).rows()] == [row[:3] for row in records(B)]


def test_a_table_with_a_generated_column_is_refused(table: Path) -> None:
    DeltaTable.create(table, Schema.from_arrow(TYPES))
    log = table / "_delta_log" / f"{0:020}.json"
    plain, generated = r"\"metadata\":{}", r"\"metadata\":{\"delta.generationExpression\":\"n\"}"
    assert plain in log.read_text()
    log.write_text(log.read_text().replace(plain, generated, 1))
    refused(table, Frame.of(A), "has delta.generationExpression of the column 'topic'")


def test_f187_a_writer_that_slept_through_a_restore_and_an_heirs_batch_writes_nothing(table: Path) -> None:
    """Its files are ready; ends of before and behind the restore have different names."""
    write(table, A)
    kept = DeltaTable(table).version()
    write(table, B)
    later = A._replace(start=14, end=20)

    def meanwhile() -> None:
        DeltaTable(table).restore(kept)
        write(table, later)

    assert write(table, frame=Frame.of(later, on_write=once(meanwhile)), to=batch(later)) == 0
    assert DeltaLog(table).rows() == records(A._replace(end=20))


def test_f187_a_table_that_forgets_its_ends_is_refused(table: Path) -> None:
    DeltaTable.create(table, Schema.from_arrow(TYPES), configuration=FORGETS)
    refused(table, Frame.of(A), "has the setting delta.setTransactionRetentionDuration")


@pytest.mark.parametrize(
    ("kind", "values"), [("double", [1.5, float("nan"), None, 2.0]), ("binary", [b"a", b"", None, b"b"])]
)
def test_f186_a_partition_column_whose_values_cannot_be_told_apart_is_refused(
    table: Path, kind: str, values: Any
) -> None:
    """A row with NaN would be in no file, and bytes would be read back as other ones."""
    with pytest.raises(UsageError, match=f"partitioned by 'k', which is {kind}"):
        write(table, frame=with_column(values), to=batch(A), partition_by=["k"])
    assert DeltaLog(table).rows() == []


def test_a_store_that_fails_while_the_ends_are_looked_up_is_asked_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, version: int) -> None:
        raise OSError("503 Slow Down")

    write(table, A)
    end = delta_ends(table)()
    monkeypatch.setattr(delta._Place, "commits", fail)
    with pytest.raises(UnavailableError, match="cannot be read for its ends, try again: 503"):
        end("zkcoord/etl/clicks-0")


def test_f198_rows_that_lack_the_column_by_which_a_table_is_partitioned_are_refused(table: Path) -> None:
    """They had its values from another column."""
    DeltaTable.create(table, Schema.from_arrow(pa.schema([*TYPES, ("k", pa.int64())])), partition_by=["k"])
    refused(table, Frame.of(A), "is partitioned by 'k', which the rows lack: write it, too")


# ---- Iceberg


def test_f198_rows_that_lack_the_column_by_which_an_iceberg_table_is_partitioned_are_refused(house: Warehouse) -> None:
    house.catalog().create_table("db.k", pa.schema([*TYPES, ("k", pa.int64())]))
    with house.load("db.k").update_spec() as change:
        change.add_field("k", IdentityTransform(), "k")
    with pytest.raises(UsageError, match="is partitioned by 'k', which the rows lack: write it, too"):
        house.write(A, table="db.k")


def test_a_column_that_may_be_null_is_refused_by_an_iceberg_table_where_it_may_not(house: Warehouse) -> None:
    """pyiceberg does not look at the values."""
    never = pa.field("n", pa.int64(), nullable=False)
    fields = [TYPES.field(name) for name in ("topic", "partition", "offset")]
    house.catalog().create_table("db.strict", pa.schema([*fields, never]))
    with pytest.raises(UsageError, match=r"'n' of the rows can be null, and that of the table .* coalesce\(n, ...\)"):
        house.write(A, table="db.strict")
    rows = Frame.of(A).rows
    assert house.write(frame=Frame(rows.cast(pa.schema([*fields, never]))), to=batch(A), table="db.strict") == 4


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)"])
def test_f186_a_file_is_in_its_icebergs_partition_whatever_the_table_measures(house: Warehouse, mode: str) -> None:
    schema = house.load().schema()
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + n, IdentityTransform(), f"by_{name}")
        for n, name in enumerate(("partition", "topic"))
    ]
    house.catalog().create_table("db.parts", schema, partition_spec=PartitionSpec(*fields), properties={MODE: mode})
    assert house.write(frame=Frame.of(A, B, tasks=9), to=batch(A, B), table="db.parts") == 7
    table = house.load("db.parts")
    assert table.scan("partition = 1 and topic = 'clicks'").to_arrow().num_rows == 3
    assert table.properties == {
        MODE: mode,
        "schema.name-mapping.default": table.properties["schema.name-mapping.default"],
        "zkcoord.ends": table.properties["zkcoord.ends"],
    }


def test_f186_an_iceberg_table_partitioned_by_a_column_with_nan_is_refused(house: Warehouse) -> None:
    house.catalog().create_table("db.nan", pa.schema([*TYPES, ("k", pa.float64())]))
    with house.load("db.nan").update_spec() as change:
        change.add_field("k", IdentityTransform(), "k")
    with pytest.raises(UsageError, match="partitioned by 'k', which is double"):
        house.write(frame=with_column([1.5, 1.0, None, float("nan")]), to=batch(A), table="db.nan")
    assert house.load("db.nan").current_snapshot() is None


def test_f187_a_first_format_iceberg_table_is_refused_for_expired_ends(
    house: Warehouse,
) -> None:
    house.catalog().create_table("db.one", house.load().schema(), properties={"format-version": "1"})
    with pytest.raises(UsageError, match=r"db\.one has format version 1.*'format-version'='2'"):
        house.write(A, table="db.one")
    with house.load("db.one").transaction() as change:
        change.upgrade_table_version(2)
    assert (house.write(A, table="db.one"), house.write(A, table="db.one")) == (4, 0)


def test_f187_rows_and_partitions_of_iceberg_change_meanwhile(house: Warehouse) -> None:
    house.write(B)

    def split() -> None:
        with house.load().update_spec() as change:
            change.add_field("partition", IdentityTransform(), "partition")
        house.others()

    frame = Frame(Frame.of(A, B._replace(start=8, end=9)).rows, on_write=once(split), tasks=9)
    assert house.write(frame=frame, to=batch(A, B._replace(start=8, end=9))) == 5
    assert house.rows() == [*records(A, B._replace(end=9)), ("other", 0, 0, 0)]


def test_f298_an_iceberg_table_that_is_made_again_behind_a_batchs_files_gets_the_batch_whole(
    house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files went with the old table, and the new one lies where that was."""
    house.write(A)
    commit = iceberg._State.commit

    def make_again() -> None:
        folder = Path(house.load().location().removeprefix("file://"))
        house.catalog().drop_table("db.clicks")
        shutil.rmtree(folder)
        house.catalog().create_table("db.clicks", TYPES)

    change = once(make_again)

    def late(self: iceberg._State, *given: Any) -> None:
        change()
        commit(self, *given)

    monkeypatch.setattr(iceberg._State, "commit", late)
    assert (house.write(A._replace(start=14, end=20), B), house.write(B)) == (9, 0)
    assert house.rows() == records(A._replace(start=14, end=20), B)
