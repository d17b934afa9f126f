"""A group of real old consumers that keep their offsets in Kafka, alone or with dual commit, becomes one of zkcoord's
and goes back, member by member, while records come. What may come twice is named as in `test_rolling.py`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.legacy.lab import V011, V08, V11
from tests.legacy.rolling import Rolling
from tests.legacy.test_rolling import KILLED, coordinated
from tests.waiting import wait_until
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.tree.paths import LEGACY

pytestmark = [pytest.mark.legacy, pytest.mark.kafka, pytest.mark.zookeeper]


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "store", "broker"),
    [(V11, "kafka", KAFKA_VERSION), (V011, "kafka", V11), (V011, "dual", KAFKA_VERSION), (V08, "dual", V11)],
)
def test_a_group_with_offsets_in_kafka_is_replaced_member_by_member_under_traffic_and_goes_back(
    chroot: str, tmp_path: Path, version: str, store: str, broker: str
) -> None:
    with Rolling(chroot, tmp_path, store=store, version=broker) as rolling:
        old = [rolling.old(name, version) for name in "abc"]
        rolling.settle(3)
        rolling.serve()
        rolling.adopt()
        ours = [
            rolling.change(member, partial(rolling.our, name), kills=member.name in KILLED, starts_first=False)
            for member, name in zip(old, "xyz", strict=True)
        ]
        wait_until(lambda: coordinated(rolling), "the group is coordinated, and settled")
        assert {json.loads(data)["store"]["name"] for data in statuses(rolling)} == {store}
        for member, name in zip(ours, "def", strict=True):
            start = partial(rolling.old, name, version)
            rolling.change(member, start, kills=member.name in KILLED, starts_first=False)
        assert json.loads(rolling.run("release"))["released"]
        assert not rolling.lab.zk.exists(LEGACY.record("g"))
        rolling.catch_up()

        assert rolling.gave_up() == []
        assert rolling.overlaps() == []
        assert rolling.backwards() == []
        repeats = rolling.repeats()
        assert [row for rows in repeats.values() for row in rows if rolling.committed_before(row)] == []
        rebalances = {member.name: member.rebalances() for member in rolling.lab.consumers}
        kept = {name: rows for name, rows in repeats.items() if name not in KILLED}
        assert {name: rows for name, rows in kept.items() if len(rows) > rebalances.get(name, 0)} == {}


def statuses(rolling: Rolling) -> list[bytes]:
    """What each consumer of zkcoord says of itself."""
    zk, above = rolling.lab.zk, LEGACY.channels_of("g")
    return [zk.get(f"{above}/{name}")[0] for name in zk.get_children(above)]
