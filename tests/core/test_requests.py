"""People's requests: the stops, the grants and the answers that follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    runs,
    settled,
    state_set,
    states,
)
from zkcoord.core.ack_timeouts import ack_timeout_ms
from zkcoord.core.decisions import GrantPartitions, SetState, StateEvent, StopFetching, WriteResponse
from zkcoord.core.model import Phase, Rebalance
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import Request, Response
from zkcoord.core.requests import has_stopped
from zkcoord.core.view import GroupView, Owner
from zkcoord.tree.request import value_of

ALL = (T0, T1, T2, T3)
IN_TARGET = "available, and in the target"


FORGIVEN = "the group has changed, or was asked to rebalance"


def joined() -> GroupView:
    """The member b has joined a, which owns everything. The raised generation is written."""
    return settled(group([member("a"), member("b", 2)], dict.fromkeys(ALL, "a-0")))


def asking(view: GroupView, name: str, **fields: object) -> GroupView:
    """The view with a request of the run r1."""
    return altered(view, requests=runs(**{name: "r1"}), **fields)  # type: ignore[arg-type]


def answer(name: str, state: str | None, why: str, *, ends: bool = False, reason: str = "") -> WriteResponse:
    """An answer to run r1."""
    return WriteResponse(request=name, run="r1", state=state, reason=reason, ends=ends, why=why)


def test_a_hold_stops_nothing() -> None:
    view = asking(joined(), "hold")
    held = answer("hold", "held", "nothing is stopped from now on")
    assert decided(view) == [held]
    assert decided(altered(view, responses={"hold": Response(run="r1", state="held")})) == []


def test_a_hold_grants_what_is_available() -> None:
    view = asking(joined(), "hold", responses={"hold": Response(run="r1", state="held")})
    view = replace(view, owners={**view.owners, T2: Owner("", 9)})
    assert decided(view) == [GrantPartitions(consumer_id="b", partitions={T2: "b-0"}, why=IN_TARGET)]


def test_a_hold_ends_an_eager_stop() -> None:
    held = {"hold": Response(run="r1", state="held")}
    view = asking(joined(), "hold", responses=held, rebalance=Rebalance.EAGER, stopping=True)
    assert decided(view) == [state_set(view, StateEvent.STOPPED, "the group is held or paused", stopping=False)]


def test_a_pause_stops_everything_grants_nothing_and_is_answered_when_all_have_stopped() -> None:
    view = asking(settled(group([member("a")], {T0: "a-0", T1: "a-0", T2: "a-0", T3: ""})), "pause")
    stopped = dict.fromkeys((T0, T1, T2), "a-0")
    assert decided(view) == [StopFetching(consumer_id="a", partitions=stopped, why="the group is paused")]
    acknowledged = replace(view, owners={p: Owner("", 6) for p in ALL})
    stop = command("stop-fetcher", T0)
    assert decided(replace(acknowledged, channels={"a": channel("a", stop)})) == []
    assert decided(acknowledged) == [answer("pause", "paused", "everything has stopped, nothing is granted")]
    assert decided(altered(acknowledged, responses={"pause": Response(run="r1", state="paused")})) == []
    assert phase_of(acknowledged, dict.fromkeys(ALL, "a-0")) is Phase.PREPARING_REBALANCE


@pytest.mark.parametrize("state", list(MoveState))
def test_a_group_that_moves_or_was_moved_reads_nothing_here_whoever_resumes_it(state: MoveState) -> None:
    moved = Moved(state=state, tree="bb", address="zk2:2181", run="r1")
    view = settled(group([member("a")], {T0: "a-0", T1: "a-0", T2: "a-0", T3: ""}))
    view = replace(view, record=replace(view.record, moved=moved))
    stopped = dict.fromkeys((T0, T1, T2), "a-0")
    assert decided(view) == [StopFetching(consumer_id="a", partitions=stopped, why="the group is paused")]
    assert decided(replace(view, owners={p: Owner("", 6) for p in ALL})) == []


def test_a_paused_group_raises_no_generation() -> None:
    view = asking(joined(), "pause", target="another", owners={})
    assert decided(view) == [answer("pause", "paused", "everything has stopped, nothing is granted")]


def test_a_resumed_group_is_granted_what_it_had() -> None:
    view = settled(
        group([member("a")], dict.fromkeys(ALL, ""), responses={"pause": Response(run="r1", state="paused")})
    )
    assert decided(view) == [
        GrantPartitions(consumer_id="a", partitions=dict.fromkeys(ALL, "a-0"), why=IN_TARGET),
        answer("pause", None, "pause was taken back"),
    ]


def test_a_reset_stops_everything_and_lets_offsets_be_written_once_all_have_stopped() -> None:
    view = asking(settled(group([member("a")], {T0: "a-0", T1: "a-0", T2: "a-0", T3: ""})), "reset")
    stopped = dict.fromkeys((T0, T1, T2), "a-0")
    assert decided(view) == [StopFetching(consumer_id="a", partitions=stopped, why="its offsets are to be reset")]
    released = replace(view, owners={p: Owner("", 6) for p in ALL})
    assert decided(released) == [answer("reset", "stopped", "everything has stopped: offsets may be written")]
    done = altered(released, responses={"reset": Response(run="r1", state="stopped")})
    assert decided(done) == []
    assert (has_stopped(done.record), has_stopped(released.record)) == (True, False)
    assert decided(altered(done, requests={}))[-1] == answer("reset", None, "reset was taken back")


@pytest.mark.parametrize("run", ["r1", ""])
@pytest.mark.parametrize(
    ("expiry", "after_ms"), [({}, 600_000), ({"expiry_ms": 5_000}, 5_000), ({"expiry_ms": "x"}, 600_000)]
)
def test_a_reset_that_its_tool_does_not_end_in_time_becomes_a_pause(
    expiry: dict[str, object], after_ms: int, run: str
) -> None:
    steps = Steps()
    view = settled(group([member("a")], dict.fromkeys(ALL, "")))
    done = {"reset": Response(run=run, state="stopped")}
    view = altered(view, requests={"reset": value_of(Request, {"run": run, **expiry})}, responses=done)
    assert decided(view, steps) == []
    assert decided(view, steps, NOW + after_ms - 1) == []
    (ended,) = decided(view, steps, NOW + after_ms)
    assert isinstance(ended, WriteResponse)
    assert (ended.request, ended.run, ended.state, ended.ends, ended.pauses) == ("reset", run, "expired", True, True)


def test_a_rebalance_asks_the_assignor_again_once() -> None:
    steps = Steps()
    view = settled(group([member("a"), member("b", 2)], {T0: "a-0", T1: "a-0", T2: "b-0", T3: "b-0"}))
    assert decided(view, steps) == []
    asked = steps.last.target.assignment
    assert decided(asking(view, "rebalance"), steps) == [
        answer("rebalance", "done", "the target was asked for again", ends=True)
    ]
    assert steps.last.target.assignment == asked
    assert steps.last.target.assignment is not asked


@pytest.mark.parametrize("standing", ["pause", "hold"])
def test_a_rebalance_of_a_group_that_is_kept_still_is_refused_with_the_reason(standing: str) -> None:
    view = settled(group([member("a")], {}))
    word = {"pause": "paused", "hold": "held"}[standing]
    requests = runs(**{standing: "r0", "rebalance": "r1"})
    view = altered(view, requests=requests, responses={standing: Response(run="r0", state=word)})
    reason = f"the group is {word}: resume it first"
    assert answer("rebalance", "refused", reason, ends=True, reason=reason) in decided(view)


def failed(steps: Steps) -> tuple[GroupView, int]:
    """A group that was marked failed, since a does not acknowledge a stop. Returns the time, too."""
    stop = command("stop-fetcher", T2, T3, thread="b-0", sequence=4)
    silent = member("a", rebalance_timeout_ms=1_000)
    channels = {"a": channel("a", stop), "b": channel("b")}
    members = [silent, member("b", 2)]
    view = settled(group(members, dict.fromkeys(ALL, "a-0"), channels=channels, on_timeout="fail"))
    decided(view, steps)
    now_ms = NOW + ack_timeout_ms(1_000, view.record.policy.max_rebalance_retries)
    (mark,) = decided(view, steps, now_ms)
    assert isinstance(mark, SetState)
    assert mark.event is StateEvent.REBALANCE_FAILED
    return replace(view, state=mark.state), now_ms


def test_a_failure_outlives_a_failover() -> None:
    view, now_ms = failed(Steps())
    assert decided(view, Steps(), now_ms) == []


def test_a_failure_of_an_earlier_generation_does_not_outlive_a_failover() -> None:
    """The coordinator that raised the generation was to clear the failure, and is gone. The earlier command is still
    outstanding."""
    view, now_ms = failed(Steps())
    raised = altered(view, generation=view.state.generation + 1)
    (cleared,) = decided(raised, Steps(), now_ms)
    assert isinstance(cleared, SetState)
    assert (cleared.event, cleared.state.failed) == (StateEvent.REBALANCE_RECOVERED, None)


def test_a_failure_is_cleared_by_a_rebalance_and_comes_back_when_nothing_is_acknowledged() -> None:
    steps = Steps()
    view, now_ms = failed(steps)
    assert decided(asking(view, "rebalance"), steps, now_ms) == [
        state_set(view, StateEvent.REBALANCE_RECOVERED, FORGIVEN, failed=None),
        answer("rebalance", "done", "the target was asked for again", ends=True),
    ]
    cleared = altered(view, failed=None)
    assert decided(cleared, steps, now_ms) == []
    again_ms = now_ms + ack_timeout_ms(1_000, view.record.policy.max_rebalance_retries)
    assert decided(cleared, steps, again_ms) == [state_set(view, StateEvent.REBALANCE_FAILED, view.state.failed.error)]


def test_a_failure_is_cleared_by_the_next_change() -> None:
    steps = Steps()
    view, now_ms = failed(steps)
    view = replace(
        view,
        members={**view.members, "c": member("c", 3)},
        channels={**view.channels, "c": channel("c")},
    )
    decisions, _ = steps.step(view, now_ms)
    [recovered] = [d for d in decisions if isinstance(d, SetState) and d.event is StateEvent.REBALANCE_RECOVERED]
    assert (recovered.why, recovered.state.failed) == (FORGIVEN, None)
    [raised] = states(decisions, StateEvent.REBALANCE_STARTED)
    assert recovered.state == replace(raised, failed=None)  # written after the raise, and with the raise's values


def test_nobody_writes_into_a_record_that_cannot_be_read() -> None:
    view = asking(joined(), "hold", answerable=False)
    assert decided(view) == []


def test_a_young_group_waits_for_joins_up_to_a_ceiling() -> None:
    steps = Steps()
    first = group([member("a", rebalance_timeout_ms=5_000)], {}, initial_delay_ms=3_000)
    assert steps.step(first, NOW) == ((), NOW + 3_000)
    members = [member("a", rebalance_timeout_ms=5_000), member("b", 2, rebalance_timeout_ms=4_000)]
    both = group(members, {}, initial_delay_ms=3_000)
    assert steps.step(both, NOW + 2_900) == ((), NOW + 5_000)
    granted = decided(both, steps, NOW + 5_000)
    assert [type(decision).__name__ for decision in granted] == ["SetState", *["GrantPartitions"] * 2]
    owned = settled(group(members, dict.fromkeys(ALL, "a-0"), initial_delay_ms=3_000))
    assert [type(decision) for decision in decided(owned, steps, NOW + 5_100)] == [StopFetching]
    assert decided(replace(owned, owners={}), steps, NOW + 5_200) != []  # no new wait before it was empty
