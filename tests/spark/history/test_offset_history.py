"""The report about commits, without a broker: which went back, and which are foreign or of an earlier tenure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from zkcoord.core.tenure import KafkaCommit, Stamp, Tenure
from zkcoord.offsets.metadata import decode_commit, encode_metadata
from zkcoord.spark.history.commits import progress, report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark's collect() leaves its socket
    pytest.mark.usefixtures("sockets_collected"),
]

GONE: int | str = "gone"
UNREADABLE: int | str = "unreadable"
HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
LARGEST = 2**63 - 1
Told = tuple[int | str, str]  # an offset and its metadata; or GONE or UNREADABLE instead of the offset


def ours(offset: int, mzxid: int, tree: str = "aa") -> Told:
    return offset, encode_metadata(KafkaCommit(offset=offset, stamp=Stamp(tenure=Tenure(tree, mzxid))))


def log(spark: SparkSession, *partitions: Sequence[Told], each_ms: int = HOUR_MS) -> DataFrame:
    """Return the log of a group with these partitions; each has a record every `each_ms`."""
    from zkcoord.spark.history.decoding import COMMIT
    from zkcoord.spark.history.source import TYPES

    rows = []
    for partition, told in enumerate(partitions):
        for n, (what, metadata) in enumerate(told):
            at_ms, offset = n * each_ms, what if isinstance(what, int) else None
            said = (None, None, None) if offset is None else (metadata, at_ms, None)
            rows.append(("g", "t", partition, offset, *said, what == GONE, 0, len(rows), at_ms))
    schema = ", ".join(f"{field.name} {TYPES[field.type]}" for field in COMMIT)
    return spark.createDataFrame(rows, schema)


def reported(spark: SparkSession, *partitions: Sequence[Told], **more: Any) -> list[Any]:
    return report(log(spark, *partitions), **more).collect()


def test_f264_tenures_of_another_tree_say_nothing_of_those_of_this_one(spark: SparkSession) -> None:
    """A group was moved to another ensemble with lower zxids, and all its commits there counted as late."""
    moved = [ours(1, 900), ours(2, 950), ours(3, 7, "bb"), ours(4, 7, "bb"), ours(5, 9, "bb")]
    late = [ours(1, 900), ours(3, 7, "bb"), ours(2, 900), ours(4, 9, "bb"), ours(3, 7, "bb")]
    back = [ours(1, 900), ours(2, 7, "bb"), ours(3, 1000), ours(4, 1000)]
    assert [row.earlier_tenure for row in reported(spark, moved, late, back)] == [0, 2, 0]


METADATA = [
    "",
    "by hand",
    '{"zkcoord":1}',
    '{"zkcoord":2,"offset":"7","tree":"aa","mzxid":"5"}',
    '{"zkcoord":1,"offset":"7","tree":"aa","mzxid":"many"}',
    '{"zkcoord":1,"offset":"seven","tree":"aa","mzxid":"5"}',
    '{"zkcoord":1,"offset":"7","tree":"aa","mzxid":"99999999999999999999"}',
    '{"zkcoord":1,"offset":"7","tree":"aa","mzxid":',
    '{"zkcoord":["',
    ours(8, 5)[1],  # a program that sets another offset and keeps the metadata
]


def test_f264_metadata_that_anybody_wrote_ends_no_report_and_is_foreign_as_consumers_take_it(
    spark: SparkSession,
) -> None:
    assert [decode_commit(7, text).stamp for text in METADATA] == [None] * len(METADATA)
    rows = reported(spark, *([(7, text)] for text in METADATA), [ours(7, 5)])
    assert [(row.commits, row.foreign, row.earlier_tenure) for row in rows] == [(1, 1, 0)] * len(METADATA) + [(1, 0, 0)]


def test_a_commit_after_a_tombstone_is_no_rewind_even_with_unreadable_records(
    spark: SparkSession,
) -> None:
    plain = [(5, ""), (3, ""), (GONE, ""), (1, ""), (9, ""), (UNREADABLE, ""), (8, "")]
    behind = [(5, ""), (GONE, ""), (UNREADABLE, ""), (1, "")]
    rows = reported(spark, plain, behind)
    assert [(row.commits, row.rewinds, row.furthest, row.unreadable) for row in rows] == [(5, 2, 2, 1), (2, 0, None, 1)]
    assert [(row.offset, row.removed_ms) for row in rows] == [(8, None), (1, None)]
    drawn = progress(log(spark, plain, behind), DAY_MS).collect()
    assert [(row.partition, row.at_ms, row.commits, row.rewinds, row.offset) for row in drawn] == [
        (0, DAY_MS, 5, 2, 8),
        (1, DAY_MS, 2, 0, 1),
    ]


def test_numbers_at_the_border_of_what_a_record_can_say_end_no_report(spark: SparkSession) -> None:
    (row,) = reported(spark, [(LARGEST, ""), (-LARGEST, ""), (GONE, "")], retention_ms=LARGEST)
    assert (row.commits, row.rewinds, row.furthest, bool(row.expired)) == (2, 1, None, False)


def test_when_an_offset_became_what_it_is_and_who_removed_it(spark: SparkSession) -> None:
    still = [(5, ""), (7, ""), (7, ""), (7, "")]
    removed = [(5, ""), (GONE, "")]
    again = [(5, ""), (GONE, ""), (5, "")]
    rows = reported(spark, still, removed, again, retention_ms=HOUR_MS + 1)
    assert [(row.first_ms, row.last_ms, row.changed_ms) for row in rows] == [
        (0, 3 * HOUR_MS, HOUR_MS),
        (0, 0, 0),
        (0, 2 * HOUR_MS, 2 * HOUR_MS),
    ]
    assert [(row.offset, row.removed_ms, bool(row.expired)) for row in rows] == [
        (7, None, False),
        (5, HOUR_MS, False),
        (5, None, False),
    ]
    (expired,) = reported(spark, removed, retention_ms=HOUR_MS)
    assert (expired.removed_ms, expired.expired) == (HOUR_MS, True)


def test_a_span_of_the_picture_ends_at_the_first_moment_that_is_not_in_it(spark: SparkSession) -> None:
    drawn = progress(log(spark, [(1, ""), (2, ""), (3, ""), (2, "")], each_ms=500), 1000).collect()
    assert [(row.at_ms, row.commits, row.rewinds, row.offset) for row in drawn] == [(1000, 2, 0, 2), (2000, 2, 1, 2)]
