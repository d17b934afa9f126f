"""What a coordinator may ask Kafka about its topics and brokers, and Kafka's answers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

Partitions = Mapping[int, tuple[int, ...]]
"""Partition -> ids of the brokers with a replica, the preferred one first."""


class Kind(Enum):
    """The kinds of questions."""

    LIST = "list"  # all topics: names and partitions, without ids
    DESCRIBE = "describe"  # these topics, with their ids
    CLUSTER = "cluster"  # the brokers, with their racks


class Question(NamedTuple):
    """One request to Kafka."""

    kind: Kind
    topics: tuple[str, ...] = ()


class Broker(NamedTuple):
    """A broker's address, and its rack if it has one."""

    host: str
    port: int
    rack: str | None = None


class Listed(NamedTuple):
    """All topics of a cluster: name -> `shape_of` its partitions. `whole`: the answer also named a controller and
    brokers."""

    cluster_id: str
    brokers: frozenset[int]
    shapes: Mapping[str, str]
    whole: bool = True


class Told(NamedTuple):
    """One topic that was asked for by name. `missing`: the broker knows no such topic. `partitions` None: it told
    none."""

    topic_id: str | None = None
    partitions: Partitions | None = None
    missing: bool = False


class Described(NamedTuple):
    """The topics that were asked for by name."""

    topics: Mapping[str, Told]


class Cluster(NamedTuple):
    """The brokers that are up."""

    cluster_id: str
    brokers: Mapping[int, Broker]


class Silent(NamedTuple):
    """No answer to a question of this kind, and why."""

    kind: Kind
    why: str


Answer = Listed | Described | Cluster | Silent


def shape_of(partitions: Partitions) -> str:
    """The partitions and replicas as a short text. A comparison of two texts shows whether something changed.

    >>> shape_of({1: (2, 3), 0: (1,)})
    '0:1;1:2,3'
    """
    return ";".join(f"{number}:{','.join(map(str, partitions[number]))}" for number in sorted(partitions))
