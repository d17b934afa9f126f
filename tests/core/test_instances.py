"""Static members: whose share waits, and for how long, and the effects of a return, of a second process, and of an
eviction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.core.groups import (
    NOW,
    T0,
    T1,
    T2,
    T3,
    Steps,
    altered,
    channel,
    decided,
    group,
    member,
    runs,
    settled,
    state_set,
    states,
)
from zkcoord.core.decisions import (
    Decision,
    GrantPartitions,
    PurgeChannel,
    RejectMember,
    RememberInstances,
    StateEvent,
    StopFetching,
)
from zkcoord.core.instances import remembered
from zkcoord.core.model import Phase, TopicPartition
from zkcoord.core.phase import phase_reason, planned_phase
from zkcoord.core.record import Response
from zkcoord.core.view import GroupView, Instance, Member, Owner

HOLD_MS = 30_000
WHY = "what static members have, and who is waited for"
GRANT_WHY = "available, and in the target"


def static(name: str, czxid: int = 1, **fields: Any) -> Member:
    """A static member. Its instance name is the first letter of its id."""
    return member(name, czxid, **{"instance": name[0], "hold_ms": HOLD_MS, **fields})


def known(last_id: str, *partitions: TopicPartition) -> Instance:
    """The state's entry for an instance."""
    share = dict.fromkeys(partitions, 0)
    return Instance(last_id=last_id, hold_ms=HOLD_MS, threads={"t": 1}, share=share, assignor="sticky")


SHARES = {"a": known("a1", T0, T1), "b": known("b1", T2, T3)}
OWNERS = {T0: "a1-0", T1: "a1-0", T2: "b1-0", T3: "b1-0"}


def full() -> GroupView:
    """Two static members at rest."""
    return settled(group([static("a1"), static("b1", 2)], OWNERS, instances=SHARES))


def without_a(view: GroupView, owners: dict[TopicPartition, str] | None = None, *, noted: bool = True) -> GroupView:
    """The same group after a1 has gone, and (`noted`) its absence was written into the state."""
    nodes = {p: Owner(thread, 6) for p, thread in (owners or OWNERS).items()}
    members = {c: m for c, m in view.members.items() if c != "a1"}
    instances = {i: replace(each, away=i == "a" and noted) for i, each in view.instances.items()}
    channels = {c: channel(c) for c in members}
    return replace(view, members=members, channels=channels, owners=nodes, instances=instances)


def test_f65_a_waiting_share_is_noted_once_and_so_is_its_instances_return() -> None:
    note = RememberInstances(known={"a": replace(SHARES["a"], away=True)}, forgotten=(), away=("a",), why=WHY)
    assert decided(without_a(full(), noted=False)) == [note]
    paused = {"requests": runs(pause="r"), "responses": {"pause": Response(run="r", state="paused")}}
    freed = dict.fromkeys(OWNERS, "")
    assert decided(altered(without_a(full(), freed, noted=False), **paused)) == [note]
    back = without_a(full(), freed)
    back = altered(back, members={**back.members, "a2": static("a2", 9)}, **paused)
    assert decided(replace(back, channels={**back.channels, "a2": channel("a2")})) == [
        RememberInstances(known={"a": SHARES["a"]}, forgotten=(), returned=("a",), why=WHY)
    ]


def phase_now(view: GroupView) -> tuple[Phase, str]:
    """The phase of the group for a coordinator, and the reason."""
    steps = Steps()
    decisions, _ = steps.step(view)
    target = steps.last.target
    found = planned_phase(view, target, steps.last.difference.value.owning, decisions)
    return found, phase_reason(found, view, target, decisions)


def test_f65_a_group_is_not_stable_while_a_share_waits_for_its_instance() -> None:
    assert phase_now(full()) == (Phase.STABLE, "every partition has a reader, and no command is outstanding")
    why = "2 partitions have no reader: they wait for a"
    for noted in (False, True):
        assert phase_now(without_a(full(), noted=noted)) == (Phase.AWAITING_MEMBER, why)


def test_a_paused_group_that_has_come_to_rest_is_told_apart_from_one_at_work() -> None:
    stopping = altered(full(), requests=runs(pause="r"))
    assert phase_now(stopping)[0] is Phase.PREPARING_REBALANCE
    rest = altered(
        stopping, responses={"pause": Response(run="r", state="paused")}, owners={p: Owner("", 6) for p in OWNERS}
    )
    assert phase_now(rest) == (Phase.PAUSED, "it is paused (run r)")
    assert phase_now(replace(rest, members={}, channels={}))[0] is Phase.EMPTY
    again = altered(rest, requests=runs(pause="s"))
    assert phase_now(again)[0] is Phase.PREPARING_REBALANCE


def test_shares_of_static_members_are_written_with_the_generation() -> None:
    view = group([static("a1"), static("b1", 2)], {})
    target = "t-0=@a-0,t-1=@a-0,t-2=@b-0,t-3=@b-0"
    assert decided(view) == [
        state_set(view, StateEvent.REBALANCE_STARTED, "the target is another one", generation=1, target=target),
        RememberInstances(known=SHARES, forgotten=(), why=WHY),
        GrantPartitions(consumer_id="a1", partitions={T0: "a1-0", T1: "a1-0"}, why=GRANT_WHY),
        GrantPartitions(consumer_id="b1", partitions={T2: "b1-0", T3: "b1-0"}, why=GRANT_WHY),
    ]
    assert decided(full()) == []


def test_a_share_waits_for_its_instance_after_any_end_and_then_goes_to_others() -> None:
    for owners in (OWNERS, {**OWNERS, T0: "", T1: ""}):
        away, steps = without_a(full(), owners), Steps()
        assert steps.step(away, NOW) == ((), NOW + HOLD_MS)
        assert decided(away, steps, NOW + HOLD_MS - 1) == []
        assert decided(away, Steps(), NOW + HOLD_MS) == []  # a new coordinator waits the whole hold again
        over = decided(away, steps, NOW + HOLD_MS)
        target = "t-0=@b-0,t-1=@b-0,t-2=@b-0,t-3=@b-0"
        assert over[0] == state_set(away, StateEvent.REBALANCE_STARTED, over[0].why, generation=2, target=target)
        assert over[1:] == [
            RememberInstances(known={"b": known("b1", T0, T1, T2, T3)}, forgotten=("a",), why=WHY),
            GrantPartitions(consumer_id="b1", partitions={T0: "b1-0", T1: "b1-0"}, why=GRANT_WHY),
        ]


def test_an_instance_that_returns_is_given_its_share_under_its_new_id_and_nothing_moves() -> None:
    for owners in (OWNERS, {**OWNERS, T0: "", T1: ""}):
        back = without_a(full(), owners)
        back = replace(back, members={**back.members, "a2": static("a2", 9)})
        back = replace(back, channels={**back.channels, "a2": channel("a2")})
        assert decided(back) == [
            RememberInstances(known={"a": known("a2", T0, T1)}, forgotten=(), returned=("a",), why=WHY),
            GrantPartitions(consumer_id="a2", partitions={T0: "a2-0", T1: "a2-0"}, why=GRANT_WHY),
        ]


def test_new_partitions_do_not_wait_for_who_is_away() -> None:
    away = replace(without_a(full()), topics={"t": (0, 1, 2, 3, 4, 5)})
    grants = [d for d in decided(away) if isinstance(d, GrantPartitions)]
    t4, t5 = TopicPartition("t", 4), TopicPartition("t", 5)
    assert grants == [GrantPartitions(consumer_id="b1", partitions={t4: "b1-0", t5: "b1-0"}, why=GRANT_WHY)]


def test_an_eviction_and_a_requested_rebalance_end_the_hold() -> None:
    away = without_a(full())
    marked = replace(away, channels={**away.channels, "a1": channel("a1", evicted_ms=6_000)})
    assert RememberInstances(known={"b": known("b1", T0, T1, T2, T3)}, forgotten=("a",), why=WHY) in decided(marked)
    requested = altered(away, requests=runs(rebalance="r"))
    grant = GrantPartitions(consumer_id="b1", partitions={T0: "b1-0", T1: "b1-0"}, why=GRANT_WHY)
    assert grant in decided(requested)


def doubled(**fields: Any) -> tuple[GroupView, list[Decision]]:
    """The instance a registers a second time while its first registration lives."""
    view = full()
    view = replace(view, members={**view.members, "a2": static("a2", 9, **fields)})
    view = replace(view, channels={**view.channels, "a2": channel("a2")})
    return view, decided(view)


def test_f40_the_newer_registration_of_an_instance_wins_and_the_older_goes_for_good() -> None:
    _, decisions = doubled()
    reason = "another process has registered as the instance a: a2; stop one of the two, or give it another name"
    assert decisions == [
        RejectMember(consumer_id="a1", why=reason, final=True),
        RememberInstances(known={"a": known("a2", T0, T1)}, forgotten=(), why=WHY),
        StopFetching(consumer_id="a1", partitions={T0: "a2-0", T1: "a2-0"}, why="the target has them elsewhere"),
    ]


def test_a_replacing_member_takes_common_topics_and_rejects_nobody() -> None:
    for fields in ({}, {"instance": None, "hold_ms": 0}):
        _, decisions = doubled(replaces="a1", threads={"t": 1, "u": 1}, **fields)
        moved = StopFetching(consumer_id="a1", partitions={T0: "a2-0", T1: "a2-0"}, why="the target has them elsewhere")
        assert [d for d in decisions if isinstance(d, StopFetching)] == [moved]
        assert not any(isinstance(d, RejectMember) for d in decisions)


def evictions(count: int) -> tuple[Steps, int]:
    """The steps of a coordinator that has evicted the instance a `count` times, and the time when it saw the last
    eviction."""
    steps, at_ms = Steps(), NOW
    for number in range(count):
        name = f"a{number}"
        view = settled(group([static(name), static("b1", 2)], {}))
        decided(view, steps, at_ms)
        marked = {name: channel(name, evicted_ms=6_000), "b1": channel("b1")}
        at_ms += 100
        decided(replace(view, members={"b1": static("b1", 2)}, channels=marked), steps, at_ms)
    return steps, at_ms


def test_an_evicted_instance_that_does_not_wait_is_held_off_longer_each_time() -> None:
    for count, wait_ms in ((1, 1_000), (2, 2_000), (3, 5_000), (4, 10_000), (5, 30_000), (6, 30_000)):
        steps, at_ms = evictions(count)
        back = group([static("a9", 9), static("b1", 2)], {})
        assert _granted(decided(back, steps, at_ms + wait_ms - 1)) == {"b1"}
        assert _granted(decided(back, steps, at_ms + wait_ms)) == {"a9", "b1"}


def test_an_older_registration_that_is_evicted_does_not_hold_the_newer_one_of_its_instance_off() -> None:
    steps, others = Steps(), [static("a2", 9), static("b1", 2)]
    decided(group([static("a1"), *others], {}), steps)
    gone = group(others, {})
    gone = replace(gone, channels={**gone.channels, "a1": channel("a1", evicted_ms=6_000)})
    assert _granted(decided(gone, steps, NOW + 100)) == {"a2", "b1"}


def test_a_successor_counts_as_owner_of_the_partitions_that_its_threads_can_have() -> None:
    heir = member("heir", 9, replaces="a")
    view = group([member("a", threads={"t": 3}), heir], {T0: "a-0", T1: "a-2", T2: "b-0"})
    assert remembered(view, [heir]) == {T0: "heir-0"}


def _granted(decisions: list[Decision]) -> set[str]:
    return {d.consumer_id for d in decisions if isinstance(d, GrantPartitions)}


def test_a_channel_of_who_is_away_is_removed() -> None:
    away = without_a(full())
    away = replace(away, channels={**away.channels, "a1": channel("a1")})
    assert decided(away) == [PurgeChannel(consumer_id="a1", why="its registration is gone")]


def test_the_assignor_stays_while_the_oldest_is_away_and_when_it_is_back_as_the_youngest() -> None:
    """Each member prefers another assignor. Whoever is away, the target waits unchanged."""
    likes = {"a1": ("sticky", "range"), "b1": ("range", "sticky")}
    members = [static(name, czxid, assignors=likes[name]) for czxid, name in enumerate(likes, 1)]
    owners = {T0: "a1-0", T1: "b1-0", T2: "a1-0", T3: "b1-0"}  # `range` would give another assignment
    shares = {"a": known("a1", T0, T2), "b": known("b1", T1, T3)}
    full_ = settled(group(members, owners, instances=shares))
    assert decided(full_) == []
    away = without_a(full_, owners)
    assert decided(away) == []
    back = replace(away, members={**away.members, "a2": static("a2", 9, assignors=likes["a1"])})
    back = replace(back, channels={**back.channels, "a2": channel("a2")})
    assert [type(decision) for decision in decided(back)] == [RememberInstances, GrantPartitions]
    asked = altered(away, requests=runs(rebalance="r1"))
    raised = {"generation": 2, "target": "t-0=@b-0,t-1=@b-0,t-2=@b-0,t-3=@b-0"}
    assert decided(asked)[0] == state_set(asked, StateEvent.REBALANCE_STARTED, "the target is another one", **raised)
    other = replace(away.members["b1"], assignors=("range",))  # the remaining member cannot use it
    assert states(decided(replace(away, members={"b1": other})), StateEvent.REBALANCE_STARTED)


def test_an_absent_member_keeps_its_rack_and_capacity() -> None:
    """Before the fix, without its rack, partitions near it went to the other member of that rack; without its capacity,
    other members' partitions moved."""
    near = {T0: "east", T1: "east"}
    members = [static("a1", rack="east"), static("b1", 2, rack="east")]
    shares = {i: replace(share, rack="east") for i, share in SHARES.items()}
    full_ = altered(settled(group(members, OWNERS, instances=shares)), racks=near)
    assert decided(full_) == []
    assert decided(without_a(full_)) == []
    members = [static("a1", capacity=2), static("b1", 2)]
    owners = {T0: "b1-0", T1: "b1-0", T2: "a1-0", T3: "a1-0"}
    shares = {"a": replace(known("a1", T2, T3), capacity=2), "b": known("b1", T0, T1)}
    full_ = altered(group(members, owners, instances=shares), weights={T0: 3, T1: 3, T2: 1})
    full_ = settled(full_)
    assert decided(full_) == []
    assert decided(without_a(full_, owners)) == []
