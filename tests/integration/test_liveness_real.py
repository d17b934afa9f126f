"""Session timeouts and probes on a real ZooKeeper: what was negotiated counts, and a dead program is found out."""

from __future__ import annotations

import pytest

from tests.integration.world import World
from tests.waiting import wait_until
from zkcoord import Consumer
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.registration import decode_registration

pytestmark = pytest.mark.zookeeper

GROUP = "g"


def consumer(zookeeper: str, session_timeout_ms: int) -> Consumer:
    """A member that reads nothing."""
    return Consumer(
        zookeeper,
        GROUP,
        ["t"],
        on_start=lambda positions: None,
        on_stop=lambda partitions: {},
        on_lost=lambda partitions: None,
        reset=lambda partitions: dict.fromkeys(partitions, 0),
        session_timeout_ms=session_timeout_ms,
    )


def test_f43_a_session_timeout_above_the_servers_maximum_is_registered_as_negotiated(chroot: str) -> None:
    with World(chroot) as world:
        world.topic("t", 1)
        world.coordinate()
        with consumer(chroot, 3_600_000) as member:
            wait_until(lambda: member.consumer_id is not None, "it registers")
            data = world.data(DRAFT.registration(GROUP, member.consumer_id or ""))
            negotiated_ms = decode_registration(data).session_timeout_ms
            assert 0 < negotiated_ms < 3_600_000
            lease = member._role.lease
            assert lease is not None
            assert lease.timeout_ms == negotiated_ms


def test_f43_a_session_timeout_below_the_groups_minimum_is_rejected(chroot: str) -> None:
    with World(chroot) as world:
        world.topic("t", 1)
        world.coordinate()
        with consumer(chroot, 10_000) as long:
            wait_until(lambda: world.children(DRAFT.owners(GROUP)) == ["t"], "the group is founded")
            world.put(DRAFT.record(GROUP), {"policy": {"session_timeout_min_ms": 8_000}})
            with consumer(chroot, 5_000) as short:
                wait_until(lambda: bool(world.reports.of("rejected")), "it is told")
                [rejected] = world.reports.of("rejected")
                assert rejected["why"] == "its session timeout of 5000 ms is below the group's minimum of 8000 ms"
                wait_until(lambda: world.children(DRAFT.ids(GROUP)) == [long.consumer_id], "its session is closed")
                assert short.consumer_id is None


def test_f06_a_program_that_lags_without_progress_is_evicted_by_its_probes(chroot: str) -> None:
    with World(chroot) as world:
        world.topic("t", 1)
        world.coordinate()
        with consumer(chroot, 10_000) as dead:
            wait_until(lambda: len(world.reports.of("fetch_started")) == 1, "it starts")
            name = dead.consumer_id
            dead.report(10, 3)
            world.put(DRAFT.record(GROUP), {"policy": {"probe_interval_ms": 1_000, "max_probes": 2}})
            wait_until(lambda: bool(world.reports.of("evicted")), "its eviction")
            [evicted] = world.reports.of("evicted")
            assert evicted["consumer"] == name
            assert evicted["why"] == "stalled: lag 3 and progress 10 unchanged at 2 probes"
            wait_until(lambda: len(world.reports.of("fetch_started")) == 2, "it comes back, and is given its share")
