"""Computes the plan of old members: each of them computes it alone from registrations and topics, without messages.

An old member fails until something changes if it cannot read one registration, or if others compute another plan and
hold its partitions. Then there is no plan, and the reason says what must change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.assignors.legacy.java_order import topics_of_all, topics_of_one
from zkcoord.core.assignors.legacy.round_robin import deal, ties
from zkcoord.core.given import shown
from zkcoord.core.model import Subscriber, TopicPartition, consumer_of
from zkcoord.errors import CorruptError
from zkcoord.legacy.reading import WildcardError, matched, read_as
from zkcoord.legacy.versions import OldVersion

RANGE, ROUND_ROBIN = "range", "roundrobin"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldGroup:
    """A group of old members as they see it in ZooKeeper, and their configuration."""

    version: OldVersion
    assignor: str  # "range", "roundrobin", or the name of an assignor of this project
    registrations: Mapping[str, str]  # consumer id -> the text of its node, in the order of the registrations
    topics: Mapping[str, tuple[int, ...]]  # topic that exists -> its partitions, ascending
    exclude_internal: bool = True


class Plan(NamedTuple):
    """`owners`: partition -> thread; None if there is no plan, then `error` says why. `tied`: partitions with equal
    hashes.
    """

    owners: Mapping[TopicPartition, str] | None
    error: str | None = None
    tied: tuple[TopicPartition, ...] = ()


def plan_of(group: OldGroup) -> Plan:
    """Return the plan of the members, or the reason why there is none."""
    try:
        given = AssignorInput(subscribers=_subscribers(group), partitions=group.topics, owned={})
        return Plan(_assigned(group, given), tied=_tied(group, given))
    except CorruptError as error:
        return Plan(None, str(error))


def _subscribers(group: OldGroup) -> tuple[Subscriber, ...]:
    excluded = group.version.internal if group.exclude_internal else frozenset()
    offered = [topic for topic in group.topics if topic not in excluded]
    taken = cache(lambda regex, black_list: matched(regex, offered, black_list=black_list))
    found: list[Subscriber] = []
    for name, text in group.registrations.items():
        try:
            threads = read_as(group.version, text).threads(taken)
        except WildcardError as error:
            raise CorruptError(
                f"consumer {shown(name)}: {error}; old members fail at it, or evaluate it by rules of their Java: no "
                "plan can be told"
            ) from None
        except CorruptError as error:
            raise CorruptError(
                f"consumer {shown(name)}: {error}; while it is there, no old member can rebalance"
            ) from None
        found.append(Subscriber(consumer_id=name, threads=threads))
    return tuple(found)


def _assigned(group: OldGroup, given: AssignorInput) -> dict[TopicPartition, str]:
    if group.assignor != ROUND_ROBIN:
        return ASSIGNORS[group.assignor](given)
    if not group.version.round_robin:
        return ASSIGNORS[RANGE](given)
    if group.version.equal_subscriptions:
        return _each_for_itself(group.version, given)
    return deal(given, *group.version.hashed_as, topics_of_all(given.subscribers))


def _tied(group: OldGroup, given: AssignorInput) -> tuple[TopicPartition, ...]:
    if group.assignor != ROUND_ROBIN or not group.version.round_robin:
        return ()
    return tuple(partition for tie in ties(given, *group.version.hashed_as) for partition in tie)


def _each_for_itself(version: OldVersion, given: AssignorInput) -> dict[TopicPartition, str]:
    """Round robin of 0.8.2 to 0.10.1. All topics must have the same threads. Each member orders partitions with equal
    hashes by its own list of topics."""
    topics = {topic: _threads_of(given, topic) for member in given.subscribers for topic in member.threads}
    if not topics and version.fails_without_topics:
        raise CorruptError("nobody subscribes to a topic: round robin of Kafka 0.8.2 fails then (KAFKA-1648)")
    first = min(topics, default="")
    for topic in sorted(topics):
        if topics[topic] != topics[first]:
            raise CorruptError(
                f"topics {shown(first)} and {shown(topic)} have different threads: round robin of Kafka {version.text} "
                "needs all members to subscribe to the same topics, each with the same number of threads"
            )
    if not ties(given, *version.hashed_as):
        return deal(given, *version.hashed_as)
    return _united(version, given)


def _united(version: OldVersion, given: AssignorInput) -> dict[TopicPartition, str]:
    """Return the shares that the members compute for themselves; CorruptError if two of them want the same
    partition."""
    owners: dict[TopicPartition, str] = {}
    for member in given.subscribers:
        if not member.threads:  # it has no list of topics, and no share
            continue
        for partition, thread in deal(given, *version.hashed_as, topics_of_one(member)).items():
            if consumer_of(thread) != member.consumer_id:
                continue
            if partition in owners:
                raise CorruptError(
                    f"{shown(str(partition))} is wanted by {shown(owners[partition])} and by {shown(thread)}: "
                    f"some partitions have equal hashes, and members of Kafka {version.text} that list topics in "
                    "different orders never agree on them; use range, or rename a topic"
                )
            owners[partition] = thread
    return owners


def _threads_of(given: AssignorInput, topic: str) -> frozenset[str]:
    return frozenset(thread for member in given.subscribers for thread in member.thread_ids(topic))
