"""Computes the offsets to which a group is reset: by its position, its logs, a time, or a file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.core.words import count, some
from zkcoord.errors import UsageError
from zkcoord.offsets.lines import parsed
from zkcoord.offsets.verdict import Log
from zkcoord.tree.codec import INT64_MAX, is_topic, seen
from zkcoord.tree.paths import partition_number


class Where(Enum):
    """The origin of a new offset. The names are those of kafka-consumer-groups."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    OFFSET = "to-offset"
    DATETIME = "to-datetime"
    SHIFT = "shift-by"
    FILE = "from-file"


class Goal(NamedTuple):
    """A target. `number` is the offset, the shift, or the time in ms since 1970."""

    where: Where
    number: int = 0


class Move(NamedTuple):
    """One partition whose offset changes. `before` is the offset that counted, in whichever store; None: there was
    none."""

    partition: TopicPartition
    before: int | None
    after: int


NOTHING: Mapping[TopicPartition, int | None] = {}


class Targets(NamedTuple):
    """The new offsets, notes for people, and the offsets that counted before."""

    offsets: dict[TopicPartition, int]
    notes: list[str]
    before: Mapping[TopicPartition, int | None] = NOTHING

    def moves(self) -> list[Move]:
        """Return the changes for the group's consumers, in order."""
        found = (Move(p, self.before.get(p), after) for p, after in sorted(self.offsets.items()))
        return [move for move in found if move.before != move.after]


_TOPIC = re.compile(r"([^:]+)(?::([0-9]+(?:,[0-9]+)*))?")
_ROW = re.compile(r'"?([^",]+)"?,([0-9]+),([0-9]{1,19})')


def targets(
    goal: Goal,
    current: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, Log],
    found: Mapping[TopicPartition, int],
) -> Targets:
    """Return the new offset of each partition with a log, within that log.

    `current` holds the offsets that count now. `found` holds those of the time, or of the file.
    """
    offsets: dict[TopicPartition, int] = {}
    without: list[TopicPartition] = []
    outside: list[str] = []
    for partition, log in sorted(logs.items()):
        wanted = _wanted(goal, current.get(partition), log, found.get(partition))
        if wanted is None:
            without.append(partition)
            continue
        offsets[partition] = min(max(wanted, log.start), log.end)
        if offsets[partition] != wanted:
            outside.append(f"{partition} at {wanted} ({log.start} to {log.end})")
    return Targets(offsets, list(_notes(outside, without)), current)


def _notes(outside: Sequence[str], without: Sequence[TopicPartition]) -> Iterator[str]:
    """Describe, once for each kind, what happens to partitions for which the request is impossible, and name some."""
    if outside:
        yield f"{count(len(outside), 'offset')} outside of the log, so its start or end is taken: {some(outside)}"
    if without:
        yield f"{count(len(without), 'partition')} without an offset to shift, left alone: {some(without)}"


def _wanted(goal: Goal, current: int | None, log: Log, found: int | None) -> int | None:
    match goal.where:
        case Where.EARLIEST:
            return log.start
        case Where.LATEST:
            return log.end
        case Where.OFFSET:
            return goal.number
        case Where.SHIFT:
            return None if current is None else current + goal.number
        case Where.DATETIME | Where.FILE:
            return log.end if found is None else found


def chosen(words: Iterable[str], partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the existing partitions that `--topic T[:p,p]` names. Raises UsageError for a missing one.

    >>> chosen(["t:1", "u"], [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)])
    [TopicPartition(topic='t', partition=1), TopicPartition(topic='u', partition=0)]
    """
    existing = set(partitions)
    topics = {partition.topic for partition in existing}
    found: set[TopicPartition] = set()
    for word in words:
        match = _TOPIC.fullmatch(word)
        if match is None or not is_topic(match[1]):
            raise UsageError(f"--topic {word}: write TOPIC or TOPIC:PARTITION[,PARTITION...]")
        if match[1] not in topics:
            raise UsageError(f"--topic {word}: Kafka has no such topic; check its name, and the rights")
        numbers = None if match[2] is None else set(map(int, match[2].split(",")))
        for number in sorted(numbers or ()):
            if TopicPartition(match[1], number) not in existing:
                raise UsageError(f"--topic {word}: Kafka has no partition {number} of this topic")
        found |= {p for p in existing if p.topic == match[1] and (numbers is None or p.partition in numbers)}
    return sorted(found)


def from_file(lines: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """Return the offsets in a file: rows of kafka-consumer-groups (`topic,partition,offset`), or an export's lines of
    this group. Raises UsageError for any other line, and for a file without an offset of the group."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        if text.startswith(("/", "{")):
            exported = parsed(text, number)
            if exported is not None and exported.group == group:
                offsets[exported.partition] = exported.offset
            continue
        row = _ROW.fullmatch(text)
        partition = None if row is None else partition_number(row[2])
        if row is None or partition is None or not is_topic(row[1]) or int(row[3]) > INT64_MAX:
            raise UsageError(f"line {number}: {seen(text)} is no offset; a line is TOPIC,PARTITION,OFFSET")
        offsets[TopicPartition(row[1], partition)] = int(row[3])
    if not offsets:
        raise UsageError(f"the file has no offset of group {group}")
    return offsets
