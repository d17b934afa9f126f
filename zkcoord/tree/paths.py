"""The only place that builds and parses paths. A value of the type `Layout` knows the path of every node in the
tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from zkcoord.core.model import TopicPartition
from zkcoord.errors import UsageError
from zkcoord.tree.ownership import CLAIMED_OWNERS, PERSISTENT_OWNERS, Ownership

TOPICS = "/brokers/topics"
BROKERS = "/brokers/ids"
KAFKA = "/brokers"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
MIGRATION = "/migration"
ROOT = "/zkcoord"
EPOCH = f"{ROOT}/epoch"
SCHEMA = f"{ROOT}/schema"
CANDIDATES = f"{ROOT}/coordinators"
RECORDS = f"{ROOT}/groups"

_PARTITION_MAX = 2**31 - 1

PARENTS_KNOWN = 10_000
"""Number of remembered parents with their addresses: most nodes are owners and offsets of few topics."""


class Place(Enum):
    """The kinds of nodes below a group."""

    IDS = "ids"
    REGISTRATION = "registration"
    OWNERS = "owners"
    CLAIMS = "claims"
    MARK = "mark"
    OWNER = "owner"
    OFFSETS = "offsets"
    OFFSET = "offset"
    CHANNELS = "channels"
    CHANNEL = "channel"
    COMMAND = "command"
    EVICTED = "evicted"
    REFUSED = "refused"
    RECORD = "record"
    STATE = "state"
    INSTANCES = "instances"
    INSTANCE = "instance"
    OTHER = "other"


class Address(NamedTuple):
    """A parsed path of a group. `name` is the consumer or topic, `item` the partition or sequence.

    `partition` is that of an owner or offset; None if the node's name is no partition's.
    """

    place: Place
    group: str
    name: str = ""
    item: str = ""
    partition: TopicPartition | None = None


EVICTED_MARK = "evicted"
REFUSED_MARK = "refused"
RELEASED_MARK = "released"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of all nodes (docs/protocol.md, section 2). `draft` has the draft's own paths; `legacy` is for trees
    with old consumers.

    >>> DRAFT.owner("g", TopicPartition("clicks", 3))
    '/consumers/groups/g/owners/clicks/3'
    """

    name: str
    coordinator: str
    groups: str
    channels: str | None  # None: they are below the group itself, as `channel`
    ownership: Ownership = PERSISTENT_OWNERS
    adopts: bool = False  # True: a group is served only once it is adopted, since old consumers may use its nodes
    topics: str = TOPICS  # the parent of the topics' nodes
    brokers: str = BROKERS  # the parent of the brokers' nodes

    @property
    def mirrored(self) -> bool:
        """True when the coordinator itself writes topics and brokers, from Kafka's metadata."""
        return self.topics != TOPICS

    @property
    def source(self) -> str:
        """Where the tree's topics come from, one of TOPIC_SOURCES."""
        return FROM_KAFKA if self.mirrored else FROM_ZOOKEEPER

    def topic(self, topic: str) -> str:
        """One topic's node."""
        return f"{self.topics}/{topic}"

    def group(self, group: str) -> str:
        """The group's own folder: `ids`, `owners`, `offsets`."""
        return f"{self.groups}/{group}"

    @property
    def group_lists(self) -> tuple[str, ...]:
        """The nodes whose children are the groups that may be served: folders and records, or only records."""
        return (RECORDS,) if self.adopts else (self.groups, RECORDS)

    def ids(self, group: str) -> str:
        """The parent of the registrations."""
        return f"{self.groups}/{group}/ids"

    def registration(self, group: str, consumer_id: str) -> str:
        """The ephemeral node that makes a consumer a member."""
        return f"{self.groups}/{group}/ids/{consumer_id}"

    def owners(self, group: str) -> str:
        """The parent of the owned topics."""
        return f"{self.groups}/{group}/owners"

    def shared(self, path: str) -> bool:
        """True for a node that old consumers must be able to use, whoever created it."""
        return self.adopts and (path == self.groups or path.startswith(f"{self.groups}/"))

    def mark(self, group: str, topic: str) -> str:
        """The topic's mark. It names the incarnation of the topic to which owners and offsets belong."""
        if self.channels is None:
            return f"{self.groups}/{group}/owners/{topic}"
        return f"{RECORDS}/{group}/state/marks/{topic}"

    def marks(self, group: str) -> str:
        """The parent of the topics' marks."""
        return f"{self.groups}/{group}/owners" if self.channels is None else f"{RECORDS}/{group}/state/marks"

    @property
    def owners_below_marks(self) -> bool:
        """True when a topic's mark is the parent of its owners."""
        return self.channels is None

    def topic_owners(self, group: str, topic: str) -> str:
        """The parent of one topic's owners."""
        return f"{self.groups}/{group}/owners/{topic}"

    def above_claims(self, group: str, topics: Iterable[str]) -> Sequence[str]:
        """The nodes above these topics' owners, outermost first, in a layout where consumers create owners."""
        return self.ownership.parents(self.owners(group), [self.topic_owners(group, topic) for topic in topics])

    def consumer_id(self, new_id: str) -> str:
        """The name of a registration, made from a new id. In the layout `legacy` its random part begins with `z`.

        >>> LEGACY.consumer_id("g_h-1795229172529-931c1cca")
        'g_h-1795229172529-z31c1cca'
        """
        return f"{new_id[:-8]}z{new_id[-7:]}" if self.adopts else new_id

    def owner(self, group: str, partition: TopicPartition) -> str:
        """The node that names the thread that may read the partition."""
        return f"{self.groups}/{group}/owners/{partition.topic}/{partition.partition}"

    def offsets(self, group: str) -> str:
        """The parent of the topics with offsets."""
        return f"{self.groups}/{group}/offsets"

    def topic_offsets(self, group: str, topic: str) -> str:
        """The parent of one topic's offsets."""
        return f"{self.groups}/{group}/offsets/{topic}"

    def offset(self, group: str, partition: TopicPartition) -> str:
        """The node with the next offset to read, as decimal text."""
        return f"{self.groups}/{group}/offsets/{partition.topic}/{partition.partition}"

    def channels_of(self, group: str) -> str:
        """The parent of the group's channels."""
        return f"{self.groups}/{group}/channel" if self.channels is None else f"{self.channels}/{group}"

    def channel(self, group: str, consumer_id: str) -> str:
        """The node of one consumer's queue. Its data is the member's status."""
        return f"{self.channels_of(group)}/{consumer_id}"

    def record(self, group: str) -> str:
        """The group record, which holds the decisions of people."""
        return f"{RECORDS}/{group}"

    def state(self, group: str) -> str:
        """The group state, which only the coordinator writes."""
        return f"{RECORDS}/{group}/state"

    def instances(self, group: str) -> str:
        """The parent of the static members' nodes."""
        return f"{RECORDS}/{group}/state/instances"

    def instance(self, group: str, instance: str) -> str:
        """The node of one static member in the state."""
        return f"{RECORDS}/{group}/state/instances/{instance}"

    def candidate(self, coordinator_id: int) -> str:
        """The node of one coordinator that stands for election or serves."""
        return f"{CANDIDATES}/{coordinator_id}"

    def parse(self, path: str) -> Address | None:
        """The inverse of the group paths above. None: the path belongs to no group.

        >>> DRAFT.parse("/consumers/groups/g/channel/c/0000000007")
        Address(place=<Place.COMMAND: 'command'>, group='g', name='c', item='0000000007', partition=None)
        """
        parent, _, name = path.rpartition("/")
        topic = _topic_of(self.groups, parent)
        if topic is not None:  # first, since there are many of these
            number = partition_number(name)
            partition = None if number is None else TopicPartition(topic.name, number)
            return Address(topic.place, topic.group, topic.name, name, partition)
        if path.startswith(f"{self.groups}/"):
            found = _parse_group(path[len(self.groups) + 1 :].split("/"))
            claims = found is not None and found.place is Place.MARK and not self.owners_below_marks
            return found._replace(place=Place.CLAIMS) if found is not None and claims else found
        if self.channels is not None and path.startswith(f"{self.channels}/"):
            group, *rest = path[len(self.channels) + 1 :].split("/")
            return _parse_channel(group, rest)
        if path.startswith(f"{RECORDS}/"):
            return _parse_record(path[len(RECORDS) + 1 :].split("/"))
        return None

    def partition_at(self, path: str) -> tuple[Place, TopicPartition] | None:
        """The place and the partition of an owner or offset. None: any other path. It is faster than `parse`.

        >>> DRAFT.partition_at("/consumers/groups/g/owners/clicks/3")
        (<Place.OWNER: 'owner'>, TopicPartition(topic='clicks', partition=3))
        """
        parent, _, name = path.rpartition("/")
        topic = _topic_of(self.groups, parent)
        number = None if topic is None else partition_number(name)
        return None if topic is None or number is None else (topic.place, TopicPartition(topic.name, number))


@lru_cache(maxsize=PARENTS_KNOWN)
def _topic_of(groups: str, parent: str) -> Address | None:
    """The address, without the partition, of an owner or offset below this parent."""
    if not parent.startswith(f"{groups}/"):
        return None
    match parent[len(groups) + 1 :].split("/"):
        case [group, "owners", topic]:
            return Address(Place.OWNER, group, topic)
        case [group, "offsets", topic]:
            return Address(Place.OFFSET, group, topic)
    return None


def _parse_group(parts: list[str]) -> Address | None:
    group, *rest = parts
    match rest:
        case ["ids"]:
            return Address(Place.IDS, group)
        case ["ids", consumer]:
            return Address(Place.REGISTRATION, group, consumer)
        case ["owners"]:
            return Address(Place.OWNERS, group)
        case ["owners", topic]:
            return Address(Place.MARK, group, topic)
        case ["offsets"]:
            return Address(Place.OFFSETS, group)
        case ["offsets", topic]:
            return Address(Place.OFFSETS, group, topic)
        case ["channel", *below]:
            return _parse_channel(group, below)
    return Address(Place.OTHER, group)


def _parse_channel(group: str, parts: list[str]) -> Address:
    match parts:
        case []:
            return Address(Place.CHANNELS, group)
        case [consumer]:
            return Address(Place.CHANNEL, group, consumer)
        case [consumer, name] if name == EVICTED_MARK:
            return Address(Place.EVICTED, group, consumer)
        case [consumer, name] if name == REFUSED_MARK:
            return Address(Place.REFUSED, group, consumer)
        case [consumer, name] if is_sequence(name):
            return Address(Place.COMMAND, group, consumer, name)
    return Address(Place.OTHER, group)


def _parse_record(parts: list[str]) -> Address:
    match parts:
        case [group]:
            return Address(Place.RECORD, group)
        case [group, "state"]:
            return Address(Place.STATE, group)
        case [group, "state", "instances"]:
            return Address(Place.INSTANCES, group)
        case [group, "state", "instances", instance]:
            return Address(Place.INSTANCE, group, instance)
        case [group, "state", "marks"]:
            return Address(Place.OWNERS, group)
        case [group, "state", "marks", topic]:
            return Address(Place.MARK, group, topic)
        case [group, *_]:
            return Address(Place.OTHER, group)
    return Address(Place.OTHER, "")


DRAFT = Layout(name="draft", coordinator="/consumers/coordinator", groups="/consumers/groups", channels=None)
LEGACY = Layout(
    name="legacy",
    coordinator=f"{ROOT}/coordinator",
    groups="/consumers",
    channels=f"{ROOT}/channels",
    adopts=True,
    ownership=CLAIMED_OWNERS,
)
LAYOUTS = {layout.name: layout for layout in (DRAFT, LEGACY)}

FROM_ZOOKEEPER, FROM_KAFKA = TOPIC_SOURCES = ("zookeeper", "kafka")
"""The sources of a tree's topics: Kafka's own nodes, or Kafka's metadata, which the coordinator mirrors."""

_MIRRORED = {
    layout.name: replace(layout, topics=f"{ROOT}/topics", brokers=f"{ROOT}/brokers") for layout in LAYOUTS.values()
}


def layout_named(name: str, topics: str = FROM_ZOOKEEPER) -> Layout:
    """The layout of that name (`draft` or `legacy`), with that source of topics (`zookeeper` or `kafka`). Raises
    UsageError for others."""
    if name not in LAYOUTS:
        raise UsageError(f"there is no layout {name!r}: choose draft or legacy")
    if topics not in TOPIC_SOURCES:
        raise UsageError(f"there is no source of topics {topics!r}: choose zookeeper or kafka")
    return _MIRRORED[name] if topics == FROM_KAFKA else LAYOUTS[name]


@lru_cache(maxsize=1 << 14)  # lists of the same partitions are read again and again
def partition_number(name: str) -> int | None:
    """The partition whose node has this name. None: it is no partition's name, so another program may have created the
    node.

    >>> partition_number("12"), partition_number("07"), partition_number("\u00b2"), partition_number("2147483648")
    (12, None, None, None)
    """
    try:
        number = int(name)
    except ValueError:
        return None
    # int() would accept "07", "1_0" and " 1"
    return number if 0 <= number <= _PARTITION_MAX and str(number) == name else None


def partition_numbers(names: Iterable[str]) -> list[int]:
    """The partitions among these names, in their order."""
    return [number for number in map(partition_number, names) if number is not None]


def is_sequence(name: str) -> bool:
    """True for the name of a sequential node, such as a command.

    >>> is_sequence("0000000007"), is_sequence("\u00b2"), is_sequence("evicted")
    (True, False, False)
    """
    return name.isascii() and name.isdigit()


def sequence_name(number: int) -> str:
    """The name of a sequential node with this number.

    >>> sequence_name(7)
    '0000000007'
    """
    return f"{number:010d}"
