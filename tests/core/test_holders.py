"""Partitions that are free by their owner nodes, but that a consumer still reads: this consumer is stopped first."""

from __future__ import annotations

from dataclasses import replace

from tests.core.groups import (
    NOW,
    T0,
    T1,
    T2,
    T3,
    Steps,
    altered,
    channel,
    command,
    decided,
    group,
    member,
    runs,
    settled,
)
from zkcoord.core.decisions import Decision, GrantPartitions, LookUpTopic, StopFetching
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import Response
from zkcoord.core.view import START, Channel, GroupView, Owner, QueuedCommand, TopicChange

ALL = (T0, T1, T2, T3)
SESSION_MS = 10_000


def kinds(decisions: list[Decision]) -> list[type[Decision]]:
    """The types of the decisions."""
    return [type(decision) for decision in decisions]


def held(name: str, *partitions: TopicPartition, commands: tuple[QueuedCommand, ...] = (), **values: object) -> Channel:
    """The channel of a consumer whose status says that it holds these partitions."""
    return channel(name, *commands, held=frozenset(partitions), **values)


def emptied(channels: list[Channel], owner: str = "", **values: object) -> GroupView:
    """The member a owned everything, and should own it. Somebody has set the owner of T0."""
    whole = settled(group([member("a")], {**dict.fromkeys(ALL, "a-0"), T0: owner}))
    return altered(replace(whole, channels={c.consumer_id: c for c in channels}), **values)


def test_the_holder_of_a_free_partition_is_stopped_before_the_grant() -> None:
    view = emptied([held("a", *ALL)])
    stop = StopFetching(consumer_id="a", partitions={T0: "a-0"}, why="the target has them elsewhere")
    assert decided(view) == [stop]
    obeying = held("a", *ALL, commands=(command("stop-fetcher", T0),))
    assert decided(emptied([obeying])) == []
    steps = Steps()
    decided(view, steps)
    assert kinds(decided(emptied([held("a", T1, T2, T3)]), steps)) == [GrantPartitions]


def test_an_owner_that_nobody_can_read_leaves_its_reader_at_work() -> None:
    assert decided(emptied([held("a", *ALL)], "?")) == []


def test_of_a_held_group_nobody_is_stopped_and_nobody_else_starts_what_is_read() -> None:
    view = emptied([held("a", *ALL)], requests=runs(hold="r1"), responses={"hold": Response(run="r1", state="held")})
    assert decided(view) == []


def test_a_start_that_stands_has_its_partition_until_its_consumer_has_answered() -> None:
    """The start's consumer may have read the owner before it was emptied. A consumer does not obey a start that it
    refused."""
    start = command(START, T0, thread="b-0")
    two = replace(emptied([]), members={"a": member("a"), "b": member("b", 2, threads={})})
    standing = replace(two, channels={"a": held("a", T1, T2, T3), "b": held("b", commands=(start,))})
    assert GrantPartitions not in kinds(decided(standing))
    refused = replace(start, error="bad command")
    over = replace(two, channels={"a": held("a", T1, T2, T3), "b": held("b", commands=(refused,))})
    assert GrantPartitions in kinds(decided(over))


def test_an_evicted_holders_partition_is_granted_after_its_grace() -> None:
    gone = held("gone", T0, evicted_ms=SESSION_MS)
    view, steps = emptied([held("a", T1, T2, T3), gone]), Steps()
    assert decided(view, steps) == []
    assert decided(view, steps, NOW + SESSION_MS - 1) == []
    assert GrantPartitions in kinds(decided(view, steps, NOW + SESSION_MS))


def test_a_dead_holders_partition_is_granted_at_once() -> None:
    assert GrantPartitions in kinds(decided(emptied([held("a", T1, T2, T3), held("gone", T0)])))


def test_of_two_that_say_that_they_hold_a_partition_the_other_one_is_still_known_when_one_goes() -> None:
    steps, one, other = Steps(), held("gone", T0, evicted_ms=SESSION_MS), held("a", *ALL)
    decided(emptied([one, other]), steps)
    assert kinds(decided(emptied([replace(one, held=frozenset()), other]), steps)) == [StopFetching]


def test_a_pause_is_not_answered_while_somebody_reads_what_is_free() -> None:
    view = emptied([held("a", T0)], requests=runs(pause="r1"))
    view = replace(view, owners=dict.fromkeys(ALL, Owner("", 6)))
    assert kinds(decided(view)) == [StopFetching]


def test_a_recreated_topic_is_not_dropped_while_a_free_partition_is_read() -> None:
    free = settled(group([member("a")], dict.fromkeys(ALL, ""), changed={"t": TopicChange.RECREATED}))
    assert kinds(decided(free)) == [LookUpTopic]
    assert kinds(decided(replace(free, channels={"a": held("a", T0)}))) == [StopFetching]
