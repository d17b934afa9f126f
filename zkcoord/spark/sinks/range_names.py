"""Names of files that contain one range each, and their descriptions."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import NamedTuple

from zkcoord.spark.progress import log_event
from zkcoord.spark.ranges import OffsetRange, is_later

AGAIN = (
    "this batch is read for the first time. If somebody set the group's offsets back, or a consumer did not announce, "
    "these are the same records. If the group and the topic were deleted and created again, give the sink another place"
)
SHARED = (
    "a task wrote rows of several ranges; no coalesce, no repartition, no min_offsets_per_task before this sink; "
    "or give it a URI, such as file:///data/clicks"
)
SPREAD = "a range was written by several tasks; no repartition, no max_offsets_per_task before this sink"


HIDDEN = ("_", ".")  # readers of a folder (Spark, Arrow) leave out files whose names begin so
SHOWN = "~"  # comes before such a name; no topic's name has it
NAMED = re.compile(r"(.+)-(\d+)-(\d+)-(\d+)(?:\.(\d+))?\.parquet")


class Written(NamedTuple):
    """One file of a batch."""

    file: str  # its name within the folder
    rows: int


def range_name(each: OffsetRange) -> str:
    """Return `topic-partition-start-end`; for a topic that was created again, followed by `.incarnation`.

    >>> range_name(OffsetRange("clicks", 0, 100, 600)), range_name(OffsetRange("clicks", 0, 100, 600, incarnation=2))
    ('clicks-0-100-600', 'clicks-0-100-600.2')
    """
    return f"{each}.{each.incarnation}" if is_later(each) else str(each)


def file_name(each: OffsetRange) -> str:
    """Return the name of a range's Parquet file.

    >>> file_name(OffsetRange("clicks", 0, 100, 600))
    'clicks-0-100-600.parquet'
    >>> file_name(OffsetRange("_clicks", 0, 100, 600))
    '~_clicks-0-100-600.parquet'
    """
    return f"{SHOWN if each.topic.startswith(HIDDEN) else ''}{range_name(each)}.parquet"


def range_of(file: str) -> OffsetRange | None:
    """Return the range for which `file_name` makes this name. None: it is another name.

    >>> range_of("a-b-0-100-600.2.parquet"), range_of("part-0.parquet")
    (OffsetRange(topic='a-b', partition=0, start=100, end=600, incarnation=2), None)
    """
    found = NAMED.fullmatch(file)
    if found is None:
        return None
    topic, *numbers = found.groups(default="1")
    return OffsetRange(topic.removeprefix(SHOWN), *map(int, numbers))


def tell_replaced(files: Collection[str], folder: object) -> None:
    """Warn of files that a batch replaces although it is read for the first time: a crash cannot be the reason."""
    if files:
        text = f"{len(files)} files in {folder} were there and are replaced, {min(files)} among them: {AGAIN}"
        log_event(logging.WARNING, "files_replaced", text, files=sorted(files))
