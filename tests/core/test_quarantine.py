"""A refused partition goes to another member. A partition that breaks one consumer after the other is granted to nobody
for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    decided,
    group,
    member,
    runs,
    settled,
    states,
)
from zkcoord.core.decisions import Decision, GrantPartitions, StateEvent, StopFetching
from zkcoord.core.model import TopicPartition
from zkcoord.core.quarantine import FORGIVEN_BYTES_MAX, QUARANTINED_BYTES_MAX, WHY_CHARS_MAX, state_bytes
from zkcoord.core.state import Quarantine
from zkcoord.core.view import GroupView, Owner, Refusal

POISON = Refusal(1, "0000000001", "start: ValueError: poison")
AWAY = Refusal(1, "0000000001", "broker: start: UnavailableError: no broker")


def refused(names: Sequence[str], *refusers: str, refusal: Refusal = POISON, **fields: object) -> GroupView:
    """Members in the order of joining. T0 is free, and `refusers` have refused it. The first members own one partition
    each."""
    members = [member(name, czxid) for czxid, name in enumerate(names, start=1)]
    channels = {n: channel(n, refusals={T0: refusal} if n in refusers else {}) for n in names}
    owners = {p: f"{names[number % len(names)]}-0" for number, p in enumerate((T1, T2, T3))}
    return group(members, owners, channels=channels, **fields)


def granted(decisions: list[Decision]) -> dict[TopicPartition, str]:
    """Partition -> thread, of all grants."""
    return {p: thread for d in decisions if isinstance(d, GrantPartitions) for p, thread in d.partitions.items()}


def quarantines(decisions: list[Decision]) -> list[Mapping[TopicPartition, Quarantine]]:
    """The quarantines that are written."""
    return [state.quarantined for state in states(decisions, StateEvent.QUARANTINED)]


def sets(decisions: list[Decision]) -> list[tuple[Mapping[TopicPartition, Quarantine], Mapping[str, str]]]:
    """The quarantines that are written, each with the refusals that a request forgave."""
    return [(state.quarantined, state.forgiven) for state in states(decisions, StateEvent.QUARANTINED)]


def test_a_refused_partition_goes_to_a_member_that_has_not_refused_it() -> None:
    assert granted(decided(refused("abcd", "d"))) == {T0: "a-0"}
    assert granted(decided(refused("abcd", "d", "a"))) == {T0: "b-0"}


def test_a_partition_that_all_refused_is_retried_in_place_with_backoff() -> None:
    view, steps = settled(refused("ab", "a", "b")), Steps()
    assert steps.step(view, NOW)[1] == NOW + 2_000
    assert granted(decided(view, steps, NOW)) == {}
    assert list(granted(decided(view, steps, NOW + 2_000))) == [T0]
    assert quarantines(decided(view, steps)) == []


def test_f45_a_third_consumer_is_the_last_one_that_a_partition_breaks() -> None:
    view = refused("abcd", "a", "b", "c")
    assert granted(decided(view)) == {T0: "d-0"}  # d joined after all of them, so it may be able to start it
    view = refused("abcd", "b", "c", "d")
    decisions = decided(view)
    assert granted(decisions) == {}
    assert quarantines(decisions) == [{T0: Quarantine("broke b, c, d: start: ValueError: poison", 4)}]
    written = settled(altered(view, quarantined=quarantines(decisions)[0]))
    assert decided(written) == []


def test_a_forgiven_partition_that_breaks_goes_to_an_older_member() -> None:
    """Only a request lets an older member than the last refuser try it: then all members begin anew."""
    view = refused("abcd", "b", "c", "d")
    view = settled(replace(view, owners={**view.owners, T0: Owner("d-0", 3)}))
    (stop,) = decided(view)
    assert isinstance(stop, StopFetching)
    assert stop.partitions == {T0: "a-0"}


def test_f45_a_member_that_joins_gets_one_try_and_a_requested_rebalance_forgives_all() -> None:
    entry = {T0: Quarantine("broke b, c, d: x", 4)}
    joined = decided(refused("abcde", "b", "c", "d", quarantined=entry))
    assert (quarantines(joined), granted(joined)) == ([{}], {T0: "e-0"})
    again = decided(refused("abcde", "b", "c", "d", "e"))
    assert quarantines(again) == [{T0: Quarantine("broke b, c, d, e: start: ValueError: poison", 5)}]
    requested = refused("abcd", "b", "c", "d", quarantined=entry, requests=runs(rebalance="r"))
    assert sets(decided(requested)) == [({}, dict.fromkeys("bcd", POISON.sequence))]


def test_the_state_remembers_forgiven_refusals_while_statuses_show_them() -> None:
    forgiven = dict.fromkeys("bcd", POISON.sequence)
    view = refused("abcd", "b", "c", "d", forgiven=forgiven)
    steps = Steps()
    assert sets(decided(view, steps)) == []
    assert granted(decided(view, steps, NOW + 2_000)) == {T0: "d-0"}
    assert sets(decided(refused("abcd", "b", "c", forgiven=forgiven))) == [({}, dict.fromkeys("bc", POISON.sequence))]
    assert sets(decided(refused("abcd", forgiven=forgiven))) == [({}, {})]
    assert sets(decided(refused("abc", "b", "c", forgiven=forgiven))) == [({}, dict.fromkeys("bc", POISON.sequence))]
    later = POISON._replace(sequence="0000000002")
    [(found, kept)] = sets(decided(refused("abcd", "b", "c", "d", refusal=later, forgiven=forgiven)))
    assert (list(found), kept) == ([T0], {})
    requested = refused("abcd", "b", refusal=AWAY, requests=runs(rebalance="r"))
    assert sets(decided(requested)) == []  # there is nothing to forgive


def test_no_more_is_forgiven_than_the_state_has_room_for() -> None:
    a, b, c, d = (name * (FORGIVEN_BYTES_MAX // 2 - 16) for name in "abcd")
    requested = refused((a, b, c, d), b, c, d, requests=runs(rebalance="r"))
    assert sets(decided(requested)) == [({}, dict.fromkeys((b, c), POISON.sequence))]


def test_the_trying_member_keeps_the_partition() -> None:
    """While the partition is owned, the others must not get it either. Otherwise it would go to the assignor's first
    choice."""
    others = {T1: Owner("b-0", 5), T2: Owner("c-0", 5), T3: Owner("d-0", 5)}
    view = settled(altered(refused("abcde", "b", "c", "d", assignor="range"), owners=others))
    assert granted(decided(view)) == {T0: "e-0"}
    assert decided(replace(view, owners={**others, T0: Owner("e-0", 1)})) == []


def test_a_broker_that_is_away_moves_nothing_and_quarantines_nothing() -> None:
    view = settled(refused("abcd", "a", "b", "c", "d", refusal=AWAY))
    steps = Steps()
    assert decided(view, steps) == []
    assert list(granted(decided(view, steps, NOW + 2_000))) == [T0]


def after_evictions(*names: str) -> list[Decision]:
    """Members that owned T0 are evicted one after the other, beside an old member z. Returns the last decisions."""
    steps, decisions = Steps(), []
    for czxid, name in enumerate(names, start=2):
        members = [member("g_z-1-ff"), member(name, czxid)]
        decided(group(members, {T0: f"{name}-0"}), steps)
        channels = {"g_z-1-ff": channel("g_z-1-ff"), name: channel(name, evicted_ms=6_000)}
        decisions = decided(group(members[:1], {T0: f"{name}-0"}, channels=channels), steps)
    return decisions


def test_f45_evictions_of_its_owners_count_and_one_program_counts_once() -> None:
    assert quarantines(after_evictions("g_a-1-ff", "g_b-1-ff")) == []
    assert quarantines(after_evictions("g_a-1-ff", "g_a-2-ff", "g_a-3-ff", "g_a-4-ff")) == []
    [found] = quarantines(after_evictions("g_a-1-ff", "g_b-1-ff", "g_c-1-ff"))
    assert found == {T0: Quarantine("broke g_a, g_b, g_c: evicted", 1)}


def test_no_more_is_quarantined_than_the_state_has_room_for_and_what_is_beyond_is_tried_on() -> None:
    view = refused("abcd", "b", "c", "d")
    refusals = {T0: POISON, T1: POISON}
    channels = {n: replace(c, refusals=refusals) if n != "a" else c for n, c in view.channels.items()}
    view = replace(view, channels=channels, owners={})
    entry = Quarantine("broke b, c, d: start: ValueError: poison", 4)
    both = {T0: entry, T1: entry}
    assert quarantines(decided(view)) == [both]
    taken = state_bytes(T0, entry) + state_bytes(T2, entry._replace(why=""))
    large = entry._replace(why="x" * (QUARANTINED_BYTES_MAX - taken))
    fuller, steps = settled(altered(view, quarantined={T2: large})), Steps()
    assert quarantines(decided(fuller, steps)) == [{T0: entry, T2: large}]
    later = granted(decided(fuller, steps, NOW + 2_000))
    assert T1 in later
    assert T0 not in later
    assert quarantines(decided(settled(altered(view, quarantined={T0: entry, T2: large})))) == []
    long = Refusal(1, "0000000001", "x" * 10_000)
    channels = {n: replace(c, refusals={T0: long}) for n, c in channels.items()}
    [[found]] = [list(q.values()) for q in quarantines(decided(replace(view, channels=channels)))]
    assert len(found.why) == WHY_CHARS_MAX
