"""Reads all groups of a deployment in batches, so that hundreds of groups need little memory and few round trips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from zkcoord.errors import CorruptError, UsageError
from zkcoord.legacy.inventory import Cluster, GroupNodes
from zkcoord.tree.broker import broker_id
from zkcoord.tree.bulk import Reading, children, data, data_below, two_levels
from zkcoord.tree.paths import DRAFT, LEGACY, SCHEMA, Layout
from zkcoord.tree.schema import decode_schema
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.topic import topic_of

GROUPS_AT_ONCE = 25
"""The number of groups in a batch, which is in memory at once. Each level of a batch's nodes takes one round trip."""

_PARTS = ("ids", "owners", "offsets")
_DRAFT = frozenset({"groups", "coordinator"})  # the nodes that zkcoord's layout `draft` has below /consumers


def read_cluster(read: Reading) -> Cluster:
    """Read all topics and brokers, at the paths of the tree's layout."""
    (schema,) = read([Read(SCHEMA)])
    layout = _layout(schema)
    topics, brokers = read([Read(layout.topics, Kind.CHILDREN), Read(layout.brokers, Kind.CHILDREN)])
    known: dict[str, tuple[int, ...]] = {}
    unreadable: dict[str, str] = {}
    for name, node in zip(topics.children, data(read, [layout.topic(name) for name in topics.children]), strict=True):
        try:
            if node.exists:
                known[name] = topic_of(name, node.data).partitions
        except CorruptError as error:
            unreadable[name] = str(error)
    numbers = [name for name in brokers.children if broker_id(name) is not None]
    return Cluster(topics=known, unreadable=unreadable, brokers=len(numbers))


def group_names(read: Reading) -> tuple[str, ...]:
    """Return all children of /consumers that are groups, in order. UsageError if neither /consumers nor /brokers
    exists."""
    listed, brokers, schema = read([Read(LEGACY.groups, Kind.CHILDREN), Read("/brokers"), Read(SCHEMA)])
    if not listed.exists and not brokers.exists:
        raise UsageError("there is neither /consumers nor /brokers: give the chroot that Kafka's zookeeper.connect has")
    draft = schema.exists and _layout(schema).name == DRAFT.name
    return tuple(name for name in listed.children if not (draft and name in _DRAFT))


def _layout(schema: Node) -> Layout:
    """Return the layout of the tree; the layout of the old consumers if there is no schema, or it cannot be read."""
    try:
        return decode_schema(schema.data).place if schema.exists else LEGACY
    except (CorruptError, UsageError):
        return LEGACY


def read_groups(read: Reading, names: Sequence[str]) -> Iterator[GroupNodes | tuple[str, str]]:
    """Read the groups, in this order. For a group that this program may not read, give its name and the reason. A group
    that is gone is left out."""
    rest = iter(names)
    while batch := list(islice(rest, GROUPS_AT_ONCE)):
        try:
            yield from _together(read, batch)
        except UsageError:
            yield from _one_by_one(read, batch)


def _one_by_one(read: Reading, names: Sequence[str]) -> Iterator[GroupNodes | tuple[str, str]]:
    for name in names:
        try:
            yield from _together(read, [name])
        except UsageError as error:
            yield name, str(error)


def _together(read: Reading, names: Sequence[str]) -> list[GroupNodes]:
    folders = data(read, [LEGACY.group(name) for name in names])
    inside = children(read, [LEGACY.group(name) for name in names])
    lists = children(read, [f"{LEGACY.group(name)}/{part}" for name in names for part in _PARTS])
    ids, owned, kept = lists[::3], lists[1::3], lists[2::3]
    registrations = data_below(read, ids)
    owners, offsets = two_levels(read, owned), two_levels(read, kept)
    return [
        GroupNodes(
            group=name,
            folder=folder,
            registrations=registrations[ids[place].path],
            owners=owners[owned[place].path],
            offsets=offsets[kept[place].path],
            others=tuple(child for child in inside[place].children if child not in _PARTS),
        )
        for place, (name, folder) in enumerate(zip(names, folders, strict=True))
        if folder.exists
    ]
