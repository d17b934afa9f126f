"""The whole protocol over a ZooKeeper in a container that is paused and restarted under it."""

from __future__ import annotations

import time

import pytest

from tests.containers.group import DEADLINE_S, PARTITIONS, READ_IN_A_TENURE, SESSION_MS, Group
from tests.containers.server import TICK_MS, ContainerZooKeeper

pytestmark = pytest.mark.docker

ROUNDS_MAX = 5
EXPIRED_MS = SESSION_MS + 3 * TICK_MS  # the server expires whole ticks of sessions


def settle(group: Group) -> None:
    """A coordinator and three members with a third each."""
    group.coordinate("first")
    for name in ("a", "b", "c"):
        group.join(name)
    group.wait(group.settled, "three share")


def pause_beyond_the_sessions(group: Group, container: ContainerZooKeeper) -> None:
    """Nobody may read from the end of the leases on."""
    readers: list[str] = []
    begin = time.monotonic()

    def expired() -> bool:
        readers.extend(group.allowed())
        return time.monotonic() > begin + EXPIRED_MS / 1000

    with container.paused():
        group.wait(lambda: not group.allowed(), "all leases end")
        group.wait(expired, "the sessions end")
    assert readers == []


def test_members_join_and_leave_and_each_partition_goes_on_where_its_last_holder_ended(group: Group) -> None:
    group.coordinate("first")
    for count, name in enumerate(("a", "b", "c"), start=1):
        group.join(name)
        group.wait(group.settled, f"{count} share")
        assert group.owners() == group.ledger.holder

    group.leave("a")
    group.wait(group.settled, "two share what a third has left")

    assert group.owners() == group.ledger.holder
    assert group.registered() == set(group.ids().values())
    assert group.offsets() == group.ledger.position
    assert set(group.offsets().values()) == {READ_IN_A_TENURE, 2 * READ_IN_A_TENURE}
    assert group.elections == [("first", 1)]


def test_while_the_server_is_paused_beyond_the_lease_nobody_may_read_and_then_the_same_go_on(
    group: Group, container: ContainerZooKeeper
) -> None:
    settle(group)
    before, ids = group.ledger.held(), group.ids()

    with container.paused():
        group.wait(lambda: not group.allowed(), "all leases end")
        group.wait(lambda: not group.ledger.held(), "all are told")
        assert group.allowed() == {}

    group.wait(group.settled, "all go on")
    assert group.ids() == ids
    assert group.ledger.held() == before
    assert group.owners() == group.ledger.holder
    assert group.elections == [("first", 1)]


def test_all_register_afresh_after_a_long_pause_and_each_partition_has_one_owner(
    group: Group, container: ContainerZooKeeper
) -> None:
    settle(group)
    left = set(group.members)

    # What clients sent to the frozen server is still read when it goes on, perhaps before it looks for sessions that
    # have expired: then theirs live on, which is all right. So it is paused until each member has lost one.
    for _ in range(ROUNDS_MAX):
        ids = group.ids()
        pause_beyond_the_sessions(group, container)
        group.wait(group.settled, "all have their share again")
        assert group.owners() == group.ledger.holder
        assert group.registered() == set(group.ids().values())
        left -= {name for name, consumer_id in group.ids().items() if consumer_id != ids[name]}
        if not left:
            break

    assert left == set()


def test_a_restart_keeps_the_tree_and_a_standby_is_elected(group: Group, container: ContainerZooKeeper) -> None:
    settle(group)
    group.coordinate("second")
    group.leave("a")
    group.wait(group.settled, "two share")
    offsets, ids, held = group.offsets(), group.ids(), group.ledger.held()

    container.stop()
    group.end_coordinator("first")  # its session cannot be closed: it expires
    container.start()
    group.wait(lambda: len(group.elections) == 2, "the standby is elected", patience_s=SESSION_MS / 1000 + DEADLINE_S)
    group.wait(group.settled, "the same two share")

    assert group.elections == [("first", 1), ("second", 2)]
    assert (group.offsets(), group.ids(), group.ledger.held()) == (offsets, ids, held)
    assert group.registered() == set(ids.values())
    group.join("d")
    group.wait(group.settled, "a newcomer is given its share")
    assert group.owners() == group.ledger.holder
    assert sum(group.offsets().values()) == sum(group.ledger.position.values()) > len(PARTITIONS)
