"""The racks in which a partition is read well: those of the brokers that have a replica (KIP-392, KIP-881).

A broker that is away keeps the rack that it was last known with, by this coordinator or, over a failover, by the
group's state. So its restart moves nothing (KAFKA-20778 and librdkafka's issue 4742 show the cost otherwise). Only
another rack, or replicas on other brokers, cause the assignor to be asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Instance, Member

Replicas = Mapping[int, tuple[int, ...]]
"""For one topic: partition number -> ids of the brokers that have a replica."""


def racked(members: Mapping[str, Member], instances: Mapping[str, Instance]) -> bool:
    """True when a member, or an absent static member, has a rack. Otherwise no broker must be read."""
    racks = {member.rack for member in members.values()} | {known.rack for known in instances.values()}
    return not racks <= {None}


def broker_racks(
    topics: Iterable[Replicas], known: Mapping[int, str | None], noted: Mapping[int, str]
) -> dict[int, str]:
    """Broker id -> rack, for brokers with replicas of these topics: from `known`, else from `noted`.

    >>> broker_racks([{0: (1, 2), 1: (2, 3, 4)}], {1: "a", 2: None, 9: "b"}, {2: "a", 3: "c"})
    {1: 'a', 3: 'c'}
    """
    ids = set[int]().union(*(chain.from_iterable(replicas.values()) for replicas in topics))
    racks = {broker: known[broker] if broker in known else noted.get(broker) for broker in sorted(ids)}
    return {broker: rack for broker, rack in racks.items() if rack is not None}


def partition_racks(replicas: Mapping[str, Replicas], racks: Mapping[int, str]) -> dict[TopicPartition, frozenset[str]]:
    """The racks of each partition's replicas. Partitions without a known rack are left out.

    >>> partition_racks({"t": {0: (1, 2), 1: (3,)}}, {1: "a", 2: "a"})
    {TopicPartition(topic='t', partition=0): frozenset({'a'})}
    """
    made: dict[tuple[int, ...], frozenset[str]] = {}
    shared: dict[frozenset[str], frozenset[str]] = {}
    # equal sets are one object, since there are few of them for many partitions
    found = {}
    for topic, numbers in replicas.items():
        for number, brokers in numbers.items():
            if brokers not in made:
                one = frozenset(racks[broker] for broker in brokers if broker in racks)
                made[brokers] = shared.setdefault(one, one)
            if made[brokers]:
                found[TopicPartition(topic, number)] = made[brokers]
    return found
