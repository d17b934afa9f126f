"""Room: a member is handed no more announced ranges than its status can hold. Until it has room again, it is asked for
its status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.core.groups import NOW, Steps, channel, group, member
from tests.core.test_replay import OFFERS
from zkcoord.core.decisions import Decision, GrantPartitions, PingMember
from zkcoord.core.member.status import ANNOUNCED_BYTES_MAX
from zkcoord.core.model import TopicPartition
from zkcoord.core.replay_quota import ASK_AGAIN_MS, HELD_BYTES_MAX, UNDER_WAY_BYTES_MAX, ReplayQuota, range_bytes
from zkcoord.core.state import Announced
from zkcoord.core.view import GroupView, Owner, QueuedCommand

WIDE = Announced(2**62, 2**62 + 9, 4)
MANY = tuple(range(1_000, 6_000))  # numbers of equal length, so each range takes the same room
WEIGHT = range_bytes(TopicPartition("t", 4_000), WIDE)


def handed_down(numbers: tuple[int, ...] = MANY, **held: object) -> GroupView:
    """b has died with an announced range for each of these partitions. a is there to take them."""
    ranges = {TopicPartition("t", number): WIDE for number in numbers}
    view = group(
        [member("a", **OFFERS)],
        dict.fromkeys(ranges, "b-0"),
        topics={"t": numbers},
        committed=dict.fromkeys(ranges, WIDE.start),
    )
    return replace(view, channels={"a": channel("a", **held), "b": channel("b", announced=ranges)})


def owning(view: GroupView, own: Iterable[TopicPartition]) -> GroupView:
    """The view in which a owns these partitions, too: its commits of them make room."""
    return replace(view, owners={**view.owners, **dict.fromkeys(own, Owner("a-0", 5))})


def told(view: GroupView, steps: Steps, now_ms: int = NOW) -> tuple[dict[TopicPartition, tuple[int, int]], list[str]]:
    """The ranges that are handed on, and the consumers that are asked for their statuses."""
    decisions: tuple[Decision, ...] = steps.step(view, now_ms)[0]
    grants = [d for d in decisions if isinstance(d, GrantPartitions)]
    for grant in grants:
        assert grant.partitions.keys() == grant.replay.keys()
    found = {p: r for grant in grants for p, r in grant.replay.items()}
    return found, [d.consumer_id for d in decisions if isinstance(d, PingMember)]


def test_no_more_is_under_way_than_its_bound() -> None:
    found, asked = told(handed_down(), Steps())
    weight = sum(range_bytes(p, r) for p, r in found.items())
    assert UNDER_WAY_BYTES_MAX - WEIGHT < weight <= UNDER_WAY_BYTES_MAX
    assert asked == []


def test_a_full_status_counts_and_its_member_is_asked_until_there_is_room() -> None:
    steps = Steps()
    own = {TopicPartition("u", number): WIDE for number in range(1_000, 1_000 + HELD_BYTES_MAX // WEIGHT)}
    view = owning(handed_down(announced=own), own)
    assert told(view, steps) == ({}, [])
    assert steps.step(view, NOW)[1] == NOW + ASK_AGAIN_MS
    assert told(view, steps, NOW + ASK_AGAIN_MS) == ({}, ["a"])
    waiting = QueuedCommand(sequence="0000000000", version=0, option="ping", threads={})
    pinged = replace(view, channels={**view.channels, "a": channel("a", waiting, announced=own)})
    assert told(pinged, steps, NOW + 2 * ASK_AGAIN_MS) == ({}, [])
    half = dict(list(own.items())[: len(own) // 2])
    answered = replace(view, channels={**view.channels, "a": replace(channel("a", announced=half), version=2)})
    found, asked = told(answered, steps, NOW + 2 * ASK_AGAIN_MS)
    assert len(found) > 1_000
    assert asked == []
    assert told(answered, steps, NOW + 3 * ASK_AGAIN_MS)[1] == ["a"]  # the last ranges are not in its status yet


def test_ranges_under_way_count() -> None:
    ranges = {TopicPartition("u", number): WIDE for number in range(1_000, 1_000 + UNDER_WAY_BYTES_MAX // WEIGHT)}
    start = QueuedCommand(
        sequence="0000000000", version=0, option="start-fetcher", threads=dict.fromkeys(ranges, "a-0"), replay=ranges
    )
    view = handed_down()
    view = replace(view, channels={**view.channels, "a": channel("a", start)})
    steps = Steps()
    assert told(view, steps) == ({}, [])
    assert told(view, steps, NOW + 9 * ASK_AGAIN_MS) == ({}, [])  # its acknowledgement will tell


def test_a_first_range_has_room_whatever_the_bound() -> None:
    topic = "t" * HELD_BYTES_MAX
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ranges = {first: WIDE, second: WIDE}
    view = group(
        [member("a", threads={topic: 1}, **OFFERS)],
        dict.fromkeys(ranges, "b-0"),
        topics={topic: (0, 1)},
        marked=frozenset({topic}),
        committed=dict.fromkeys(ranges, WIDE.start),
    )
    view = replace(view, channels={"a": channel("a"), "b": channel("b", announced=ranges)})
    assert told(view, Steps()) == ({first: WIDE[:2]}, [])


def test_a_full_member_is_granted_partitions_without_ranges() -> None:
    own = {TopicPartition("u", number): WIDE for number in range(1_000, 1_000 + HELD_BYTES_MAX // WEIGHT)}
    first, second = TopicPartition("t", 1_000), TopicPartition("t", 1_001)
    view = owning(handed_down((1_000, 1_001), announced=own), own)
    view = replace(view, committed={first: WIDE.start, second: WIDE.end})  # a commit has passed the second range
    grants = [d for d in Steps().step(view, NOW)[0] if isinstance(d, GrantPartitions)]
    assert [(dict(g.partitions), dict(g.replay)) for g in grants] == [({second: "a-0"}, {})]


def test_the_ranges_never_exceed_their_bound_whatever_is_announced() -> None:
    """The worst case behind the coordinator's back: the member announces as much as it may, and then takes all
    ranges."""
    handing, empty = ReplayQuota(), channel("a")
    taken = 0
    for number in MANY:
        if handing.takes(group([], {}), empty, TopicPartition("t", number), WIDE[:2]):
            taken += range_bytes(TopicPartition("t", number), WIDE)
    assert ANNOUNCED_BYTES_MAX + taken <= HELD_BYTES_MAX


def test_a_member_full_of_ranges_left_to_others_gets_one_range_at_a_time() -> None:
    """The other members may be full in the same way. Without this, nobody would ever read these partitions."""
    left = {TopicPartition("u", number): WIDE for number in range(1_000, 1_000 + HELD_BYTES_MAX // WEIGHT)}
    first, second = TopicPartition("t", 1_000), TopicPartition("t", 1_001)
    view = handed_down((1_000, 1_001), announced=left)
    assert told(view, Steps()) == ({first: WIDE[:2]}, [])
    reads = replace(view, owners={**view.owners, first: Owner("a-0", 6)})
    has = replace(reads.channels["a"], announced={**left, first: WIDE})
    assert told(replace(reads, channels={**reads.channels, "a": has}), Steps()) == ({}, [])
    committed = replace(reads, committed={second: WIDE.start})  # a ping's answer left the first range out
    assert told(committed, Steps()) == ({second: WIDE[:2]}, [])
