"""Probes: when they are due, and which answers show that a program hangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, altered, channel, command, decided, group, member, settled
from zkcoord.core.decisions import EvictMember, PingMember, RejectMember
from zkcoord.core.view import GroupView, QueuedCommand

EVERY_MS = 5_000
OFFERS = frozenset({"ping"})
PING = PingMember(consumer_id="a", why="a probe is due")


def probed(*commands: QueuedCommand, pinged: str = "", **said: Any) -> GroupView:
    """A group whose only member owns everything and is probed."""
    view = settled(group([member("a", offers=OFFERS)], dict.fromkeys((T0, T1, T2, T3), "a-0")))
    channels = {"a": channel("a", *commands, pinged=pinged, **said)}
    return altered(view, channels=channels, probe_interval_ms=EVERY_MS, max_probes=2)


def test_a_member_is_probed_once_at_a_time_at_the_interval_from_its_last_answer() -> None:
    steps = Steps()
    assert decided(probed(), steps) == []
    assert decided(probed(), steps, NOW + EVERY_MS) == [PING]
    ping = replace(command("ping", sequence=7), threads={})
    assert decided(probed(ping), steps, NOW + EVERY_MS + 100) == []
    answered = probed(pinged="0000000007")
    assert decided(answered, steps, NOW + EVERY_MS + 200) == []
    assert decided(answered, steps, NOW + 2 * EVERY_MS + 199) == []
    assert decided(answered, steps, NOW + 2 * EVERY_MS + 200) == [PING]


def test_nobody_is_probed_unasked_or_without_the_offer() -> None:
    steps = Steps()
    for view in (altered(probed(), probe_interval_ms=None), altered(probed(), members={"a": member("a")})):
        for at_ms in (NOW, NOW + EVERY_MS, NOW + 100 * EVERY_MS):
            assert decided(view, steps, at_ms) == []


def answers(*said: tuple[int | None, int | None], **fields: Any) -> list[Any]:
    """The decisions at the last of these answers (progress, lag). The first pair is the state at the first look."""
    steps, decisions = Steps(), []
    for number, (progress, lag) in enumerate(said):
        pinged = f"{number:010d}" if number else ""
        view = altered(probed(pinged=pinged, progress=progress, lag=lag), **fields)
        decisions = decided(view, steps, NOW + number * EVERY_MS)
    return decisions


def test_assigned_lagging_and_without_progress_at_every_probe_is_evicted_whatever_the_policy() -> None:
    why = "stalled: lag 3 and progress 10 unchanged at 2 probes"
    evict = EvictMember(consumer_id="a", sequence=None, session_timeout_ms=10_000, why=why)
    assert answers((10, 3), (10, 3)) == []
    assert answers((10, 3), (10, 3), (10, 3)) == [evict]
    assert answers((10, 3), (10, 3), (10, 3), on_timeout="fail") == [evict]


def test_moving_idle_and_silent_members_are_not_evicted() -> None:
    assert answers((10, 3), (10, 3), (11, 3), (11, 3)) == []  # the probes are counted from the last progress
    assert answers((10, 0), (10, 0), (10, 0), (10, 0)) == []
    assert answers((None, None), (None, None), (None, None), (None, None)) == []
    assert answers((None, 5), (None, 5), (None, 5), (None, 5)) == []


def test_a_session_timeout_below_the_groups_minimum_is_rejected_with_the_reason() -> None:
    view = altered(probed(), probe_interval_ms=None, session_timeout_min_ms=10_001)
    reason = "its session timeout of 10000 ms is below the group's minimum of 10001 ms"
    assert RejectMember(consumer_id="a", why=reason) in decided(view)
    assert decided(altered(view, session_timeout_min_ms=10_000)) == []


def test_a_member_whose_protocols_have_nothing_in_common_is_rejected_with_the_reason() -> None:
    view = altered(probed(), probe_interval_ms=None)
    assert decided(replace(view, members={"a": member("a", protocols=(1, 4))})) == []
    reason = "speaks the protocols 2 to 4, the others 1"
    newer = replace(view, members={"a": member("a", protocols=(2, 4))})
    assert RejectMember(consumer_id="a", why=reason) in decided(newer)


def test_a_rejected_member_is_evicted_after_its_rebalance_timeout() -> None:
    reject = replace(command("reject", sequence=3), threads={})
    view = altered(probed(reject), probe_interval_ms=None, on_timeout="fail")
    steps = Steps()
    decided(view, steps)
    assert not any(isinstance(d, EvictMember) for d in decided(view, steps, NOW + 59_999))
    why = "reject 0000000003 was not acknowledged within its retries"
    evict = EvictMember(consumer_id="a", sequence="0000000003", session_timeout_ms=10_000, why=why)
    assert [d for d in decided(view, steps, NOW + 60_000) if isinstance(d, EvictMember)] == [evict]


def test_an_answer_to_what_was_no_probe_is_not_judged() -> None:
    """A member without room for announced ranges is asked for its status every 2 s. Its batch may take longer."""
    steps = Steps()
    for number in range(20):
        view = probed(pinged=f"{number:010d}" if number else "", progress=10, lag=3)
        assert not any(isinstance(d, EvictMember) for d in decided(view, steps, NOW + number * EVERY_MS // 10))
