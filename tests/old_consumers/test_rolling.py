"""A group of real old consumers becomes one of zkcoord's and goes back, member by member, while records come. Offsets
are in ZooKeeper, in Kafka, or in both.

What may be processed twice is named: what a killed member had not committed, what an old member's program takes out
while the member commits and releases, and what is committed while an old member that has read the offset is about to
claim (`stale_starts.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.old_consumers.lab import LONG, V011, V08, V11
from tests.old_consumers.rolling import Rolling, first_behind
from tests.waiting import wait_until
from zkcoord.embedded.artifacts import KAFKA_VERSION, OLD_KAFKA_VERSIONS
from zkcoord.tree.paths import LEGACY

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]

KILLED = ("b", "y")  # the others are stopped
GROUPS = [  # versions of the old members, whether the new one starts first, store of offsets, broker, strategy
    pytest.param(OLD_KAFKA_VERSIONS, False, "zookeeper", V11, "range", id="one of each version"),
    *(
        pytest.param(
            *((version,) * 3, first, "zookeeper", V11, "range"),
            id=f"{version}, {'starts' if first else 'stops'} first",
            marks=LONG,
        )
        for version in OLD_KAFKA_VERSIONS
        for first in (False, True)
    ),
    *(
        pytest.param(
            (version,) * 3, False, store, broker, "range", id=f"{version}, {store}, broker {broker}", marks=LONG
        )
        for version, store, broker in (
            (V11, "kafka", KAFKA_VERSION),
            (V011, "kafka", V11),
            (V011, "dual", KAFKA_VERSION),
            (V08, "dual", V11),
        )
    ),
    *(
        pytest.param((version,) * 3, True, "zookeeper", V11, "roundrobin", id=f"{version}, round robin", marks=LONG)
        for version in (V08, V11)  # whose assignors put partitions into different orders
    ),
]


@pytest.fixture
def rolling(chroot: str, tmp_path: Path, store: str) -> Iterator[Rolling]:
    with Rolling(chroot, tmp_path, store=store) as made:
        yield made


@pytest.mark.parametrize(("versions", "starts_first", "store", "broker", "strategy"), GROUPS)
def test_a_group_is_replaced_member_by_member_under_traffic_and_goes_back(
    chroot: str,
    tmp_path: Path,
    versions: tuple[str, str, str],
    starts_first: bool,
    store: str,
    broker: str,
    strategy: str,
) -> None:
    with Rolling(chroot, tmp_path, store=store, version=broker, strategy=strategy) as rolling:
        old = [rolling.old(name, version) for name, version in zip("abc", versions, strict=True)]
        rolling.settle(3)
        rolling.serve()
        rolling.adopt()
        ours = [
            rolling.change(member, partial(rolling.our, name), kills=member.name in KILLED, starts_first=starts_first)
            for member, name in zip(old, "xyz", strict=True)
        ]
        wait_until(lambda: coordinated(rolling), "the group is coordinated, and settled")
        assert {json.loads(data)["store"]["name"] or "zookeeper" for data in statuses(rolling)} == {store}
        for member, name, version in zip(ours, "def", versions, strict=True):
            start = partial(rolling.old, name, version)
            rolling.change(member, start, kills=member.name in KILLED, starts_first=starts_first)
        assert json.loads(rolling.run("release"))["released"]
        assert not rolling.lab.zk.exists(LEGACY.record("g"))
        rolling.catch_up()

        assert rolling.gave_up() == []
        assert rolling.overlaps() == []
        assert rolling.backwards() == []
        stale = rolling.begun_before_a_release
        again = [(name, row) for name, rows in rolling.repeats().items() for row in rows if not stale(row)]
        assert [row for _, row in again if rolling.committed_before(row)] == []
        assert [each for each in again if each[0] not in KILLED and not rolling.taken_out_late(*each)] == []


def statuses(rolling: Rolling) -> list[bytes]:
    """What each consumer of zkcoord says of itself."""
    zk, above = rolling.lab.zk, LEGACY.channels_of("g")
    return [zk.get(f"{above}/{name}")[0] for name in zk.get_children(above)]


def coordinated(rolling: Rolling) -> bool:
    """Whether the tools say that the coordinator has the group, and that it is at rest."""
    told = json.loads(rolling.run("describe"))
    return (told["mode"], told["settled"]) == ("coordinated", True)


@pytest.mark.parametrize(
    ("version", "store"),
    [
        pytest.param(V08, "zookeeper", marks=LONG),
        pytest.param(V08, "dual", marks=LONG),
        pytest.param(V011, "zookeeper", marks=LONG),
        pytest.param(V011, "kafka", marks=LONG),
        (V11, "zookeeper"),
        pytest.param(V11, "kafka", marks=LONG),
    ],
)
def test_a_member_frozen_beyond_its_session_is_replaced_and_comes_back(rolling: Rolling, version: str) -> None:
    """An old one reads on until it notices, and its late commit may move offsets back; ours hands out nothing more. An
    old one also reads its offsets before it claims: what is committed and released in between it reads again."""
    a = rolling.old("a", version)
    rolling.settle(1)
    rolling.serve()
    rolling.adopt()
    x = rolling.our("x")
    rolling.settle(2)

    resumed_ms = rolling.pause(a)
    rolling.settle(2)
    first_behind(resumed_ms, lambda: (event["at_ms"] for event in a.events("owns")))

    again_ms = rolling.pause(x)
    rolling.settle(2)
    started_ms = first_behind(again_ms, lambda: (hold.begin_ms for hold in x.holds()))
    assert [row for row in x.rows() if again_ms < row.at_ms < started_ms] == []

    assert rolling.overlaps() == []
    back = [(partition, to) for at_ms, partition, _, to in rolling.backwards() if rolling.beyond("a", at_ms)]
    assert len(back) == len(rolling.backwards())
    late = dict(sorted(back, reverse=True))  # the lowest of each
    late |= {partition: 0 for at_ms, partition in rolling.unseen if rolling.beyond("a", at_ms)}  # one, perhaps
    again = [row for rows in rolling.repeats().values() for row in rows if rolling.committed_before(row)]
    named = [
        row for row in again if rolling.beyond("a", row.at_ms) or row.offset >= late.get(row.partition, row.offset + 1)
    ]
    assert [row for row in again if row not in named and not rolling.begun_before_a_release(row)] == []
    assert rolling.gave_up() == []
