"""The terms of the field as values: partitions, threads, subscribers, phases. They contain no path, no byte and no
clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """True when an assignor or an offset store may have this name.

    >>> is_name("sticky"), is_name("our.own-2"), is_name("Sticky"), is_name("")
    (True, True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def json_bytes(text: str) -> int:
    """The most bytes that a text takes in JSON, without its quotes. A character that is not plain ASCII takes up to
    twelve.

    >>> json_bytes("clicks"), json_bytes("a b"), json_bytes('"'), json_bytes("\\u00e4")
    (6, 3, 12, 12)
    """
    if text.isascii() and text.isprintable() and not ('"' in text or "\\" in text):
        return len(text)
    return sum(1 if " " <= c <= "~" and c not in '"\\' else 12 for c in text)


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then numerically by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Starting(dict[TopicPartition, int]):
    """One start of partitions by a consumer: partition -> the next offset to read.

    `number` is the number of the start; all starts of this consumer are counted from 1. `incarnations` maps a partition
    to the number of its topic's incarnation; 0, and a missing one, is unknown.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        number: int,
        incarnations: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        super().__init__(offsets)
        self.number, self.incarnations = number, incarnations or {}


def as_partitions(pairs: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Pairs of topic and number as partitions, in the same order. It runs without a Python step for each, since there
    are many."""
    return list(map(partial(tuple.__new__, TopicPartition), pairs))


def thread_id(consumer_id: str, number: int) -> str:
    """The name of one stream of a consumer: `<consumerId>-<n>`.

    >>> thread_id("g_h-1-aaaaaaaa", 0)
    'g_h-1-aaaaaaaa-0'
    """
    return f"{consumer_id}-{number}"


def consumer_of(thread: str) -> str:
    """The consumer of a thread: the part before the last `-` (as Kafka's own tools cut it).

    >>> consumer_of("g_h-1-aaaaaaaa-0")
    'g_h-1-aaaaaaaa'
    """
    return thread.rpartition("-")[0]


def number_of(thread: str) -> int:
    """The number of a thread: the part after the last `-`; 0 if that is no number.

    >>> number_of("g_h-1-aaaaaaaa-7"), number_of("somebody's-own")
    (7, 0)
    """
    number = thread.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One member as an assignor sees it: its threads by topic, its capacity and its rack.

    `capacity` is the largest sum of partitions' weights for all its threads together (a weight is 1 unless the group's
    record sets it); None: no limit. `rack` is where the member runs.
    """

    consumer_id: str
    threads: Mapping[str, int]  # topic -> number of threads, each at least 1
    rack: str | None = None
    capacity: int | None = None

    def thread_ids(self, topic: str) -> list[str]:
        """The ids of this member's threads that may read `topic`, in numeric order. Empty when it does not subscribe to
        the topic."""
        return [thread_id(self.consumer_id, n) for n in range(self.threads.get(topic, 0))]


class Rebalance(Enum):
    """How partitions move: only the moving ones stop, or (as in the draft) all stop before any starts."""

    COOPERATIVE = "cooperative"
    EAGER = "eager"


class Phase(Enum):
    """A group's phase, named as in Kafka's GroupCoordinator where it has the phase. It is a pure function of the
    tree."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    AWAITING_SYNC = "AwaitingSync"
    AWAITING_MEMBER = "AwaitingMember"  # at rest, but the share of an absent static member waits for it
    PAUSED = "Paused"  # at rest because somebody asked for it: nobody reads
    STABLE = "Stable"
    DEAD = "Dead"
    # layout legacy: the coordinator decides nothing; the old members share the group among themselves
    OBSERVED = "Observed"
