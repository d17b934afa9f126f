"""Finds the nodes of a group that nobody can parse, and proposes new data for them. Pure.

A proposal never guesses an offset. It is a number that stands in the node, an offset that the group's consumers
committed to Kafka, or the start of a range that the owner announced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from zkcoord.core.model import TopicPartition, consumer_of, thread_id
from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.view import Channel, GroupView
from zkcoord.errors import CorruptError
from zkcoord.tree.codec import INT64_MAX, compact, parse_json
from zkcoord.tree.offset import decode_offset, encode_offset
from zkcoord.tree.ownership import UNREADABLE_OWNER, owner_of
from zkcoord.tree.paths import Layout, Place
from zkcoord.tree.record import decode_record, encode_record
from zkcoord.tree.snapshot import Node

_NUMBER = re.compile(r"[\s\"'\x00\ufeff]*([0-9]{1,19})(?:\.0+)?[\s\"'\x00]*")


class Broken(NamedTuple):
    """A node that nobody can parse. `proposed` None: nothing can be proposed, and `why` says what to do."""

    node: Node
    kind: str  # "record", "owner" or "offset"
    problem: str
    proposed: bytes | None
    why: str
    partition: TopicPartition | None = None


def broken(
    nodes: Mapping[str, Node],
    view: GroupView,
    layout: Layout,
    *,
    chosen: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> Iterator[Broken]:
    """Yield those of `nodes` that nobody can parse, sorted by path. `chosen`: the user's offsets. `committed`: the
    offsets that the group's own consumers committed to Kafka."""
    for path, node in sorted(nodes.items()):
        address = layout.parse(path)
        if address is None or not node.exists:
            continue
        if address.place is Place.RECORD:
            yield from _record(node, view)
        elif address.place is Place.OWNER and address.partition is not None:
            yield from _owner(node, address.partition, view, layout)
        elif address.place is Place.OFFSET and address.partition is not None:
            yield from _offset(node, address.partition, view, chosen, committed)


def _record(node: Node, view: GroupView) -> Iterator[Broken]:
    try:
        decode_record(node.data)
    except CorruptError as error:
        proposed, why = record_without_faults(node.data, view)
        yield Broken(node, "record", str(error), proposed, why)


def record_without_faults(data: bytes, view: GroupView) -> tuple[bytes | None, str]:
    """Return the record without the values that nobody can parse, and what that means; or None, and what to do
    instead."""
    try:
        known = parse_json(data.decode("utf-8", "replace"))
    except ValueError:
        known = None
    if isinstance(known, dict) and isinstance(known.get("version"), int) and known["version"] > 1:
        return None, "a newer zkcoord wrote it: use that one"
    kept, left_out = _kept(known) if isinstance(known, dict) else ({}, ["all of it"])
    if "moved" in left_out:
        return None, "whether the group has moved to another tree is not known: write it by hand"
    if "offsets" in left_out or not isinstance(known, dict):
        telling = [channel for channel in view.channels.values() if channel.store_name or channel.held]
        used = {(channel.store_name or ZOOKEEPER, channel.store_step) for channel in telling}
        if not used:
            return None, "no member tells its offset store: write it by hand ({} if its offsets are in ZooKeeper)"
        if len(used) > 1:
            return None, "its members use different offset stores: write it by hand"
        for name, step in used:
            kept["offsets"] = {"store": name, "step": step}
    try:
        record = decode_record(compact(kept))
    except CorruptError as error:
        return None, f"write it by hand: {error}"
    said = f"it is left out: {', '.join(left_out)}; the offset store is {record.store_name}"
    lost = "; the group is not adopted any more" if view.adopts and record.adoption is None else ""
    return encode_record(record), said + lost


def _kept(known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the keys whose values can be parsed, each by itself, and the names of the others."""
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for key, value in known.items():
        if _reads({key: value}):
            kept[key] = value
        elif isinstance(value, dict) and key in ("policy", "weights", "racks", "wish", "done"):
            kept[key] = {name: each for name, each in value.items() if _reads({key: {name: each}})}
            left_out += [f"{key}.{name}" for name in value if name not in kept[key]]
        else:
            left_out.append(key)
    return kept, left_out


def _reads(document: Mapping[str, Any]) -> bool:
    try:
        decode_record(compact(document))
    except CorruptError:
        return False
    return True


def _owner(node: Node, partition: TopicPartition, view: GroupView, layout: Layout) -> Iterator[Broken]:
    version = node.stat.version if node.stat is not None else 0
    if owner_of(node.data, version).thread == UNREADABLE_OWNER:
        session = node.stat.ephemeral_owner if node.stat is not None else 0
        why_not = layout.ownership.why_not_mended(session)
        proposed, why = (None, why_not) if why_not else _owner_for(partition, view)
        yield Broken(node, "owner", "no thread id", proposed, why, partition)


def _owner_for(partition: TopicPartition, view: GroupView) -> tuple[bytes | None, str]:
    silent = _silent(view, partition)
    if silent:
        return None, f"what {' and '.join(silent)} reads is not known: stop it, and run this again"
    evicted = _evicted(view, partition)
    if evicted:
        names = " and ".join(evicted)
        return None, f"{names} was evicted, and may still read it: run this again when its session is over"
    holders = [c for c, channel in sorted(view.channels.items()) if c in view.members and _has(channel, partition)]
    if not holders:
        return b"", "no member says that it reads it: it is free"
    if len(holders) == 1 and view.members[holders[0]].threads.get(partition.topic) == 1:
        return thread_id(holders[0], 0).encode(), f"{holders[0]} says that it reads it"
    return None, f"{' and '.join(holders)} may read it: stop it, and run this again"


def _silent(view: GroupView, partition: TopicPartition) -> list[str]:
    """Return the members that may read the partition, but do not tell whether they do.

    A member that knows only the draft never tells. A member without a channel is an old consumer, which takes no part.
    """
    silent = []
    for consumer, member in sorted(view.members.items()):
        channel = view.channels.get(consumer)
        tells = member.speaks_protocol and channel is not None and not channel.status_unreadable
        takes_part = member.speaks_protocol or channel is not None
        if partition.topic in member.threads and takes_part and not tells:
            silent.append(consumer)
    return silent


def _evicted(view: GroupView, partition: TopicPartition) -> list[str]:
    """Return the consumers that read the partition, or may have read it, when they were evicted. They may not know
    about the eviction yet."""
    gone = ((c, channel) for c, channel in sorted(view.channels.items()) if c not in view.members)
    marked = ((c, channel) for c, channel in gone if channel.evicted_ms is not None)
    return [c for c, channel in marked if channel.status_unreadable or _has(channel, partition)]


def _has(channel: Channel, partition: TopicPartition) -> bool:
    """Return True if the channel's member reads the partition, or has a command about it that it may obey at any
    time."""
    return partition in channel.held or channel.names(partition)


def _offset(
    node: Node,
    partition: TopicPartition,
    view: GroupView,
    chosen: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> Iterator[Broken]:
    try:
        decode_offset(node.data)
    except CorruptError as error:
        offset, why = _offset_for(node.data, partition, view, chosen, committed)
        yield Broken(node, "offset", str(error), None if offset is None else encode_offset(offset), why, partition)


def _offset_for(
    data: bytes,
    partition: TopicPartition,
    view: GroupView,
    chosen: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> tuple[int | None, str]:
    if partition in chosen:
        return chosen[partition], "by --offset"
    told = committed.get(partition)
    if told is not None:
        return told, "a consumer of the group committed it to Kafka"
    number = _NUMBER.fullmatch(data.decode("utf-8", "replace"))
    if number is not None and int(number[1]) <= INT64_MAX:
        return int(number[1]), "this number stands there"
    owner = view.owners.get(partition)
    channel = view.channels.get(consumer_of(owner.thread)) if owner is not None else None
    if channel is not None and partition in channel.announced:
        return channel.announced[partition].start, "its owner announced a range that begins there"
    return None, f"say where to go on: --offset {partition}=N"
