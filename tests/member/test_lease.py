"""The lease's arithmetic: two thirds of the timeout from the SENDING of the last answered sync or write."""

from __future__ import annotations

from zkcoord.member.lease import Lease


def extend(lease: Lease, sent_ms: int) -> bool:
    """An answer comes while the registration is known to exist."""
    lease.answered(sent_ms)
    return lease.extend()


def test_a_lease_counts_from_the_sending_and_never_goes_back() -> None:
    lease = Lease(timeout_ms=6_000)
    assert not lease.holds(0)
    assert extend(lease, 100)
    assert lease.holds(4_099)
    assert not lease.holds(4_100)
    assert not extend(lease, 50)
    assert lease.until_ms == 4_100


def test_an_answer_counts_only_once_the_registration_was_seen_and_the_newest_counts() -> None:
    lease = Lease(timeout_ms=6_000)
    assert not lease.extend()
    lease.answered(200)
    lease.answered(100)
    assert not lease.holds(201)
    assert lease.extend()
    assert lease.until_ms == 4_200


def test_a_sync_is_due_each_sixth_of_the_timeout() -> None:
    lease = Lease(timeout_ms=6_000)
    assert [at for at in range(0, 3_001, 500) if lease.sync_due(at)] == [0, 1_000, 2_000, 3_000]


def test_it_wakes_for_the_sync_or_its_end_and_without_a_link_for_the_end_only() -> None:
    lease = Lease(timeout_ms=6_000)
    extend(lease, 0)
    lease.sync_due(0)
    assert lease.wake_at_ms(10, connected=True) == 1_000
    assert lease.wake_at_ms(10, connected=False) == 4_000
    assert lease.wake_at_ms(4_000, connected=False) is None


def test_a_shorter_timeout_counts_from_the_last_answer_on_and_is_synced_for_at_once() -> None:
    lease = Lease(timeout_ms=30_000)
    extend(lease, 100)
    assert lease.sync_due(100)
    lease.negotiated(6_000)
    assert lease.until_ms == 4_100
    assert [lease.sync_due(at) for at in (101, 1_100, 1_101)] == [True, False, True]
    assert extend(lease, 200)
    assert lease.until_ms == 4_200
    lease.negotiated(30_000)
    assert lease.until_ms == 4_200


def test_a_lease_that_never_began_does_not_begin_with_another_timeout() -> None:
    lease = Lease(timeout_ms=6_000)
    lease.negotiated(4_500)
    assert (lease.until_ms, lease.holds(0)) == (-1, False)
