"""A registration with which nobody can share comes to a real old member and one of zkcoord's, and goes again.

The old member gives everything up, as ever. Ours reads on what it has and takes nothing, and nobody of ours joins
meanwhile.
"""

from __future__ import annotations

import pytest

from tests.integration.processes import Child
from tests.old_consumers.lab import LONG, V011, V08, V11
from tests.old_consumers.test_mixed import PATIENCE_S, Mixed, gave_up, mixed, zkcoord
from tests.waiting import wait_until

__all__ = ["mixed"]  # the fixture

pytestmark = [pytest.mark.legacy, pytest.mark.zookeeper]

EMPTY, PYKAFKA = ("g_x", ""), ("etl1.example:6ba7b810-9dad-11d1-80b4-00c04fd430c8", "t")
MOVES = ("fetch_started", "fetch_stopped", "fetch_lost", "session_lost")
QUIET_READS = 300  # of each partition: a second at least


def started_twice(child: Child) -> list[str]:
    """The partitions that it began to read more than once."""
    began = [p for event in child.of("fetch_started") for p in event["offsets"]]
    return sorted({p for p in began if began.count(p) > 1})


def reads_on(child: Child, partitions: set[str]) -> None:
    """Wait until it has read many more records of each of these."""
    before = len(child.of("fetched"))

    def read() -> bool:
        new = [event["partition"] for event in child.of("fetched")[before:]]
        return all(new.count(p) >= QUIET_READS for p in partitions)

    wait_until(read, f"it reads {sorted(partitions)} on", PATIENCE_S)


@pytest.mark.parametrize(
    ("version", "stranger"),
    [
        pytest.param(V11, PYKAFKA, id="pykafka"),
        *(pytest.param(version, PYKAFKA, id=f"pykafka, {version}", marks=LONG) for version in (V08, V011)),
        pytest.param(V11, EMPTY, id="empty", marks=LONG),
    ],
)
def test_f220_ours_keeps_its_partitions_beside_an_unplannable_member_and_shares_later(
    mixed: Mixed, version: str, stranger: tuple[str, str]
) -> None:
    lab, (name, text) = mixed.lab, stranger
    mixed.coordinate()
    a = mixed.join("a", version)
    ours = mixed.start_ours()
    mixed.await_shares(3, 3)
    mine = {p for p, thread in lab.owners().items() if "-z" in thread}
    before = ours.of(*MOVES)

    path = lab.zk.create(lab.path("ids", name), text.encode(), ephemeral=True)
    a.await_event("gave_up")
    wait_until(lambda: zkcoord(lab.hosts, "group", "describe", "g")["mode"] == "observe", "it is observed", PATIENCE_S)
    late = mixed.run_ours()
    late.wait("waiting")
    reads_on(ours, mine)
    assert (ours.of(*MOVES), set(lab.owners()), a.owned()) == (before, mine, set[str]())
    assert len(lab.members()) == 3  # the old one, ours, and the stranger

    lab.zk.delete(path)
    mixed.await_shares(2, 2, 2)
    assert started_twice(ours) == []
    assert zkcoord(lab.hosts, "group", "describe", "g")["mode"] == "mixed"
    assert gave_up(a) == ["a"]
    assert mixed.overlaps() == []
