"""The only place that reads and writes a member's status: the data of its channel, which only the member writes.

The coordinator reads `batch` (announced ranges, perhaps half processed), `refused`, `held` (in case somebody sets an
owner empty under its reader), and, if it probes the member, `pinged`, `progress` and `lag`. `store` (the offset store
that the member commits to) and `timing` (when it saw its last commands) are for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from zkcoord.core.model import TopicPartition, as_partitions
from zkcoord.core.state import Announced
from zkcoord.core.timing import Timing
from zkcoord.core.view import Refusal
from zkcoord.tree.codec import Document, compact, corrupt, read_document
from zkcoord.tree.ranges import PARTITIONS_MAX, RANGES, count_of, parse_ranges, ranges_text
from zkcoord.tree.timing import decode_timing, encode_timing, newest

STATUS_BYTES_MAX = 64 * 1024  # above it, `held` is cut
REASON_CHARS_MAX = 200
REFUSED_BYTES_MAX = 128 * 1024  # above it, refusals are grouped by start; still above it, the oldest are left out
TIMING_BYTES_MAX = 8 * 1024  # above it, the oldest entries are left out; all of them if `held` would be cut
# numbers of an announced range after start and end; the last may be missing
RANGE_NUMBERS = ("generation", "incarnation")
_WHAT = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A member's status. The default is the status of an empty channel."""

    held: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # generation -> topic -> "0-9,12"
    held_cut: int = 0  # number of partitions left out of `held`
    batch: Mapping[TopicPartition, Announced] = field(default_factory=dict)
    store_name: str = ""  # "" before the first start or offset-store
    store_step: int = 0
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    progress: int | None = None
    lag: int | None = None
    pinged: str = ""  # the sequence of the last ping that was answered
    timing: tuple[Timing, ...] = ()  # of the last commands, oldest first


def encode_status(status: Status) -> bytes:
    """The status as the channel's data. Above STATUS_BYTES_MAX `held` is cut; the newest generation is kept longest.

    >>> encode_status(Status(held={7: {"clicks": "0-9"}}, store_name="zookeeper"))
    b'{"version":1,"held":{"7":{"clicks":"0-9"}},"batch":{},"store":{"name":"zookeeper","step":0},"refused":{}}'
    """
    rest: dict[str, Any] = {
        "batch": {str(p): range_fields(announced) for p, announced in status.batch.items()},
        "store": {"name": status.store_name, "step": status.store_step},
        **_refused(status.refused),
    }
    if status.progress is not None:
        rest["progress"] = str(status.progress)
    if status.lag is not None:
        rest["lag"] = str(status.lag)
    if status.pinged:
        rest["pinged"] = status.pinged
    held = {str(generation): dict(topics) for generation, topics in status.held.items()}
    data = compact(_document(held, status.held_cut, rest))
    if len(data) <= STATUS_BYTES_MAX:
        return _with_timing(data, status.timing)
    held, cut = _cut_held(status.held, STATUS_BYTES_MAX - len(compact(_document({}, 2**31, rest))))
    return compact(_document(held, status.held_cut + cut, rest))


def _with_timing(data: bytes, timing: Sequence[Timing]) -> bytes:
    """The status with its newest entries of timing; without any if they would cause `held` to be cut."""
    entries = newest(encode_timing(timing), TIMING_BYTES_MAX)
    told = data[:-1] + f',"timing":[{",".join(entries)}]}}'.encode("ascii") if entries else data
    return told if len(told) <= STATUS_BYTES_MAX else data


def announced_bytes(ranges: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """How many bytes these ranges take as a status.

    >>> announced_bytes({TopicPartition("t", 0): (0, 10)})
    94
    """
    return len(encode_status(Status(batch={p: Announced(start, end, 0) for p, (start, end) in ranges.items()})))


def range_fields(announced: Announced) -> list[Any]:
    """An announced range as JSON.

    >>> range_fields(Announced(100, 600, 7)), range_fields(Announced(100, 600, 7, 2))
    (['100', '600', 7], ['100', '600', 7, 2])
    """
    start, end, generation, incarnation = announced
    return [str(start), str(end), generation, *([incarnation] if incarnation else [])]


def _document(held: Mapping[str, Any], held_cut: int, rest: Mapping[str, Any]) -> dict[str, Any]:
    cut = {"held_cut": held_cut} if held_cut else {}
    return {"version": 1, "held": held, **cut, **rest}


def _cut_held(held: Mapping[int, Mapping[str, str]], room: int) -> tuple[dict[str, dict[str, str]], int]:
    """As many whole topics as fit into `room` bytes, the newest generation first, and the number of partitions left
    out."""
    kept: dict[str, dict[str, str]] = {}
    cut = 0
    for generation in sorted(held, reverse=True):
        topics: dict[str, str] = {}
        room -= len(compact({str(generation): {}}))
        for topic, ranges in sorted(held[generation].items()):
            size = len(compact({topic: ranges}))
            if size <= room:
                topics[topic] = ranges
                room -= size
            else:
                cut += count_of(ranges)
        if topics:
            kept[str(generation)] = topics
    return kept, cut


def decode_status(data: bytes) -> Status:
    """The status in a channel's data. Empty data is an empty status, and unknown keys are ignored. Raises CorruptError
    for anything else.

    >>> decode_status(b"") == Status()
    True
    """
    if not data:
        return Status()
    document = read_document(_WHAT, data)
    document.version()
    batch = document.section("batch")
    store = document.section("store")
    return Status(
        held=_held(document.section("held")),
        held_cut=document.integer("held_cut", default=0),
        batch=batch.by_partition(lambda key: Announced(*batch.offsets(key, *RANGE_NUMBERS))),
        store_name=store.text("name", default=""),
        store_step=store.integer("step", default=0),
        refused={**_told_by_start(document), **_told_alone(document)},
        progress=document.optional_integer("progress"),
        lag=document.optional_integer("lag"),
        pinged=document.text("pinged", default=""),
        timing=decode_timing(document.fields.get("timing")),
    )


def _held(section: Document) -> dict[int, dict[str, str]]:
    held: dict[int, dict[str, str]] = {}
    for key in section.fields:
        if not re.fullmatch(r"0|[1-9][0-9]{0,17}", key):
            raise section.error(key, "is no generation")
        topics = section.section(key)
        held[int(key)] = topics.all_texts()
        for topic, ranges in held[int(key)].items():
            if not RANGES.fullmatch(ranges):
                raise topics.wrong(topic, ranges, 'ranges of partitions as "0-9,12"')
    return held


def held_partitions(status: Status) -> frozenset[TopicPartition]:
    """The partitions that the member holds, as far as `held` was not cut. Raises CorruptError for more than
    PARTITIONS_MAX.

    >>> sorted(held_partitions(Status(held={7: {"clicks": "0-1"}})))
    [TopicPartition(topic='clicks', partition=0), TopicPartition(topic='clicks', partition=1)]
    """
    found = [(topic, text) for topics in status.held.values() for topic, text in topics.items()]
    if sum(count_of(text) for _, text in found) > PARTITIONS_MAX:
        raise corrupt(_WHAT, f"{len(found)} ranges of held partitions", f"more than {PARTITIONS_MAX} partitions")
    numbers = [zip(repeat(topic), parse_ranges(text), strict=False) for topic, text in found]
    return frozenset(as_partitions(chain.from_iterable(numbers)))


def _told_alone(document: Document) -> dict[TopicPartition, Refusal]:
    refused = document.section("refused")
    return refused.by_partition(lambda key: _refusal(refused.section(key)))


def _told_by_start(document: Document) -> dict[TopicPartition, Refusal]:
    refusals = document.section("refusals")
    sections = [refusals.section(key) for key in refusals.fields]
    return {
        TopicPartition(topic, number): _refusal(section)
        for section in sections
        for topic, text in section.section("partitions").all_texts().items()
        for number in parse_ranges(text)
    }


def _refusal(section: Document) -> Refusal:
    return Refusal(
        generation=section.integer("generation", default=0),
        reason=section.text("reason", default=""),
        sequence=section.text("sequence", default=""),
    )


def _refused(refused: Mapping[TopicPartition, Refusal]) -> dict[str, Any]:
    """The refusals: each by itself, or grouped in `refusals` by start and reason."""
    alone = {str(p): _refusal_fields(refusal) for p, refusal in refused.items()}
    if not alone or len(compact(alone)) <= REFUSED_BYTES_MAX:
        return {"refused": alone}
    found: dict[Refusal, dict[str, list[int]]] = {}
    for partition, refusal in refused.items():
        found.setdefault(refusal, {}).setdefault(partition.topic, []).append(partition.partition)
    room, kept = REFUSED_BYTES_MAX, dict[str, dict[str, Any]]()
    for refusal, topics in sorted(found.items(), reverse=True):  # by generation and sequence
        fields = {**_refusal_fields(refusal), "partitions": {t: ranges_text(ids) for t, ids in topics.items()}}
        room -= len(compact({str(len(kept)): fields}))
        if room < 0:
            break
        kept[str(len(kept))] = fields
    return {"refused": {}, "refusals": kept}


def _refusal_fields(refusal: Refusal) -> dict[str, Any]:
    sequence = {"sequence": refusal.sequence} if refusal.sequence else {}
    return {"generation": refusal.generation, **sequence, "reason": refusal.reason[:REASON_CHARS_MAX]}
