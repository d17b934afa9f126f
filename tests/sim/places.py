"""The meaning of paths, in both layouts, and of statuses. This is a second implementation (docs/protocol.md, sections 2
and 3)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from zkcoord.core.model import TopicPartition

GROUP_PATH = re.compile(r"/consumers/groups/([^/]+)/(ids|owners|offsets|channel)/([^/]+)(?:/([^/]+))?$")
LEGACY_PATH = re.compile(r"/consumers/([^/]+)/(ids|owners|offsets)/([^/]+)(?:/([^/]+))?$")
LEGACY_CHANNEL = re.compile(r"/zkcoord/(channels)/([^/]+)/([^/]+)(?:/([^/]+))?$")
LEGACY_MARK = re.compile(r"/zkcoord/groups/([^/]+)/state/marks/([^/]+)$")
PARTITION = re.compile("0|[1-9][0-9]{0,8}")
RECORD_PATH = re.compile(r"/zkcoord/groups/([^/]+)(/state)?$")


class Place(NamedTuple):
    """The meaning of a group's path: `kind` is one of the constants below."""

    kind: str
    group: str
    name: str = ""  # of a consumer or a topic
    item: str = ""  # a command's sequence
    partition: TopicPartition | None = None


REGISTRATION, MARK, OWNER, OFFSET = "ids", "mark", "owner", "offset"
CHANNEL, EVICTED, COMMAND = "channel", "evicted", "command"
RECORD, STATE = "record", "state"


@lru_cache(maxsize=4_000)
def place_of(path: str) -> Place | None:
    """The meaning of a path; None: the path belongs to no group, or no checker looks at it."""
    if (match := RECORD_PATH.match(path)) is not None:
        return Place(STATE if match[2] else RECORD, match[1])
    if (match := LEGACY_MARK.match(path)) is not None:
        return Place(MARK, match[1], match[2])
    found, draft = _parts_of(path)
    if found is None:
        return None
    group, place, name, item = found
    if place in ("owners", "offsets"):
        if item is None:
            return Place(MARK, group, name) if place == "owners" and draft else None
        partition = TopicPartition(name, int(item)) if PARTITION.fullmatch(item) else None
        return partition and Place(OWNER if place == "owners" else OFFSET, group, name, item, partition)
    if place == "ids":
        return Place(REGISTRATION, group, name) if item is None else None
    if item is None or item == EVICTED:
        return Place(item or CHANNEL, group, name)
    return Place(COMMAND, group, name, item) if item.isascii() and item.isdigit() else None


def _parts_of(path: str) -> tuple[tuple[str, str, str, str | None] | None, bool]:
    """Group, place, name and item of a path, and whether the path is of the layout `draft`."""
    if (match := GROUP_PATH.match(path)) is not None:
        return (match[1], match[2], match[3], match[4]), True
    if (match := LEGACY_CHANNEL.match(path)) is not None:
        return (match[2], match[1], match[3], match[4]), False
    match = LEGACY_PATH.match(path)
    return (None if match is None else (match[1], match[2], match[3], match[4])), False


def held_by(status: dict[str, Any]) -> set[TopicPartition]:
    """The partitions that a member holds, by its status."""
    found = set[TopicPartition]()
    for topics in status.get("held", {}).values():
        for topic, text in topics.items():
            for part in text.split(","):
                low, _, high = part.partition("-")
                found |= {TopicPartition(topic, number) for number in range(int(low), int(high or low) + 1)}
    return found
