"""A coordinator's decisions as whole values: each test gives it a view, and compares all decisions in order."""

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
    phase_of,
    settled,
    state_set,
)
from zkcoord.core.ack_timeouts import JOINING_MS, LINGER_MS, ack_timeout_ms
from zkcoord.core.decisions import (
    EvictMember,
    FoundGroup,
    GrantPartitions,
    MarkTopic,
    PurgeChannel,
    RejectMember,
    ReleaseForDraftMember,
    RemoveRefused,
    SetState,
    StateEvent,
    StopFetching,
)
from zkcoord.core.model import Phase
from zkcoord.core.state import Failure
from zkcoord.core.view import Channel, GroupView, Owner, Refusal


def test_a_group_seen_for_the_first_time_gets_its_record_before_anything_else() -> None:
    view = group([member("a")], {}, record_version=None, state_version=None)
    assert decided(view) == [FoundGroup(why="first sight of the group")]


def test_a_cold_group_is_raised_marked_and_granted_in_one_go() -> None:
    view = group([member("a"), member("b", 2)], {}, marked=frozenset())
    target = "t-0=a-0,t-1=a-0,t-2=b-0,t-3=b-0"
    assert decided(view) == [
        state_set(view, StateEvent.REBALANCE_STARTED, "the target is another one", generation=1, target=target),
        MarkTopic(topic="t", why="members subscribe to it"),
        GrantPartitions(consumer_id="a", partitions={T0: "a-0", T1: "a-0"}, why="available, and in the target"),
        GrantPartitions(consumer_id="b", partitions={T2: "b-0", T3: "b-0"}, why="available, and in the target"),
    ]


def test_a_group_at_its_target_is_left_alone() -> None:
    view = settled(group([member("a")], dict.fromkeys((T0, T1, T2, T3), "a-0")))
    assert decided(view) == []
    assert phase_of(view, dict.fromkeys((T0, T1, T2, T3), "a-0")) is Phase.STABLE


def test_a_joiner_is_given_nothing_before_it_is_released() -> None:
    view = settled(group([member("a"), member("b", 2)], dict.fromkeys((T0, T1, T2, T3), "a-0")))
    assert decided(view) == [
        StopFetching(consumer_id="a", partitions={T2: "b-0", T3: "b-0"}, why="the target has them elsewhere")
    ]


def half_released() -> GroupView:
    """a was told to stop t-2 and t-3 for b. It has released t-2."""
    members = [member("a"), member("b", 2)]
    stop = command("stop-fetcher", T2, T3, thread="b-0")
    channels = {"a": channel("a", stop), "b": channel("b")}
    view = settled(group(members, dict.fromkeys((T0, T1, T2, T3), "a-0"), channels=channels))
    assert decided(view) == []
    return replace(view, owners={**view.owners, T2: Owner("", 6)})


def test_partitions_of_an_outstanding_command_are_not_stopped_or_granted() -> None:
    view, steps = half_released(), Steps()
    decided(view, steps, NOW - LINGER_MS)
    assert decided(view, steps) == [
        GrantPartitions(consumer_id="b", partitions={T2: "b-0"}, why="available, and in the target")
    ]


def test_a_start_waits_a_moment_for_what_others_are_about_to_release_to_its_receiver() -> None:
    view, steps = half_released(), Steps()
    assert steps.step(view, NOW) == ((), NOW + LINGER_MS)
    assert decided(view, steps, NOW + LINGER_MS - 1) == []
    free = {T2: Owner("", 6), T3: Owner("", 6)}
    whole = replace(view, owners={**view.owners, **free}, channels={"a": channel("a"), "b": channel("b")})
    both = {T2: "b-0", T3: "b-0"}
    expected = [GrantPartitions(consumer_id="b", partitions=both, why="available, and in the target")]
    assert decided(whole, steps, NOW + LINGER_MS - 1) == expected


def test_a_start_does_not_wait_for_a_stop_in_favour_of_another_member() -> None:
    members = [member("a"), member("b", 2), member("c", 3)]
    stop = command("stop-fetcher", T1, thread="b-0")
    channels = {"a": channel("a", stop), "b": channel("b"), "c": channel("c")}
    view = settled(group(members, {T0: "a-0", T1: "a-0", T2: "", T3: "a-0"}, channels=channels))
    assert decided(view) == [
        GrantPartitions(consumer_id="c", partitions={T2: "c-0"}, why="available, and in the target")
    ]


def test_a_start_does_not_wait_for_a_stop_that_was_released_early_or_whose_member_has_died() -> None:
    released = half_released()
    released = replace(released, owners={**released.owners, T3: Owner("", 6)})
    both = {T2: "b-0", T3: "b-0"}
    assert decided(released) == [GrantPartitions(consumer_id="b", partitions=both, why="available, and in the target")]
    members = [member("b", 2), member("c", 3)]
    channels = {"a": channel("a", command("stop-fetcher", T2, T3, thread="b-0")), "b": channel("b"), "c": channel("c")}
    orphaned = settled(group(members, dict.fromkeys((T0, T1, T2, T3), "a-0"), channels=channels))
    assert [d.consumer_id for d in decided(orphaned) if isinstance(d, GrantPartitions)] == ["b", "c"]


def test_a_dead_members_partitions_are_granted_at_once_and_its_channel_is_removed() -> None:
    view = settled(group([member("b", 2)], {T0: "a-0", T1: "a-0", T2: "b-0", T3: "b-0"}))
    view = replace(view, channels={**view.channels, "a": channel("a")})
    assert decided(view) == [
        GrantPartitions(consumer_id="b", partitions={T0: "b-0", T1: "b-0"}, why="available, and in the target"),
        PurgeChannel(consumer_id="a", why="its registration is gone"),
    ]


def test_an_evicted_members_partitions_wait_for_its_session_timeout() -> None:
    view = settled(group([member("b", 2)], {T0: "a-0", T1: "b-0", T2: "b-0", T3: "b-0"}))
    view = replace(view, channels={**view.channels, "a": channel("a", evicted_ms=6_000)})
    steps = Steps()
    assert steps.step(view, NOW) == ((), NOW + 6_000)
    assert decided(view, steps, NOW + 5_999) == []
    grant = GrantPartitions(consumer_id="b", partitions={T0: "b-0"}, why="available, and in the target")
    assert decided(view, steps, NOW + 6_000) == [grant]
    assert decided(view, Steps(), NOW + 6_000) == []  # a new coordinator waits the whole grace again (F47)
    free = replace(view, owners={**view.owners, T0: Owner("b-0", 6)})
    assert decided(free, steps, NOW + 6_001) == [PurgeChannel(consumer_id="a", why="its registration is gone")]


def test_an_evicted_members_channel_stays_through_its_grace_for_unwanted_topics_too() -> None:
    """A member that subscribes to it may join, and the mark says that the evicted member may read on."""
    view = settled(group([], {T0: "a-0"}))
    view = replace(view, channels={"a": channel("a", evicted_ms=6_000)})
    steps, late = Steps(), member("b", 2)
    assert steps.step(view, NOW) == ((), NOW + 6_000)
    joined = replace(view, members={"b": late}, channels={**view.channels, "b": channel("b")})
    assert T0 not in {p for d in decided(joined, steps, NOW + 5_999) for p in getattr(d, "partitions", ())}
    assert decided(view, steps, NOW + 6_000) == [PurgeChannel(consumer_id="a", why="its registration is gone")]


def test_a_silent_member_is_evicted_when_its_retries_are_used_up() -> None:
    silent = member("a", rebalance_timeout_ms=1_000)
    stop = command("stop-fetcher", T2, T3, thread="b-0", sequence=4)
    channels = {"a": channel("a", stop), "b": channel("b")}
    owners = dict.fromkeys((T0, T1, T2, T3), "a-0")
    view = settled(group([silent, member("b", 2)], owners, channels=channels, max_rebalance_retries=1))
    steps, limit_ms = Steps(), ack_timeout_ms(1_000, 1)
    assert steps.step(view, NOW) == ((), NOW + limit_ms)
    why = "stop-fetcher 0000000004 was not acknowledged within its retries"
    evict = EvictMember(consumer_id="a", sequence="0000000004", session_timeout_ms=10_000, why=why)
    assert decided(view, steps, NOW + limit_ms) == [evict]
    failing = altered(view, on_timeout="fail")
    error = f"ConsumerRebalanceFailed: a: {why}"
    failure = Failure(error=error, since_generation=1)
    assert decided(failing, steps, NOW + limit_ms) == [
        state_set(failing, StateEvent.REBALANCE_FAILED, error, failed=failure)
    ]
    assert decided(altered(failing, failed=failure), steps, NOW + limit_ms) == []
    acknowledged = altered(failing, failed=failure, channels={"a": channel("a"), "b": channel("b")})
    assert state_set(failing, StateEvent.REBALANCE_RECOVERED, "acknowledged after all") in decided(
        acknowledged, steps, NOW + limit_ms
    )


def test_a_channel_without_registration_is_left_to_a_joining_consumer_for_a_while() -> None:
    view = settled(group([], {}, topics={}))
    view = replace(view, channels={"new": Channel(consumer_id="new", version=0)})
    steps = Steps()
    assert decided(view, steps) == []
    assert decided(view, steps, NOW + JOINING_MS) == [PurgeChannel(consumer_id="new", why="its registration is gone")]


def test_a_member_that_leaves_nothing_in_common_is_sent_away_and_the_group_goes_on() -> None:
    old, odd = member("a", 1, assignors=("range",)), member("b", 2, assignors=("sticky",))
    view = settled(group([old, odd], dict.fromkeys((T0, T1, T2, T3), "a-0")))
    reason = "offers the assignors ['sticky'], the group uses ['range']: offer one of these"
    assert decided(view) == [RejectMember(consumer_id="b", why=reason)]


def test_an_unreadable_member_is_neither_dead_nor_given_anything() -> None:
    broken = member("a", unreadable="no JSON")
    view = settled(group([broken, member("b", 2)], {T0: "a-0", T1: "b-0", T2: "b-0", T3: "b-0"}))
    assert decided(view) == [StopFetching(consumer_id="a", partitions={T0: "b-0"}, why="the target has them elsewhere")]


def test_a_refused_start_is_tried_again_later_and_later_still() -> None:
    steps = Steps()
    view = settled(group([member("a")], dict.fromkeys((T1, T2, T3), "a-0")))

    def refusing(sequence: str) -> GroupView:
        refusals = {T0: Refusal(1, sequence, "no disk")}
        return replace(view, channels={"a": channel("a", refusals=refusals)})

    again = GrantPartitions(consumer_id="a", partitions={T0: "a-0"}, why="available, and in the target")
    assert steps.step(refusing("0000000001"), NOW) == ((), NOW + 2_000)
    assert decided(refusing("0000000001"), steps, NOW + 2_000) == [again]
    assert steps.step(refusing("0000000002"), NOW + 3_000) == ((), NOW + 7_000)


def test_a_refused_command_is_removed() -> None:
    refused = replace(command("start-fetcher", T0, thread="a-0"), error="version is 9")
    view = settled(group([member("a")], dict.fromkeys((T0, T1, T2, T3), "a-0")))
    view = replace(view, channels={"a": channel("a", refused, refused_mark=True)})
    why = "its consumer refused it: version is 9"
    assert decided(view) == [RemoveRefused(consumer_id="a", sequence="0000000000", why=why)]


def test_a_partition_that_is_gone_is_stopped_with_nobody_next() -> None:
    view = group([member("a")], dict.fromkeys((T0, T1, T2, T3), "a-0"), topics={"t": (0, 1, 2)})
    assert decided(settled(view)) == [
        StopFetching(consumer_id="a", partitions={T3: ""}, why="the target has them elsewhere")
    ]


def test_every_partial_tree_leads_to_the_same_target() -> None:
    members = [member("a"), member("b", 2)]
    start = settled(group(members, dict.fromkeys((T0, T1, T2, T3), "a-0")))
    for released in ([], [T2], [T3], [T2, T3]):
        owners = {p: Owner("" if p in released else "a-0", 6) for p in (T0, T1, T2, T3)}
        after = replace(start, owners=owners)
        assert not any(isinstance(d, SetState) for d in decided(after)), released


def test_an_owner_that_names_nobody_is_granted_to_nobody() -> None:
    view = settled(group([member("a")], {T0: "?", T1: "a-0", T2: "a-0", T3: "a-0"}))
    assert decided(view) == []


def test_a_draft_only_members_stopped_partitions_are_freed_after_its_stop() -> None:
    old = member("a", speaks_protocol=False, assignors=())
    owners = dict.fromkeys((T0, T1, T2, T3), "a-0")
    view = settled(group([old, member("b", 2)], owners))
    stop = StopFetching(consumer_id="a", partitions={T2: "b-0", T3: "b-0"}, why="the target has them elsewhere")
    assert decided(view) == [stop]
    told = replace(view, draft_stops=frozenset({T2, T3}))
    asked = {"a": channel("a", command("stop-fetcher", T2, T3, thread="b-0")), "b": channel("b")}
    assert decided(replace(told, channels=asked)) == []
    why = "its consumer, which knows only the draft, has stopped"
    assert decided(told) == [ReleaseForDraftMember(consumer_id="a", partitions=(T2, T3), why=why)]
    gone = replace(told, members={"b": member("b", 2)}, channels={"b": channel("b")})
    grants = [d for d in decided(gone) if isinstance(d, GrantPartitions)]
    assert [d.partitions for d in grants] == [dict.fromkeys((T0, T1, T2, T3), "b-0")]
