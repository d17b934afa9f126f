"""The text of exported offsets: the lines of Kafka's old tools (ExportZkOffsets, ImportZkOffsets), or JSON lines.

A line of the old tools is the path of an offset's node in an old deployment, and the offset:
`/consumers/g/offsets/t/0:7`. It does not depend on the layout of the tree that the offsets come from or go to.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.codec import INT64_MAX, compact, is_topic, read_document, seen
from zkcoord.tree.paths import LEGACY, partition_number

LINES, JSON = "lines", "json"
FORMATS = (LINES, JSON)
LINE_MAX = 4_096
"""Characters of one line: the names of a group and a topic, and two numbers."""

TAKEN_BY = {
    re.compile(r'\{"zkcoord_backup"'): ". This is a backup: `zkcoord restore` takes it",
    re.compile(r'"?[^",/]+"?,[0-9]+,[0-9]+$'): ". `zkcoord group reset-offsets G --from-file FILE` takes such lines",
}
"""Beginning of a line in another file of zkcoord or Kafka -> the command or tool that takes that file."""

_LINE = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]+):([0-9]{1,19})")


class Exported(NamedTuple):
    """One partition's offset."""

    group: str
    partition: TopicPartition
    offset: int


def written(exported: Exported, form: str) -> str:
    """Return the offset as one line, without the line end.

    >>> written(Exported("g", TopicPartition("t", 0), 7), LINES)
    '/consumers/g/offsets/t/0:7'
    """
    group, partition, offset = exported
    if form == LINES:
        return f"{LEGACY.offset(group, partition)}:{offset}"
    named = {"group": group, "topic": partition.topic, "partition": partition.partition}
    return compact({**named, "offset": offset}).decode("ascii")


def parsed(line: str, number: int) -> Exported | None:
    """Return the offset in a line of either format; None for a blank line. Raises UsageError that names the line's
    `number`."""
    text = line.strip()
    if not text:
        return None
    found = _json(text) if text.startswith("{") else _line(text)
    if found is None or not is_topic(found.partition.topic) or found.offset > INT64_MAX:
        other = next((takes for begins, takes in TAKEN_BY.items() if begins.match(text)), "")
        raise UsageError(
            f"line {number}: {seen(text)} is no offset; a line is /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, or a"
            f" JSON object with group, topic, partition and offset{other}"
        )
    return found


def _line(text: str) -> Exported | None:
    match = _LINE.fullmatch(text)
    number = None if match is None else partition_number(match[3])
    if match is None or number is None:
        return None
    return Exported(match[1], TopicPartition(match[2], number), int(match[4]))


def _json(text: str) -> Exported | None:
    try:
        document = read_document("offset", text.encode("utf-8", "surrogatepass"))
        number = partition_number(str(document.integer("partition")))
        if number is None:
            return None
        partition = TopicPartition(document.text("topic"), number)
        return Exported(document.text("group"), partition, document.integer("offset"))
    except CorruptError:
        return None
