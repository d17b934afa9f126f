"""Puts together what ZooKeeper has about one group of old consumers: members, owners, offsets, orphans. Pure.

Nothing is guessed. ZooKeeper's data may leave the strategy, the version or the offset store open; then only the hints
for an answer are given. `zkcoord.legacy.findings` says what would go wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.given import shown
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.errors import CorruptError
from zkcoord.legacy.clients import MIXES, Client, Library, client_of
from zkcoord.legacy.reading import OldSubscription, WildcardError, matched, read_as
from zkcoord.legacy.versions import OldVersion, old_version
from zkcoord.tree.offset import decode_offset
from zkcoord.tree.paths import partition_number
from zkcoord.tree.registration import TOMBSTONE, moved_to
from zkcoord.tree.snapshot import Node
from zkcoord.tree.topic_filter import INTERNAL, MATCH_SECONDS

READERS = tuple(map(old_version, ("0.8.2", "0.11", "1.1")))
"""One version for each set of registrations that old consumers can read, oldest first."""

STRATEGIES = ("range", "roundrobin-0.8", "roundrobin-1.0")
"""The assignors that old members may have used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cluster:
    """The topics in ZooKeeper, and the number of brokers."""

    topics: Mapping[str, tuple[int, ...]]  # topic that exists and can be read -> partitions, ascending
    unreadable: Mapping[str, str] = field(default_factory=dict)  # topic -> why
    brokers: int = 0
    regex_seconds: float = MATCH_SECONDS  # how long a wildcard may take for one topic
    # regex and black_list -> its topics, or why they cannot be told; kept because members share regexes
    _matched: dict[tuple[str, bool], tuple[str, ...] | str] = field(default_factory=dict, repr=False)

    def threads(self, read: OldSubscription) -> Mapping[str, int]:
        """Return the threads of a subscription; a wildcard takes no internal topics here. CorruptError if no old member
        can use the subscription."""
        return read.threads(self._taken)

    def _taken(self, regex: str, black_list: bool) -> Sequence[str]:
        key = (regex, black_list)
        if key not in self._matched:
            topics = [topic for topic in self.topics if topic not in INTERNAL]
            try:
                self._matched[key] = tuple(matched(regex, topics, black_list=black_list, seconds=self.regex_seconds))
            except WildcardError as error:
                self._matched[key] = str(error)
        found = self._matched[key]
        if isinstance(found, str):
            raise WildcardError(found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNodes:
    """One group as it was read. Owners and offsets: topic -> name of the child -> its node, for nodes that exist."""

    group: str
    folder: Node
    registrations: Mapping[str, Node]
    owners: Mapping[str, Mapping[str, Node]]
    offsets: Mapping[str, Mapping[str, Node]]
    others: tuple[str, ...] = ()  # further children of the group's folder


class Claim(NamedTuple):
    """An owner node: the thread that it names, when it was last written by the server's clock, and whether it is
    ephemeral."""

    thread: str
    since_ms: int
    ephemeral: bool = True


class Committed(NamedTuple):
    """An offset node, and when it was last written. `offset` is None if the node holds no offset (it is negative or
    empty) or cannot be read."""

    offset: int | None
    written_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OldMember:
    """One registration, as far as it can be read."""

    consumer: str
    client: Client
    since_ms: int
    ephemeral: bool = True  # False: no session holds the node, since it was copied or made by hand
    wildcard: str | None = None
    black_list: bool = False
    threads: Mapping[str, int] = field(default_factory=dict)  # topic -> threads; for a wildcard, of the topics now
    refused_by: tuple[OldVersion, ...] = ()  # those of READERS that cannot rebalance beside this registration
    problem: str | None = None  # why none of READERS can use it, or why its wildcard cannot be evaluated here


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInventory:
    """All that is known of one group."""

    group: str
    made_ms: int | None
    members: tuple[OldMember, ...]
    owners: Mapping[TopicPartition, Claim]
    offsets: Mapping[TopicPartition, Committed]
    kafka_offsets: Mapping[TopicPartition, int] | None  # None: Kafka was not asked, or did not answer
    strange: Mapping[str, str]  # path below the group -> what is wrong with it
    fits: tuple[str, ...]  # those of STRATEGIES whose plan is what is owned; empty also if a member cannot be read
    subscribed: tuple[TopicPartition, ...]  # the partitions that exist and that members subscribe to
    cluster: Cluster
    moved_to: str | None = None  # the address of the tree that zkcoord moved it to, or is about to

    @property
    def kind(self) -> str:
        """`old`, `zkcoord`, `mixed` (both), `foreign` (with members of another library), `0.7`, `empty`, or `moved`."""
        if self.moved_to is not None:
            return "moved"
        libraries = {member.client.library for member in self.members} - {Library.POKE}
        if not libraries:
            return "empty"
        if libraries == {Library.KAFKA_0_7}:
            return "0.7"
        if not libraries <= MIXES:
            return "foreign"
        return "mixed" if len(libraries) > 1 else "old" if Library.KAFKA in libraries else "zkcoord"

    @property
    def store(self) -> str:
        """Where offsets are: `zookeeper`, `kafka`, `both`, or `none`. Without Kafka's answer it counts those in
        ZooKeeper only."""
        here, there = bool(self.offsets), bool(self.kafka_offsets)
        return "both" if here and there else "zookeeper" if here else "kafka" if there else "none"

    @property
    def last_commit_ms(self) -> int | None:
        """When an offset was last written to ZooKeeper."""
        return max((one.written_ms for one in self.offsets.values()), default=None)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that members subscribe to, that have owners, or that have offsets in ZooKeeper."""
        named = {topic for member in self.members for topic in member.threads}
        return tuple(sorted(named | {p.topic for p in self.owners} | {p.topic for p in self.offsets}))

    def versions(self) -> tuple[str, ...]:
        """Return the versions of Kafka's own members, as far as their registrations show them."""
        members = (m.client for m in self.members if m.client.library is Library.KAFKA)
        return tuple(sorted({client.versions for client in members if client.versions is not None}))

    def owned(self) -> Counter[str]:
        """Consumer -> how many partitions it owns; the consumers need not be registered."""
        names = {member.consumer for member in self.members}
        return Counter(_consumer(claim.thread, names) for claim in self.owners.values())

    def orphaned_owners(self) -> list[TopicPartition]:
        """Partitions whose owner is not registered."""
        names = {member.consumer for member in self.members}
        return sorted(p for p, claim in self.owners.items() if _consumer(claim.thread, names) not in names)

    def unowned(self) -> list[TopicPartition]:
        """Return the partitions that members subscribe to and no consumer owns."""
        return [partition for partition in self.subscribed if partition not in self.owners]

    def gone_topics(self) -> list[str]:
        """Return the topics that have owners or offsets, but do not exist any more."""
        there = self.cluster.topics.keys() | self.cluster.unreadable.keys()
        return sorted({p.topic for p in (*self.owners, *self.offsets)} - there)

    def gone_partitions(self) -> list[TopicPartition]:
        """Return the partitions that have an offset, but that are not in their topic, which exists."""
        topics = {topic: set(numbers) for topic, numbers in self.cluster.topics.items()}
        return sorted(p for p in self.offsets if p.topic in topics and p.partition not in topics[p.topic])


def take_inventory(
    nodes: GroupNodes, cluster: Cluster, kafka_offsets: Mapping[TopicPartition, int] | None = None
) -> GroupInventory:
    """Return the inventory of the group in these nodes."""
    strange: dict[str, str] = dict.fromkeys(nodes.others, "no old consumer makes it")
    registrations = {name: node for name, node in sorted(nodes.registrations.items()) if name != TOMBSTONE}
    members = tuple(_member(nodes.group, name, node, cluster) for name, node in registrations.items())
    stone = nodes.registrations.get(TOMBSTONE)
    owners = _owners(nodes, strange)
    threads = {topic for member in members for topic in member.threads}
    subscribed = [TopicPartition(t, n) for t in sorted(threads) for n in cluster.topics.get(t, ())]
    return GroupInventory(
        group=nodes.group,
        made_ms=nodes.folder.stat.mtime_ms if nodes.folder.stat is not None else None,
        members=members,
        owners=owners,
        offsets=_offsets(nodes, strange),
        kafka_offsets=kafka_offsets,
        strange=strange,
        fits=_fits(members, owners, cluster),
        subscribed=tuple(subscribed),
        cluster=cluster,
        moved_to=None if stone is None else moved_to(stone.data),
    )


def _member(group: str, name: str, node: Node, cluster: Cluster) -> OldMember:
    stat = node.stat
    client = client_of(group, name, node.data, stat.version if stat is not None else 0)
    text = node.data.decode("utf-8", "replace")
    read: OldSubscription | None = None
    threads: Mapping[str, int] = {}
    refused: list[OldVersion] = []
    problem: str | None = None
    for version in READERS:
        try:
            read = read_as(version, text)
        except WildcardError as error:
            problem = str(error)
        except CorruptError as error:
            refused.append(version)
            problem = str(error)
    try:
        if read is not None:
            problem, threads = None, cluster.threads(read)
    except WildcardError as error:
        problem = str(error)
    except CorruptError as error:
        refused, problem = list(READERS), str(error)
    return OldMember(
        consumer=name,
        client=client,
        since_ms=stat.mtime_ms if stat is not None else 0,
        ephemeral=stat is None or stat.ephemeral_owner != 0,
        wildcard=read.wildcard if read is not None else None,
        black_list=read is not None and read.black_list,
        threads=threads,
        refused_by=tuple(refused),
        problem=problem,
    )


def _owners(nodes: GroupNodes, strange: dict[str, str]) -> dict[TopicPartition, Claim]:
    found: dict[TopicPartition, Claim] = {}
    for topic, below in sorted(nodes.owners.items()):
        for name, node in below.items():
            number = partition_number(name)
            if number is None:
                strange[f"owners/{topic}/{name}"] = f"{_kind_of_name(name)}: Kafka's own members do not look at it"
            elif node.stat is not None:
                thread, held = node.data.decode("utf-8", "replace"), node.stat.ephemeral_owner != 0
                found[TopicPartition(topic, number)] = Claim(thread, node.stat.mtime_ms, held)
    return found


def _offsets(nodes: GroupNodes, strange: dict[str, str]) -> dict[TopicPartition, Committed]:
    found: dict[TopicPartition, Committed] = {}
    for topic, below in sorted(nodes.offsets.items()):
        for name, node in below.items():
            number, offset = partition_number(name), None
            if number is None:
                strange[f"offsets/{topic}/{name}"] = f"{_kind_of_name(name)}: Kafka's own members do not read it"
                continue
            try:
                offset = decode_offset(node.data)
                if offset is None:
                    strange[f"offsets/{topic}/{name}"] = f"{shown(node.data)} is no offset: the reset policy decides"
            except CorruptError as error:
                strange[f"offsets/{topic}/{name}"] = f"{error}: old members fail to rebalance until it is a number"
            if node.stat is not None:
                found[TopicPartition(topic, number)] = Committed(offset, node.stat.mtime_ms)
    return found


def _kind_of_name(name: str) -> str:
    broker, _, number = name.partition("-")
    if partition_number(broker) is not None and partition_number(number) is not None:
        return "a partition as Kafka 0.7 and pykafka name it (<broker>-<number>)"
    return "no partition's name"


def _fits(members: Sequence[OldMember], owners: Mapping[TopicPartition, Claim], cluster: Cluster) -> tuple[str, ...]:
    """Return the strategies whose plan is exactly what is owned now."""
    if not owners or any(m.problem is not None or m.client.library not in MIXES for m in members):
        return ()
    given = assignor_input(members, cluster)
    threads = {partition: claim.thread for partition, claim in owners.items()}
    return tuple(name for name in STRATEGIES if ASSIGNORS[name](given) == threads)


def assignor_input(members: Sequence[OldMember], cluster: Cluster) -> AssignorInput:
    """Return the group as the input of an assignor."""
    subscribers = tuple(Subscriber(consumer_id=m.consumer, threads=m.threads) for m in members)
    return AssignorInput(subscribers=subscribers, partitions=cluster.topics, owned={})


def _consumer(thread: str, names: set[str]) -> str:
    """Return the consumer that an owner node names. Kafka's own consumers write their id with a thread, most other
    libraries write the id alone."""
    return thread if thread in names else consumer_of(thread)
