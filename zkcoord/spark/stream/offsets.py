"""The streaming source's offsets. Only this module writes and reads their format. Pure.

Spark stores each batch's offset as JSON before it runs the batch, and passes it back after a restart. So an offset
contains whole ranges, not only their ends: a batch that is run again reads exactly the same ranges, whoever owns its
partitions by then.

    {"version": 1, "run": "5f0c…", "batch": 12, "group": "etl", "generation": 7, "replayed": false,
     "ranges": {"clicks": {"0": {"lo": 100, "hi": 600, "end": 950, "incarnation": 1}}}}

`end` is the log's end when the batch was planned; it is for people, since `query.lastProgress` shows what is left. An
offset says nothing about another group's offsets, so it is refused under another `group` (absent: not known).
`batch` counts the batches of a `run`: Spark runs no batch whose offset equals the one before it, and a range may come
again, for example when its offset was set back (F322).
`incarnation` is that of the topic (`OffsetRange`; absent: not known).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.spark.ranges import Batch, OffsetRange

VERSION = 1
Offset = Mapping[str, Any]
EMPTY: Offset = {"version": VERSION, "run": "", "ranges": {}}


def offset_of(run: str, group: str, batch: Batch, ends: Mapping[TopicPartition, int]) -> Offset:
    """Return the offset of a batch that the source's process `run` has planned. `ends` are the logs' ends.

    >>> batch = Batch(id="", seq=0, generation=7, ranges=(OffsetRange("clicks", 0, 100, 600),))
    >>> offset_of("5f", "etl", batch, {TopicPartition("clicks", 0): 950})["ranges"]
    {'clicks': {'0': {'lo': 100, 'hi': 600, 'end': 950}}}
    """
    by_topic: dict[str, dict[str, dict[str, int]]] = {}
    for each in batch.ranges:
        end = ends.get(each.topic_partition, each.end)
        number = {"incarnation": each.incarnation} if each.incarnation else {}
        found = {"lo": each.start, "hi": each.end, "end": end, **number}
        by_topic.setdefault(each.topic, {})[str(each.partition)] = found
    said = {"batch": batch.seq, "group": group, "generation": batch.generation, "replayed": batch.replayed}
    return {"version": VERSION, "run": run, **said, "ranges": by_topic}


def is_offset(value: object) -> bool:
    """True for an offset that this source has written."""
    return isinstance(value, dict) and value.get("version") == VERSION and {"run", "ranges"} <= value.keys()


def ranges_in(offset: Offset) -> tuple[OffsetRange, ...]:
    """Return the ranges, sorted. Raises UsageError for an offset of another source, since the checkpoint belongs to
    another query."""
    try:
        if is_offset(offset):
            return tuple(
                sorted(
                    OffsetRange(
                        *(topic, int(partition), int(each["lo"]), int(each["hi"])),
                        incarnation=int(each.get("incarnation", 0)),
                    )
                    for topic, partitions in offset["ranges"].items()
                    for partition, each in partitions.items()
                )
            )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        pass
    raise UsageError(
        f"the checkpoint holds the offset {str(offset)[:200]}, which this source has not written: start the query with "
        "a checkpointLocation of its own (the group's offsets say where it goes on)"
    )


def check_group(offset: Offset, group: str) -> None:
    """Raises UsageError for an offset of another group's query, whose records this query must not skip."""
    written = offset.get("group", group)
    if written != group:
        raise UsageError(
            f"the checkpoint is that of a query of group {written!r}, and this one is of {group!r}: start it with a "
            "checkpointLocation of its own (the group's offsets say where it goes on)"
        )


def to_read(start: Offset, end: Offset) -> tuple[OffsetRange, ...]:
    """Return the ranges of the batch from `start` to `end`: those in `end`, which were announced, as a whole."""
    return () if start == end else ranges_in(end)


def within(each: OffsetRange, start: int, end: int) -> OffsetRange:
    """Return the part of a range that is in a log from `start` to `end`; an empty range if there is none.

    >>> str(within(OffsetRange("t", 0, 5, 30), 20, 25)), str(within(OffsetRange("t", 0, 5, 30), 40, 50))
    ('t-0-20-25', 't-0-30-30')
    """
    low = min(max(each.start, start), each.end)
    return each._replace(start=low, end=max(low, min(each.end, end)))
