"""A coordinator's decisions where owners are claims. An owner at version -1 has no node (`tree.owners`)."""

from __future__ import annotations

from dataclasses import replace

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, channel, command, group, member
from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.decisions import DeleteClaims, PurgeChannel
from zkcoord.core.model import TopicPartition
from zkcoord.core.ownership import available, claims_to_delete
from zkcoord.core.quarantine import Quarantines
from zkcoord.core.view import START, GroupView, Owner, Refusal

GRACE_MS = 6_000


def evicted(*claims: TopicPartition, **values: object) -> GroupView:
    """The member b was evicted. It owned T0 and T1, and `claims` are those of its claims that still exist."""
    view = group([member("a")], {T2: "a-0", T3: "a-0"}, claims=True, **values)
    owners = {p: Owner("b-0", 1 if p in claims else -1) for p in (T0, T1)}
    mark = channel("b", evicted_ms=GRACE_MS, evicted_owned=frozenset({T0, T1}))
    return replace(view, owners={**view.owners, **owners}, channels={**view.channels, "b": mark})


def free(view: GroupView, partition: TopicPartition, now_ms: int, timeouts: AckTimeouts | None = None) -> bool:
    """True if the partition may be granted."""
    timeouts = timeouts or AckTimeouts().seen(view, NOW)
    return available(view, timeouts, view.owners.get(partition), now_ms)


def test_a_claim_that_stands_is_never_available_whoever_is_registered() -> None:
    view = evicted(T0)
    assert [free(view, p, NOW + GRACE_MS) for p in (T0, T1, T2)] == [False, True, False]
    gone = replace(view, channels={"a": channel("a")})  # nobody was evicted: b's session is about to end
    assert [free(gone, p, NOW) for p in (T0, T1)] == [False, True]


def test_an_evicted_owner_keeps_its_partition_until_its_grace_ends() -> None:
    view = evicted()
    timeouts = AckTimeouts().seen(view, NOW)
    assert not free(view, T0, NOW + GRACE_MS - 1, timeouts)
    assert free(view, T0, NOW + GRACE_MS, timeouts)


def test_f89_an_evicted_consumers_claims_go_after_its_grace_with_known_offsets() -> None:
    view = evicted(T0, T1, claim_offsets={T0: 3})
    timeouts = AckTimeouts().seen(view, NOW)
    assert claims_to_delete(view, timeouts, NOW + GRACE_MS - 1) == []
    assert claims_to_delete(replace(view, claim_offsets={}), timeouts, NOW + GRACE_MS) == []
    [delete] = claims_to_delete(view, timeouts, NOW + GRACE_MS)
    assert delete == DeleteClaims(consumer_id="b", partitions={T0: 3}, why=delete.why)


def test_nothing_is_deleted_of_a_living_consumer_nor_of_one_that_was_not_evicted() -> None:
    view = evicted(T0, claim_offsets={T0: 3})
    timeouts = AckTimeouts().seen(view, NOW)
    back = replace(view, members={**view.members, "b": member("b")})
    dead = replace(view, channels={"a": channel("a"), "b": channel("b")})
    for other in (back, dead, replace(view, claims=False)):
        assert claims_to_delete(other, timeouts, NOW + GRACE_MS) == []


def test_an_evicted_consumers_mark_stays_while_any_claim_of_it_stands() -> None:
    """Without the mark it would be unknown which member's claims must be deleted."""
    view = evicted(T0, topics={}, marked=frozenset())
    steps = Steps()
    steps.step(view)
    decisions, _ = steps.step(view, NOW + GRACE_MS)
    assert not any(isinstance(decision, PurgeChannel) for decision in decisions)
    gone = replace(view, owners={p: owner for p, owner in view.owners.items() if p != T0})
    assert any(isinstance(decision, PurgeChannel) for decision in steps.step(gone, NOW + GRACE_MS)[0])


def test_f88_a_start_that_was_refused_as_taken_is_tried_again_without_a_wait_and_is_no_strike() -> None:
    taken = Refusal(generation=1, sequence="0000000000", reason="taken: g_old-0 has claimed it")
    ill = taken._replace(reason="start: no")
    for refusal, waits in ((taken, False), (ill, True)):
        view = group([member("a")], {}, claims=True)
        view = replace(view, channels={"a": channel("a", command(START, T1), refusals={T0: refusal})})
        assert AckTimeouts().seen(view, NOW).start_backs_off("a", T0, NOW) is waits
        pairs = Quarantines().seen(view).exclusions(view, list(view.members.values())).pairs
        assert pairs == (frozenset({(T0, "a")}) if waits else frozenset())
